"""One world of a view, read a stretch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flytraj.trajectory import RecordedTrajectory

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["STATE", "ViewClip"]

STATE = ("qpos", "mocap_pos", "mocap_quat")


class ViewClip:
    """One world of a view, read a stretch at a time; see `flytraj.trajectory.Clip`."""

    def __init__(self, view: xr.Dataset, world: int) -> None:
        state = ["sim_time", *(name for name in ("episode", *STATE) if name in view)]
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
        return int(self._frames["qpos"].shape[-1]) if "qpos" in self._frames else 0

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

    def episodes(self, start: int, stop: int) -> NDArray[Any]:
        """`(stop - start,)` which of the world's runs each of these frames belongs to; 0 if the view can't say."""
        if "episode" not in self._frames:
            return np.zeros(stop - start, np.int32)
        return np.asarray(self._frames["episode"].isel(frame=slice(start, stop)).values)
