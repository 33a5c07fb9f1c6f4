"""Pixels: what flygym draws of a trajectory, live or later, is what flytraj draws."""

from __future__ import annotations

import os
from typing import Any

import flygym
import mujoco
import numpy as np
import pytest
from flygym.recording import as_trajectory_list, check_trajectories_match_model, resolve_camera_ids
from flygym.warp import render_trajectories_gpu
from flygym.warp.rendering import modify_world_for_batch_rendering

import flytraj as ft
from flytraj import warp as ftw
from flytraj.flygym import TrajectoryRecorder, set_trajectory_recorder
from tests.peers.fly import ABOVE, CAMERA, NEW_DATA_ON_WARP, make_fly, recorded, walk
from tests.rendering_parts import CHOICE

pytestmark = pytest.mark.peers

RES = (48, 64)
opengl = pytest.mark.skipif(
    CHOICE.backend != "opengl" or not os.environ.get("MUJOCO_GL"),
    reason="flygym draws with OpenGL only, without a screen by MUJOCO_GL=egl",
)


def equal(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    """Whether frames are equal pixel for pixel, and not all of one colour."""
    assert [list(frames) for frames in ours] == [list(frames) for frames in theirs]
    pairs = [(a[name], b[name]) for a, b in zip(ours, theirs, strict=True) for name in a]
    return all(a.dtype == b.dtype and a.std() > 5 and np.array_equal(a, b) for a, b in pairs)


@opengl
@pytest.mark.parametrize("tethered", [False, True])
def test_opengl_frames_are_equal(tethered: bool) -> None:
    mj_model, trajectory = recorded(tethered=tethered)
    cameras = [CAMERA, ABOVE]
    theirs = flygym.render_trajectories(mj_model, trajectory, cameras, camera_res=RES)
    ours = ft.render_trajectories(mj_model, trajectory, cameras, camera_res=RES, backend="opengl")
    assert equal(ours, theirs)
    assert not np.array_equal(ours[0][CAMERA][0], ours[0][CAMERA][-1])


@opengl
def test_opengl_frames_with_a_scene_option_are_equal() -> None:
    mj_model, trajectory = recorded()
    option = mujoco.MjvOption()
    option.flags[mujoco.mjtVisFlag.mjVIS_TRANSPARENT] = True
    option.geomgroup[0] = 0
    wanted: dict[str, Any] = {"camera_res": RES, "scene_option": option}
    theirs = flygym.render_trajectories(mj_model, trajectory, CAMERA, **wanted)
    ours = ft.render_trajectories(mj_model, trajectory, CAMERA, backend="opengl", **wanted)
    assert np.array_equal(ours[0][CAMERA], theirs[0][CAMERA])
    plain = ft.render_trajectories(mj_model, trajectory, CAMERA, camera_res=RES, backend="opengl")
    assert not np.array_equal(ours[0][CAMERA], plain[0][CAMERA])


@opengl
def test_frames_of_a_recording_are_the_live_frames() -> None:
    """flygym's renderer draws while flytraj's recorder records."""
    fly = make_fly(tethered=True)
    sim = flygym.Simulation(fly.world)
    live = sim.set_renderer(CAMERA, camera_res=RES, playback_speed=0.05)
    recorder = set_trajectory_recorder(sim, playback_speed=0.05)
    for _ in walk(sim, fly, 100):
        assert sim.render_as_needed() == sim.record_as_needed()
    live.close()
    assert isinstance(recorder, TrajectoryRecorder)
    replayed = ft.render_trajectories(
        sim.mj_model, recorder.trajectory, CAMERA, camera_res=RES, backend="opengl"
    )
    assert equal(replayed, [{CAMERA: np.array(live.frames[CAMERA])}])


@opengl
def test_each_renders_the_trajectories_of_the_other() -> None:
    """Alone and in a list; one of flytraj's own class goes to flygym in a list only."""
    mj_model, theirs = recorded()
    sim = flygym.Simulation(make_fly().world)
    recorder = set_trajectory_recorder(sim)
    sim.record_as_needed()
    assert isinstance(recorder, TrajectoryRecorder)
    of_both_kinds = recorder.trajectory
    plain = of_both_kinds.read(0, 1)
    first = flygym.render_trajectories(mj_model, of_both_kinds, CAMERA, camera_res=RES)
    assert equal(flygym.render_trajectories(mj_model, [plain], CAMERA, camera_res=RES), first)
    for trajectories in (of_both_kinds, plain, [plain]):
        frames = ft.render_trajectories(mj_model, trajectories, CAMERA, camera_res=RES, backend="opengl")
        assert equal(frames, first)
    both = ft.render_trajectories(mj_model, [theirs, plain], CAMERA, camera_res=RES, backend="opengl")
    assert equal(both, flygym.render_trajectories(mj_model, [theirs, plain], CAMERA, camera_res=RES))


def test_the_small_functions_take_the_trajectories_of_the_other() -> None:
    mj_model, theirs = recorded(tethered=True)
    (ours,) = ft.as_trajectory_list(theirs)
    assert isinstance(ours, ft.RecordedTrajectory)
    assert ours.mocap_pos is theirs.mocap_pos
    assert as_trajectory_list([ours]) == [ours]
    check_trajectories_match_model(mj_model, [ours])
    ft.check_trajectories_match_model(mj_model, [theirs])
    walking = recorded().mj_model
    for check in (check_trajectories_match_model, ft.check_trajectories_match_model):
        with pytest.raises(ValueError, match="nq=42"):
            check(walking, [ours])
        with pytest.raises(ValueError, match="nq=42"):
            check(walking, [theirs])
    cameras = [CAMERA, ABOVE]
    assert ft.resolve_camera_ids(mj_model, cameras) == resolve_camera_ids(mj_model, cameras)


@NEW_DATA_ON_WARP
@pytest.mark.parametrize("tethered", [False, True])
def test_frames_of_the_ray_tracer_are_equal(tethered: bool) -> None:
    """On Warp's CPU device. Where nothing is in sight flytraj draws the sky, as OpenGL does; flygym has it black."""
    fly = make_fly(tethered=tethered)
    modify_world_for_batch_rendering(fly.world)
    fly.world.mjcf_root.option.noslip_iterations = 0
    mj_model, _ = fly.world.compile()
    trajectory = recorded(tethered=tethered).trajectory
    wanted: dict[str, Any] = {"camera_res": RES, "worlds_per_batch": 4}
    theirs = render_trajectories_gpu(mj_model, [trajectory], [CAMERA, ABOVE], **wanted)
    ours = ftw.render_trajectories_gpu(mj_model, [trajectory], [CAMERA, ABOVE], device="cpu", **wanted)
    objects = ft.render_trajectories(
        mj_model,
        trajectory,
        [CAMERA, ABOVE],
        camera_res=RES,
        mode="segmentation",
        backend="warp",
        device="cpu",
    )
    for camera in (CAMERA, ABOVE):
        sky = objects[0][camera][..., 0] == -1
        assert sky.any() == tethered
        assert (~sky).mean() > 0.1
        assert np.array_equal(ours[0][camera][~sky], theirs[0][camera][~sky])
        assert theirs[0][camera][~sky].std() > 5
        assert (ours[0][camera][sky] == 255).all()
        assert (theirs[0][camera][sky] == 0).all()


@opengl
def test_difference_the_callers_scene_option_stays() -> None:
    """flygym's renderer sets the caller's MjvOption to the defaults, and so draws what was to be hidden."""
    mj_model, trajectory = recorded()
    option = mujoco.MjvOption()
    option.geomgroup[:] = 0
    ours = ft.render_trajectories(
        mj_model, trajectory, CAMERA, camera_res=RES, scene_option=option, backend="opengl"
    )[0][CAMERA]
    assert (option.geomgroup == 0).all()
    assert (ours == 255).all()
    data = mujoco.MjData(mj_model)
    data.qpos[:] = trajectory.qpos[0]
    with flygym.Renderer(mj_model, CAMERA, camera_res=RES, scene_option=option) as renderer:
        renderer.render_as_needed(data)
    assert option.geomgroup[:3].all()
    assert renderer.frames[CAMERA][0].std() > 5
