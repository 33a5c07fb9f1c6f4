"""flytraj's recorder and flygym's on one simulation of three flies on MuJoCo Warp, on its CPU device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp
from flygym.compose import ActuatorType
from flygym.recording import RecordedTrajectory
from flygym.warp import GPUSimulation
from flygym.warp import WarpTrajectoryRecorder as FlygymRecorder

import flytraj as ft
from flytraj import warp as ftw
from flytraj.flygym import set_trajectory_recorder
from tests.peers.fly import NEW_DATA_ON_WARP, Fly, make_fly, tether

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:MJWarp does not support noslip iterations"),
    NEW_DATA_ON_WARP,
]

N_WORLDS, WORLDS = 3, [2, 0]
RATE: dict[str, Any] = {"playback_speed": 0.02, "output_fps": 25}  # a frame every 8 steps
DT = 1e-4


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu() -> Any:
    with wp.ScopedDevice("cpu"):
        yield


@pytest.fixture(scope="module")
def fly() -> Fly:
    return make_fly()


@pytest.fixture(scope="module")
def shared(fly: Fly) -> Any:
    return GPUSimulation(fly.world, N_WORLDS, timestep=DT)


@pytest.fixture
def sim(shared: Any) -> Any:
    shared.recorder = None
    shared.reset()
    return shared


def step(sim: Any, fly: Fly, i: int) -> None:
    """One step of all worlds, each at a place of its own in the motion."""
    targets = fly.targets[i::1000][:N_WORLDS]
    sim.set_actuator_inputs(fly.name, ActuatorType.POSITION, targets.astype(np.float32))
    sim.step()
    if sim.mj_model.nmocap:
        poses = [tether(i + 100 * world) for world in range(N_WORLDS)]
        sim.mjw_data.mocap_pos.assign(np.array([[pose[0]] for pose in poses], np.float32))
        sim.mjw_data.mocap_quat.assign(np.array([[pose[1]] for pose in poses], np.float32))


def assert_same(ours: list[Any], theirs: list[Any], n_frames: int) -> None:
    """The same worlds, frames and values; time in steps, which flygym has as Warp's float32 sum of them."""
    assert [one.world_id for one in ours] == [one.world_id for one in theirs] == WORLDS
    for a, b in zip(ours, theirs, strict=True):
        assert a.n_frames == b.n_frames == n_frames
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None and y is None) or (x.dtype == y.dtype == np.float32 and np.array_equal(x, y))
        assert np.array_equal(a.time, np.arange(1, 8 * n_frames, 8) * DT)
        assert b.time.dtype == np.float32
        np.testing.assert_allclose(a.time, b.time, rtol=1e-5)
    assert not np.array_equal(ours[0].qpos, ours[1].qpos)


@pytest.mark.parametrize("tethered", [False, True])
def test_the_same_frames(tmp_path: Path, fly: Fly, shared: Any, tethered: bool) -> None:
    if tethered:
        fly = make_fly(tethered=True)
        sim = GPUSimulation(fly.world, N_WORLDS, timestep=DT)
    else:
        sim = shared
        sim.reset()
    theirs = FlygymRecorder(sim.mj_model, N_WORLDS, worlds=WORLDS, **RATE)
    with set_trajectory_recorder(
        sim, tmp_path / "run.zarr", worlds=WORLDS, sampling="interval", **RATE
    ) as ours:
        assert sim.recorder is ours
        assert isinstance(ours, ftw.WarpTrajectoryRecorder)
        for i in range(100):
            step(sim, fly, i)
            assert sim.record_as_needed() == theirs.record_as_needed(sim.mjw_data)
        trajectories = ours.trajectories
    assert_same(trajectories, theirs.trajectories, 13)
    assert all(isinstance(one, RecordedTrajectory) for one in trajectories)
    dataset = ft.open_dataset(tmp_path / "run.zarr")
    assert_same(dataset.traj.trajectories(), theirs.trajectories, 13)
    assert np.array_equal(dataset.traj.model().mesh_vert, sim.mj_model.mesh_vert)


def test_reset_keeps_earlier_trials_in_a_store(tmp_path: Path, fly: Fly, sim: Any) -> None:
    theirs = FlygymRecorder(sim.mj_model, N_WORLDS, worlds=WORLDS, **RATE)
    with set_trajectory_recorder(sim, tmp_path / "run.zarr", worlds=WORLDS, **RATE) as ours:
        for n_steps in (20, 40):
            sim.reset()
            theirs.reset()
            for i in range(n_steps):
                step(sim, fly, i)
                assert sim.record_as_needed() == theirs.record_as_needed(sim.mjw_data)
        assert isinstance(ours, ftw.WarpTrajectoryRecorder)
        assert_same(ours.trajectories, theirs.trajectories, 5)
    dataset = ft.open_dataset(tmp_path / "run.zarr")
    assert dataset.episode.values.tolist() == [[0] * 3 + [1] * 5] * 2
    assert np.array_equal(dataset.qpos.values[1, 3:], theirs.trajectories[1].qpos)


def test_difference_a_reset_of_world_0_disturbs_no_other(fly: Fly, sim: Any) -> None:
    """flygym goes by the time of world 0: when it is reset, no world records until it has caught up."""
    theirs = FlygymRecorder(sim.mj_model, N_WORLDS, worlds=WORLDS, **RATE)
    ours = set_trajectory_recorder(sim, worlds=WORLDS, **RATE)
    assert isinstance(ours, ftw.WarpTrajectoryRecorder)
    for i in range(40):
        if i == 20:
            mask = wp.array([True, False, False], dtype=bool)
            mjw.reset_data(sim.mjw_model, sim.mjw_data, mask)
        step(sim, fly, i)
        sim.record_as_needed()
        theirs.record_as_needed(sim.mjw_data)
    other, first = ours.trajectories
    steps = np.array([1, 9, 17, 25, 33])
    np.testing.assert_allclose(other.time, steps * DT, atol=1e-9)
    np.testing.assert_allclose(first.time, np.where(steps > 20, steps - 20, steps) * DT, atol=1e-9)
    assert [one.n_frames for one in theirs.trajectories] == [3, 3]
