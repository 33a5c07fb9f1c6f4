"""What every renderer shares: the trajectories as clips, the cameras, and the state of a frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError, InvalidArgumentError
from flytraj.trajectory import Clip, RecordedTrajectory, as_trajectory, check_sizes

__all__ = [
    "Camera",
    "FreeCamera",
    "as_clips",
    "resolve_camera_ids",
    "resolve_cameras",
    "set_frame",
    "update_render_geometry",
]


@dataclass(frozen=True)
class FreeCamera:
    """A camera that the model need not have, as in MuJoCo's viewer.

    Attributes:
        lookat: Point it looks at, in world coordinates; with `track`, relative to the position of the body.
            None takes the centre of the model, with `track` the body itself.
        distance: Distance from that point. None fits the model.
        azimuth: Degrees about the vertical axis; 90 looks along y. None takes the model's.
        elevation: Degrees; negative looks down. None takes the model's.
        track: Name of a body that the camera follows without turning, or None.
        name: What the camera is called in results and file names.
    """

    lookat: tuple[float, float, float] | None = None
    distance: float | None = None
    azimuth: float | None = None
    elevation: float | None = None
    track: str | None = None
    name: str = "free"

    def complete(self, mj_model: mujoco.MjModel) -> FreeCamera:
        """This camera with what is None taken from the model.

        Raises:
            FieldNotFoundError: There is no body named `track`.
        """
        default = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(mj_model, default)
        if self.track is not None:
            body_id(mj_model, self.track)
        lookat = self.lookat
        if lookat is None:
            lookat = (0.0, 0.0, 0.0) if self.track is not None else tuple(default.lookat)
        return replace(
            self,
            lookat=lookat,
            distance=default.distance if self.distance is None else self.distance,
            azimuth=default.azimuth if self.azimuth is None else self.azimuth,
            elevation=default.elevation if self.elevation is None else self.elevation,
        )

    def place(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Position relative to the tracked body (or the world), and axes as the columns of a matrix.

        Only for a camera from `complete`.
        """
        assert self.lookat is not None
        assert self.distance is not None
        assert self.azimuth is not None
        assert self.elevation is not None
        azimuth, elevation = math.radians(self.azimuth), math.radians(self.elevation)
        sin_a, cos_a = math.sin(azimuth), math.cos(azimuth)
        sin_e, cos_e = math.sin(elevation), math.cos(elevation)
        forward = np.array([cos_e * cos_a, cos_e * sin_a, sin_e])
        right = np.array([sin_a, -cos_a, 0.0])
        axes = np.stack([right, np.cross(right, forward), -forward], axis=1)
        return np.asarray(self.lookat) - self.distance * forward, axes


Camera: TypeAlias = str | int | FreeCamera | mujoco.MjsCamera
"""A camera's name, its number in the model, its element in an MjSpec, or a camera of one's own."""


def resolve_cameras(
    mj_model: mujoco.MjModel, cameras: Camera | Iterable[Camera]
) -> dict[str, int | FreeCamera]:
    """Names of cameras, each with its number in the model or as a complete `FreeCamera`.

    Args:
        mj_model: Compiled model.
        cameras: One camera or several.

    Raises:
        InvalidArgumentError: No camera, a camera that the model lacks, or two of one name.
    """
    if isinstance(cameras, (str, int, FreeCamera, mujoco.MjsCamera)):
        cameras = [cameras]
    resolved: dict[str, int | FreeCamera] = {}
    for camera in cameras:
        name, found = _resolve_camera(mj_model, camera)
        if name in resolved and resolved[name] != found:
            raise InvalidArgumentError(f"Two different cameras are named {name!r}: give one another name.")
        resolved[name] = found
    if not resolved:
        raise InvalidArgumentError(
            "At least one camera is needed, none was given. A model without cameras can be seen through a "
            "FreeCamera()."
        )
    return resolved


def resolve_camera_ids(mj_model: mujoco.MjModel, cameras: Camera | Iterable[Camera]) -> dict[str, int]:
    """Names of cameras, each with its number in the model.

    Args:
        mj_model: Compiled model.
        cameras: One camera or several: names, numbers, or elements of an MjSpec. A `FreeCamera` has MuJoCo's
            number for it, -1.

    Returns:
        `{name: number}`, in the order given.

    Raises:
        InvalidArgumentError: No camera, or a camera that the model lacks.
    """
    resolved = resolve_cameras(mj_model, cameras)
    return {name: -1 if isinstance(camera, FreeCamera) else camera for name, camera in resolved.items()}


def as_clips(mj_model: mujoco.MjModel, trajectories: Any) -> list[Clip]:
    """Trajectories of any kind as clips that fit the model.

    Args:
        mj_model: Compiled model.
        trajectories: A RecordedTrajectory, another clip, a list of them, or a view of a dataset.

    Raises:
        InvalidArgumentError: There are no trajectories, or something else was given.
        ModelMismatchError: They were recorded with another model.
    """
    if hasattr(trajectories, "traj"):
        trajectories.traj.check_model(mj_model)
        clips = [_as_clip(mj_model, clip) for clip in trajectories.traj.clips()]
    elif hasattr(trajectories, "n_frames"):
        clips = [_as_clip(mj_model, trajectories)]
    elif isinstance(trajectories, Iterable) and not isinstance(trajectories, (str, bytes, Mapping)):
        clips = [_as_clip(mj_model, item) for item in trajectories]
    else:
        raise InvalidArgumentError(
            "A RecordedTrajectory, a list of them or a view of a dataset was expected, found "
            f"{type(trajectories).__name__}."
        )
    if not clips:
        raise InvalidArgumentError("No trajectories given: at least one is needed.")
    return clips


def update_render_geometry(mj_model: mujoco.MjModel, mj_data: mujoco.MjData) -> None:
    """Recompute what a picture shows from `qpos` and the mocap poses.

    These are the stages of `mj_forward` that place bodies, geoms, cameras, lights, tendons and flexes;
    contacts, velocities and forces are left out. After `mj_step` these derived fields still belong to the
    state before the step: a renderer copies `qpos` and the mocap poses to an MjData of its own and calls this
    on it.

    Args:
        mj_model: Compiled model.
        mj_data: Its data, changed in place.
    """
    mujoco.mj_kinematics(mj_model, mj_data)
    mujoco.mj_comPos(mj_model, mj_data)
    mujoco.mj_camlight(mj_model, mj_data)
    if mj_model.nflex:
        mujoco.mj_flex(mj_model, mj_data)
    mujoco.mj_tendon(mj_model, mj_data)


def set_frame(
    mj_model: mujoco.MjModel, mj_data: mujoco.MjData, states: RecordedTrajectory, frame: int
) -> None:
    """Put one recorded frame into an MjData and recompute what a picture shows."""
    mj_data.time = states.time[frame]
    mj_data.qpos[:] = states.qpos[frame]
    if states.mocap_pos is not None and states.mocap_quat is not None:
        mj_data.mocap_pos[:] = states.mocap_pos[frame]
        mj_data.mocap_quat[:] = states.mocap_quat[frame]
    update_render_geometry(mj_model, mj_data)


def body_id(mj_model: mujoco.MjModel, name: str) -> int:
    """Number of a body.

    Raises:
        FieldNotFoundError: There is no such body.
    """
    found: int = mujoco.mj_name2id(mj_model, mujoco.mjtObj.mjOBJ_BODY, name)
    if found == -1:
        raise FieldNotFoundError(f"No body {name!r} to track in the model. {_names(mj_model, 'body')}")
    return found


def _resolve_camera(mj_model: mujoco.MjModel, camera: Camera) -> tuple[str, int | FreeCamera]:
    if isinstance(camera, FreeCamera):
        return camera.name, camera.complete(mj_model)
    if isinstance(camera, int):
        if not 0 <= camera < mj_model.ncam:
            raise InvalidArgumentError(
                f"Camera {camera} not found in the model. {_names(mj_model, 'camera')}"
            )
        return mj_model.camera(camera).name or f"camera{camera}", camera
    if not isinstance(camera, (str, mujoco.MjsCamera)):
        raise InvalidArgumentError(
            f"A camera is a name, a number, an MjsCamera or a FreeCamera, found {type(camera).__name__}."
        )
    name = camera if isinstance(camera, str) else camera.name
    found = mujoco.mj_name2id(mj_model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if found == -1:
        raise InvalidArgumentError(
            f"Camera {name!r} not found in the model. {_names(mj_model, 'camera')} FreeCamera() works with "
            "any model."
        )
    return name, found


def _names(mj_model: mujoco.MjModel, kind: str) -> str:
    count = {"camera": mj_model.ncam, "body": mj_model.nbody}[kind]
    names = [getattr(mj_model, kind)(i).name or f"number {i}" for i in range(min(count, 12))]
    return f"It has: {', '.join(names) or 'none'}{', …' if count > 12 else ''}."


def _as_clip(mj_model: mujoco.MjModel, item: Any) -> Clip:
    if hasattr(item, "read") and hasattr(item, "n_frames"):
        clip: Clip = item
    else:
        clip = as_trajectory(item)
    check_sizes(mj_model, clip)
    return clip
