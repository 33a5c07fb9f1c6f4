"""flytraj: a columnar dataset store for trajectories of thousands of parallel MuJoCo worlds.

Recorders stream the state of all worlds, as they are simulated, into chunked Zarr arrays; xarray gives lazy
views of any worlds and any stretch of time; CPU and GPU renderers turn a view into videos.

`flytraj.warp` has what runs on MuJoCo Warp. What a view can do beyond xarray, `ds.traj`, is in
`flytraj.view.TrajAccessor`; what all recorders can be told, in `flytraj.recording.options.Options`; errors are in
`flytraj.errors`. Also: `flytraj.windows`, `flytraj.kinematics`, `flytraj.testing`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from flytraj import errors as errors

if TYPE_CHECKING:
    from flytraj.arrays import write_dataset as write_dataset
    from flytraj.clock import FrameClock as FrameClock
    from flytraj.dataset import open_dataset as open_dataset
    from flytraj.npz import export_npz as export_npz
    from flytraj.npz import import_npz as import_npz
    from flytraj.recording import BatchTrajectoryRecorder as BatchTrajectoryRecorder
    from flytraj.recording import TrajectoryRecorder as TrajectoryRecorder
    from flytraj.rendering import FreeCamera as FreeCamera
    from flytraj.rendering import contact_sheet as contact_sheet
    from flytraj.rendering import iter_frames as iter_frames
    from flytraj.rendering import render_trajectories as render_trajectories
    from flytraj.rendering import render_videos as render_videos
    from flytraj.rendering import resolve_camera_ids as resolve_camera_ids
    from flytraj.rendering import save_trajectory_videos as save_trajectory_videos
    from flytraj.rendering import update_render_geometry as update_render_geometry
    from flytraj.store.repack import repack as repack
    from flytraj.store.repair import repair as repair
    from flytraj.store.validate import validate as validate
    from flytraj.trajectory import RecordedTrajectory as RecordedTrajectory
    from flytraj.trajectory import as_trajectory_list as as_trajectory_list
    from flytraj.trajectory import check_trajectories_match_model as check_trajectories_match_model

__version__ = "0.1.0"

# Looked up on first use, so that a simulation that only records loads no renderer, and a notebook that only
# reads no recorder.
_HOMES = {
    "BatchTrajectoryRecorder": "recording",
    "FrameClock": "clock",
    "FreeCamera": "rendering",
    "RecordedTrajectory": "trajectory",
    "TrajectoryRecorder": "recording",
    "as_trajectory_list": "trajectory",
    "check_trajectories_match_model": "trajectory",
    "contact_sheet": "rendering",
    "export_npz": "npz",
    "import_npz": "npz",
    "iter_frames": "rendering",
    "open_dataset": "dataset",
    "render_trajectories": "rendering",
    "repack": "store.repack",
    "repair": "store.repair",
    "render_videos": "rendering",
    "resolve_camera_ids": "rendering",
    "save_trajectory_videos": "rendering",
    "update_render_geometry": "rendering",
    "validate": "store.validate",
    "write_dataset": "arrays",
}

__all__ = ["errors", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flytraj' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"flytraj.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
