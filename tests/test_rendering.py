"""Rendering on OpenGL: the pixels, the cameras, the paths."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from flytraj.rendering import (
    choose_backend,
    render_trajectories,
)
from flytraj.testing import tiny_model
from flytraj.trajectory import RecordedTrajectory

RES = (48, 64)
CAMERAS = ["fixed", "tracking"]

opengl = pytest.mark.skipif(choose_backend().backend != "opengl", reason="no OpenGL driver")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return tiny_model().compile()


def record(model: mujoco.MjModel, n_frames: int, world_id: int = 0, fps: float = 25) -> RecordedTrajectory:
    """A fall with the mocap body going round, on a seed of its own for each world."""
    data = mujoco.MjData(model)
    data.qvel[:] = np.random.default_rng(world_id).normal(size=model.nv)
    rows: list[tuple[Any, ...]] = []
    for _ in range(n_frames):
        mujoco.mj_step(model, data, 10)
        if model.nmocap:
            data.mocap_pos[0] = [0.6 * np.cos(data.time * 3), 0.6 * np.sin(data.time * 3), 0.5]
            data.mocap_quat[0] = [np.cos(data.time), 0, 0, np.sin(data.time)]
        rows.append((data.time, data.qpos.copy(), data.mocap_pos.copy(), data.mocap_quat.copy()))
    time, qpos, mocap_pos, mocap_quat = (np.array(column) for column in zip(*rows))
    mocap = (mocap_pos, mocap_quat) if model.nmocap else (None, None)
    return RecordedTrajectory(time, qpos, fps, 0.2, world_id, *mocap)


def render_live(
    model: mujoco.MjModel,
    trajectory: RecordedTrajectory,
    camera: str | mujoco.MjvCamera,
    option: mujoco.MjvOption | None = None,
    mode: str = "rgb",
) -> NDArray[Any]:
    """The same states through MuJoCo's own renderer, as a simulation would show them."""
    mujoco_egl = pytest.importorskip("mujoco.egl")
    gl = mujoco_egl.GLContext(RES[1], RES[0])
    gl.make_current()
    scene, context = mujoco.MjvScene(model, 10_000), mujoco.MjrContext(model, 150)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
    rect = mujoco.MjrRect(0, 0, RES[1], RES[0])
    data = mujoco.MjData(model)
    frames = []
    for i in range(trajectory.n_frames):
        data.qpos[:] = trajectory.qpos[i]
        if trajectory.mocap_pos is not None and trajectory.mocap_quat is not None:
            data.mocap_pos[:], data.mocap_quat[:] = trajectory.mocap_pos[i], trajectory.mocap_quat[i]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        if isinstance(camera, str):
            seen = mujoco.MjvCamera()
            seen.type, seen.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(camera).id
        else:
            seen = camera
        mujoco.mjv_updateScene(model, data, option or mujoco.MjvOption(), None, seen, 7, scene)
        mujoco.mjr_render(rect, scene, context)
        pixels = np.empty((*RES, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, rect, context)
        frames.append(pixels[::-1].copy())
    context.free()
    gl.free()
    return np.array(frames)


@opengl
def test_replayed_pixels_are_live_pixels(model: mujoco.MjModel) -> None:
    trajectories = [record(model, 9, world_id=3), record(model, 14, world_id=8)]
    frames = render_trajectories(model, trajectories, CAMERAS, camera_res=RES, backend="opengl")
    assert [list(by_camera) for by_camera in frames] == [CAMERAS, CAMERAS]
    for trajectory, by_camera in zip(trajectories, frames):
        for camera in CAMERAS:
            assert by_camera[camera].dtype == np.uint8
            np.testing.assert_array_equal(by_camera[camera], render_live(model, trajectory, camera))
    assert (frames[0]["fixed"][0] != frames[0]["fixed"][-1]).any()
    assert (frames[0]["fixed"][0] != frames[0]["tracking"][0]).any()


@opengl
def test_scene_option_is_heeded_and_not_changed(model: mujoco.MjModel) -> None:
    spec = tiny_model()
    spec.geom("torso").group = 1
    model = spec.compile()
    option = mujoco.MjvOption()
    option.geomgroup[1] = 0
    option.flags[mujoco.mjtVisFlag.mjVIS_TRANSPARENT] = True
    before = (option.geomgroup.copy(), option.flags.copy(), option.frame)
    trajectory = record(model, 2)
    shown = render_trajectories(model, trajectory, "fixed", camera_res=RES)[0]["fixed"]
    hidden = render_trajectories(model, trajectory, "fixed", camera_res=RES, scene_option=option)[0]["fixed"]
    assert (shown != hidden).any()
    np.testing.assert_array_equal(hidden, render_live(model, trajectory, "fixed", option))
    for old, new in zip(before, (option.geomgroup, option.flags, option.frame)):
        np.testing.assert_array_equal(old, new)
