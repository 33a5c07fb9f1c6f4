"""What a view of a dataset can do beyond xarray: `ds.traj`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.clips import STATE, ViewClip
from flytraj.episodes import episode_table, frames_at, times_in
from flytraj.errors import FieldNotFoundError, FormatError, InvalidArgumentError
from flytraj.kinematics import compute, field
from flytraj.model import check_fingerprint, dim_labels, fingerprint, kinematic_layout, load_model
from flytraj.schema import COORDINATES
from flytraj.store.create import read_blob, read_description
from flytraj.store.description import Description
from flytraj.store.engine import Engine, open_engine
from flytraj.summary import Summary, summarize
from flytraj.trajectory import RecordedTrajectory, check_sizes
from flytraj.windows import Windows, chunk_rows, field_names

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

    from flytraj.viewing.page import Page

__all__ = ["Handle", "TrajAccessor"]


@dataclass(frozen=True)
class Handle:
    """What a view reads from.

    Attributes:
        engine: The store.
        description: The dataset as it was committed when it was opened.
    """

    engine: Engine
    description: Description


class TrajAccessor:
    """Trajectories, episodes, windows and the model of a view; reached as `ds.traj`."""

    def __init__(self, view: xr.Dataset) -> None:
        self._view = view

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().to_html()

    def summary(self) -> Summary:
        """What people ask first: worlds, frames, seconds, episodes, model, fields, size on disk."""
        handle = self._handle()
        return summarize(self._worlds_view(), self.episodes(), handle.engine, handle.description)

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
        clip = clips[self._position(world_id)]
        return clip.read(0, clip.n_frames)

    def trajectories(self) -> list[RecordedTrajectory]:
        """Read all worlds' frames into memory, a trajectory a world."""
        view = self._worlds_view()
        loaded = view[["sim_time", *(name for name in STATE if name in view)]].load()
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
        return episode_table(self._worlds_view())

    def episode(self, world_id: int, episode: int) -> xr.Dataset:
        """One episode of one world, as a view with the dim `frame`.

        Args:
            world_id: Id of the world.
            episode: Number of the episode, as in the coordinate `episode`; negative counts from the last.

        Raises:
            FieldNotFoundError: The view has no such world, or the world no such episode.
        """
        view = self._worlds_view().isel(world=self._position(world_id))
        numbers = view["episode"].values
        present = np.unique(numbers)
        if episode < 0:
            episode = int(present[episode]) if -episode <= len(present) else episode
        frames = np.flatnonzero(numbers == episode)
        if not len(frames):
            raise FieldNotFoundError(
                f"World {world_id} has no episode {episode} in the view; it has {present.tolist()}."
            )
        return view.isel(frame=slice(int(frames[0]), int(frames[-1]) + 1))

    def sel_sim_time(
        self, time: float | slice | Sequence[float], *, episode: int | None = None
    ) -> xr.Dataset:
        """Select by each world's own simulation time, which restarts when the world is reset.

        Worlds are aligned: the i-th frame of the result is every world's frame nearest to the same time on its
        own clock, at most half a frame off. Where a world has none, numbers are NaN.

        Args:
            time: Seconds: one time, several, or a slice, which stands for every frame's time in it.
            episode: Number of the episode to look in; None takes the first that has the time.

        Returns:
            A view with the dims (world, frame, …), loaded where worlds differ in their frames.
        """
        view = self._worlds_view()
        interval = float(view.attrs["playback_speed"]) / float(view.attrs["output_fps"])
        table = self.episodes()
        if episode is not None:
            table = table[table["episode"] == episode]
        if isinstance(time, slice):
            times = times_in(time, view["sim_time"].values, interval)
        else:
            times = np.atleast_1d(np.asarray(time, np.float64))
        frames = frames_at(view, table, times, 0.5 * interval + 1e-9)
        if len(frames) and (frames == frames[0]).all() and (frames >= 0).all():
            return view.isel(frame=frames[0])
        variable = type(view["sim_time"].variable)
        picked = view.drop_vars("time").isel(
            world=variable("world", np.arange(len(frames))),
            frame=variable(("world", "frame"), np.maximum(frames, 0)),
        )
        missing = variable(("world", "frame"), frames < 0)
        if missing.values.any():
            picked = picked.where(picked["sim_time"].copy(data=~missing.values))
            picked = picked.assign_coords(sim_time=picked["sim_time"].where(~missing))
        return picked

    def joint(self, name: str) -> xr.DataArray:
        """The coordinates of a joint: its one, or all its components.

        Args:
            name: The joint's name.

        Raises:
            FieldNotFoundError: The dataset's model has no such joint.
        """
        qpos = self._view["qpos"]
        labels = [str(label) for label in self._view["nq"].values] if "nq" in self._view.coords else []
        if name in labels:
            return qpos.isel(nq=labels.index(name))
        places = [i for i, label in enumerate(labels) if label.rpartition("/")[0] == name]
        if not places:
            joints = dict.fromkeys(_joint_of(label) for label in labels)
            raise FieldNotFoundError(f"No joint {name!r}; there are {', '.join(joints) or 'no names'}.")
        return qpos.isel(nq=places)

    def sample_windows(
        self,
        n: int,
        length: int,
        *,
        fields: str | Sequence[str] | None = None,
        rng: np.random.Generator | int | None = None,
        stride: int = 1,
    ) -> NDArray[Any] | dict[str, NDArray[Any]]:
        """Draw random windows, uniformly over all valid starts, never across a reset.

        Args:
            n: Number of windows.
            length: Frames of a window.
            fields: A variable's name, or several; None means qpos.
            rng: Generator or seed.
            stride: Distance between a window's frames.

        Returns:
            `(n, length, …)` array; for several fields a dict of such.

        Raises:
            FieldNotFoundError: The view has no such variable.
            InvalidArgumentError: No episode is as long as a window.
        """
        windows = self.windows(length, fields=fields, stride=stride)
        sampled = windows.sample(n, np.random.default_rng(rng))
        return sampled if fields is not None and not isinstance(fields, str) else next(iter(sampled.values()))

    def windows(self, length: int, *, fields: str | Sequence[str] | None = None, stride: int = 1) -> Windows:
        """All windows of the view, to sample or to go through epoch by epoch; see `Windows`."""
        view = self._worlds_view()
        handle = self._handle()
        rows = chunk_rows(view, handle.engine, handle.description)
        return Windows(view, episode_table(view), length, stride, field_names(view, fields), rows)

    def kinematics(self, *names: str, mj_model: mujoco.MjModel | None = None) -> xr.Dataset:
        """Fields that MuJoCo computes from positions, computed when they are read, on all cores.

        Args:
            *names: `xpos`, `xquat`, `site_xpos`, …; see `flytraj.kinematics.KINEMATIC_FIELDS`.
            mj_model: The model; None takes the embedded one.

        Returns:
            The fields with dims (world, frame, …) and the names of bodies, sites, … as coordinates.

        Raises:
            FieldNotFoundError: A field does not follow from positions.
            ModelMismatchError: The model is not the dataset's.
        """
        from flytraj.dataset import computed_variable

        view = self._worlds_view()
        model = self.model() if mj_model is None else mj_model
        self.check_model(model)
        result = view.drop_vars(list(view.data_vars))
        for name in names:
            wanted = field(model, name)
            read = partial(_compute_box, view[[n for n in STATE if n in view]], model, name)
            shape = (view.sizes["world"], view.sizes["frame"], *wanted.shape)
            dims = ("world", "frame", *wanted.dims)
            result = result.assign({name: computed_variable(dims, shape, wanted.dtype, read)})
            for dim, size in zip(wanted.dims, wanted.shape, strict=True):
                labels = dim_labels(model, dim, size)
                if labels is not None:
                    result = result.assign_coords({dim: np.array(labels, dtype=object)})
        return result

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
        layout = self._layout()
        if layout is None:
            for clip in self.clips()[:1]:
                check_sizes(mj_model, clip)
            return
        check_fingerprint(layout, mj_model, what=str(self._handle().engine))

    def plot(
        self,
        *names: str,
        x: str = "time",
        spread: bool | None = None,
        axes: Axes | Sequence[Axes] | None = None,
        label: str | None = None,
    ) -> list[Axes]:
        """Plot coordinates on matplotlib (extra `plot`): over time, or one against another.

        Lines end where a world was reset, and dotted lines show when; many worlds become their median with
        bands of 25 to 75 % and 5 to 95 %. A phase plot of many worlds shows how often they were where.

        Args:
            *names: A panel each: a joint or its component (`"neck"`, `"root/z"`), a variable (`"reward"`), or
                a variable's component (`"qvel[neck]"`, `"xpos[thorax, z]"`).
            x: "time" (the recording's clock), "sim_time" (each world's own), or a coordinate, for a phase plot.
            spread: Median and bands rather than a line a world; None decides so for more than 8 worlds.
            axes: Axes to draw into, one for each panel; None makes a figure.
            label: What the legend calls these worlds, which then have one colour.

        Returns:
            The panels; `panels[0].figure` is the figure. Nothing is shown.

        Raises:
            FieldNotFoundError: There is no such coordinate.
            InvalidArgumentError: None is named, or too many.
            MissingDependencyError: matplotlib is not installed.
        """
        from flytraj.plotting import plot_view

        return plot_view(
            self._worlds_view(), self._layout(), names, x=x, spread=spread, axes=axes, label=label
        )

    def render(
        self, cameras: Any = None, output_path: str | PathLike[str] | None = None, **options: Any
    ) -> Any:
        """Render the view with its embedded model; a notebook shows the videos.

        Args:
            cameras: Cameras to render; None takes the model's first, or a free camera.
            output_path: Output file or folder; None makes a temporary file.
            **options: See `flytraj.render_videos`.
        """
        from flytraj.rendering.notebook import render_view

        return render_view(self._view, cameras, output_path, **options)

    def view(self, mj_model: mujoco.MjModel | None = None, **options: Any) -> Page:
        """Show the worlds in 3D on a page in the browser; see `flytraj.viewing.open_page`."""
        from flytraj.viewing import open_page

        return open_page(self._worlds_view(), self._layout(), mj_model or self.model(), **options)

    def to_npz(self, directory: str | PathLike[str]) -> list[Path]:
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

    def _layout(self) -> dict[str, Any] | None:
        """The kinematic layout of the dataset's model, if it is known."""
        handle = self._handle()
        layout = read_blob(handle.engine, handle.description, "layout")
        return None if layout is None else json.loads(layout.tobytes())

    def _worlds_view(self) -> xr.Dataset:
        view = self._view
        for name in ("qpos", "sim_time", "world"):
            if name not in view.variables:
                raise InvalidArgumentError(f"The view has no {name!r}: keep it to get trajectories.")
        for dim, along in (("frame", COORDINATES), ("world", ("sim_time", "episode"))):
            if dim not in view.dims:
                own = [name for name in along if name in view.coords]
                view = view.reset_coords(own).expand_dims(dim).set_coords(own)
        return view.transpose("world", "frame", ...)

    def _position(self, world_id: int) -> int:
        ids = np.atleast_1d(self._view["world"].values)
        places = np.flatnonzero(ids == world_id)
        if not len(places):
            shown = ", ".join(map(str, ids[:8])) + (" …" if len(ids) > 8 else "")
            raise FieldNotFoundError(f"World {world_id} is not in the view ({shown}).")
        return int(places[0])


def _compute_box(
    state: xr.Dataset, mj_model: mujoco.MjModel, name: str, worlds: Any, frames: Any
) -> NDArray[Any]:
    """Compute a field for a box of worlds and frames, `(n_worlds, n_frames, …)`."""
    part = state.isel(world=worlds, frame=frames).load()
    flat = {k: v.values.reshape(-1, *v.shape[2:]) for k, v in part.data_vars.items()}
    values = compute(mj_model, name, flat["qpos"], flat.get("mocap_pos"), flat.get("mocap_quat"))
    return values.reshape(part.sizes["world"], part.sizes["frame"], *values.shape[1:])


def _joint_of(label: str) -> str:
    joint, _, component = label.rpartition("/")
    return joint if component in {"x", "y", "z", "qw", "qx", "qy", "qz"} and joint else label
