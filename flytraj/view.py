"""What a view of a dataset can do beyond xarray: `ds.traj`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError, FormatError, InvalidArgumentError
from flytraj.model import check_fingerprint, fingerprint, kinematic_layout, load_model
from flytraj.store.create import read_blob, read_description
from flytraj.store.description import Description
from flytraj.store.engine import Engine, open_engine
from flytraj.trajectory import RecordedTrajectory, check_sizes

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["Handle", "TrajAccessor", "ViewClip"]

_STATE = ("qpos", "mocap_pos", "mocap_quat")
_SCAN_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Handle:
    """What a view reads from.

    Attributes:
        engine: The store.
        description: The dataset as it was committed when it was opened.
    """

    engine: Engine
    description: Description


class ViewClip:
    """One world of a view, read a stretch at a time; see `flytraj.trajectory.Clip`."""

    def __init__(self, view: xr.Dataset, world: int) -> None:
        state = ["sim_time", *(name for name in _STATE if name in view)]
        self._frames = view[state].isel(world=world)
        self._world_id = int(view["world"].values[world])

    @property
    def world_id(self) -> int:
        """Id of the world."""
        return self._world_id

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return int(self._frames.sizes["frame"])

    @property
    def nq(self) -> int:
        """Number of generalized coordinates."""
        return int(self._frames["qpos"].shape[-1])

    @property
    def nmocap(self) -> int:
        """Number of mocap bodies."""
        return int(self._frames["mocap_pos"].shape[-2]) if "mocap_pos" in self._frames else 0

    @property
    def output_fps(self) -> float:
        """Frames per second of the video."""
        return float(self._frames.attrs["output_fps"])

    @property
    def playback_speed(self) -> float:
        """Speed of the video relative to real time."""
        return float(self._frames.attrs["playback_speed"])

    def read(self, start: int, stop: int) -> RecordedTrajectory:
        """Frames `start` to `stop` (exclusive), read from the dataset."""
        frames = self._frames.isel(frame=slice(start, stop))
        fps = self.output_fps
        return RecordedTrajectory(
            time=frames["sim_time"].values,
            qpos=frames["qpos"].values,
            output_fps=int(fps) if fps == int(fps) else fps,
            playback_speed=self.playback_speed,
            world_id=self._world_id,
            mocap_pos=frames["mocap_pos"].values if self.nmocap else None,
            mocap_quat=frames["mocap_quat"].values if self.nmocap else None,
        )


class TrajAccessor:
    """Trajectories, episodes and the model of a view; reached as `ds.traj`."""

    def __init__(self, view: xr.Dataset) -> None:
        self._view = view

    def trajectory(self, world_id: int | None = None) -> RecordedTrajectory:
        """Read one world's frames into memory.

        Args:
            world_id: Id of the world; may be left out for a view of one world.

        Raises:
            FieldNotFoundError: The view has no such world.
            InvalidArgumentError: The view has several worlds and none was named.
        """
        clips = self.clips()
        if world_id is None:
            if len(clips) != 1:
                raise InvalidArgumentError(
                    f"The view has {len(clips)} worlds: name one, as in ds.traj.trajectory(world_id=3)."
                )
            return clips[0].read(0, clips[0].n_frames)
        for clip in clips:
            if clip.world_id == world_id:
                return clip.read(0, clip.n_frames)
        raise FieldNotFoundError(f"World {world_id} is not in the view ({self._worlds_shown()}).")

    def trajectories(self) -> list[RecordedTrajectory]:
        """Read all worlds' frames into memory, a trajectory a world."""
        view = self._worlds_view()
        loaded = view[["sim_time", *(name for name in _STATE if name in view)]].load()
        clips = (ViewClip(loaded, world) for world in range(loaded.sizes["world"]))
        return [clip.read(0, clip.n_frames) for clip in clips]

    def clips(self) -> list[ViewClip]:
        """The worlds of the view, to be read a stretch at a time."""
        view = self._worlds_view()
        return [ViewClip(view, world) for world in range(view.sizes["world"])]

    def episodes(self) -> pd.DataFrame:
        """Table of the view's episodes, without reading the state.

        Returns:
            Columns `world`, `episode`, `first_frame`, `last_frame` (places in the view, inclusive) and
            `duration` (seconds of simulation time from the first frame to the last), in the order of worlds.
        """
        import pandas as pd

        view = self._worlds_view()
        world, first, number, began, ended = _scan_episodes(view)
        last = np.append(first[1:], 0)[: len(first)] - 1
        last[_is_last_of_world(world)] = view.sizes["frame"] - 1
        return pd.DataFrame(
            {
                "world": view["world"].values[world],
                "episode": number,
                "first_frame": first,
                "last_frame": last,
                "duration": ended - began,
            }
        )

    def model(self) -> mujoco.MjModel:
        """Load the embedded model: from the XML where there is one, else from the MJB.

        MuJoCo's parser of MJB trusts its input: load one only from a dataset you trust.

        Raises:
            FormatError: None is embedded, or it cannot be loaded here.
        """
        handle = self._handle()
        return load_model(
            xml=read_blob(handle.engine, handle.description, "xml"),
            mjb=read_blob(handle.engine, handle.description, "mjb"),
        )

    def check_model(self, mj_model: mujoco.MjModel) -> None:
        """Check that a model is the one the dataset was recorded with.

        Raises:
            ModelMismatchError: It is another; the first difference is named. A dataset without a model gets
                the check of `check_trajectories_match_model`.
        """
        if self._view.attrs.get("fingerprint") == fingerprint(kinematic_layout(mj_model)):
            return
        handle = self._handle()
        layout = read_blob(handle.engine, handle.description, "layout")
        if layout is None:
            for clip in self.clips()[:1]:
                check_sizes(mj_model, clip)
            return
        check_fingerprint(json.loads(layout.tobytes()), mj_model, what=str(handle.engine))

    def to_npz(self, directory: str | Path) -> list[Path]:
        """Write one `.npz` a world, see `flytraj.export_npz`."""
        from flytraj.npz import export_npz

        return export_npz(self._view, directory)

    def _handle(self) -> Handle:
        handle = self._view.encoding.get("flytraj")
        if isinstance(handle, Handle):
            return handle
        store = self._view.attrs.get("store")
        if store is None:
            raise FormatError(
                "This xarray.Dataset is no view of a flytraj dataset: open one with open_dataset."
            )
        engine = open_engine(store)
        return Handle(engine, read_description(engine))

    def _worlds_view(self) -> xr.Dataset:
        view = self._view
        for name in ("qpos", "sim_time", "world"):
            if name not in view.variables:
                raise InvalidArgumentError(f"The view has no {name!r}: keep it to get trajectories.")
        if "frame" not in view.dims:
            view = view.expand_dims("frame")
        if "world" not in view.dims:
            view = view.expand_dims("world")
        return view.transpose("world", "frame", ...)

    def _worlds_shown(self) -> str:
        ids = np.atleast_1d(self._view["world"].values)
        return ", ".join(map(str, ids[:8])) + (" …" if len(ids) > 8 else "")


def _frame_stretches(view: xr.Dataset) -> Iterator[slice]:
    """Slices of frames whose coordinates fit in memory."""
    n_frames, n_worlds = view.sizes["frame"], max(1, view.sizes["world"])
    step = max(1, _SCAN_BYTES // (12 * n_worlds))
    for start in range(0, max(1, n_frames), step):
        yield slice(start, min(n_frames, start + step))


def _scan_episodes(
    view: xr.Dataset,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """World, first frame, number, first and last time of each episode, by worlds and then frames."""
    n_worlds = view.sizes["world"]
    previous = np.full(n_worlds, -1, np.int32)
    previous_time = np.full(n_worlds, np.nan)
    worlds, firsts, numbers, begins, ends = [], [], [], [], []
    for stretch in _frame_stretches(view):
        part = view[["episode", "sim_time"]].isel(frame=stretch)
        episode, time = part["episode"].values, part["sim_time"].values
        before = np.concatenate([previous[:, np.newaxis], episode[:, :-1]], axis=1)
        time_before = np.concatenate([previous_time[:, np.newaxis], time[:, :-1]], axis=1)
        world, frame = np.nonzero(episode != before)
        worlds.append(world)
        firsts.append(frame + stretch.start)
        numbers.append(episode[world, frame])
        begins.append(time[world, frame])
        ends.append(time_before[world, frame])
        if episode.shape[1]:
            previous, previous_time = episode[:, -1], time[:, -1]
    world, first = np.concatenate(worlds), np.concatenate(firsts)
    order = np.lexsort((first, world))
    world, first = world[order], first[order]
    ended_before = np.concatenate(ends)[order]
    # An episode ends where the same world's next one begins, or with the world's last frame.
    ended = np.append(ended_before[1:], np.nan)[: len(world)]
    is_last = _is_last_of_world(world)
    ended[is_last] = previous_time[world[is_last]]
    return world, first, np.concatenate(numbers)[order], np.concatenate(begins)[order], ended


def _is_last_of_world(world: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.append(world[1:] != world[:-1], True)[: len(world)]
