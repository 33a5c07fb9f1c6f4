"""Recording and rendering on MuJoCo Warp: on CUDA where there is a card, else on the CPU."""

import importlib
from typing import TYPE_CHECKING, Any

from flytraj.errors import MissingDependencyError

if TYPE_CHECKING:
    from flytraj.rendering.warp import prepare_for_batch_rendering as prepare_for_batch_rendering
    from flytraj.rendering.warp import render_trajectories_gpu as render_trajectories_gpu
    from flytraj.rendering.warp import update_render_geometry_gpu as update_render_geometry_gpu
    from flytraj.warp.recorder import WarpTrajectoryRecorder as WarpTrajectoryRecorder

_HOMES = {
    "WarpTrajectoryRecorder": "flytraj.warp.recorder",
    "prepare_for_batch_rendering": "flytraj.rendering.warp",
    "render_trajectories_gpu": "flytraj.rendering.warp",
    "update_render_geometry_gpu": "flytraj.rendering.warp",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flytraj.warp' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("warp", "mujoco_warp"):
            raise
        raise MissingDependencyError(
            f"flytraj.warp.{name} needs {error.name}, which is not installed: pip install mujoco-warp warp-lang"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
