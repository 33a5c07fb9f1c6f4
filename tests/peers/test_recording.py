"""flytraj's recorder and flygym's on one simulation of the real fly."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import flygym
import mujoco
import numpy as np
import pytest

import flytraj as ft
from flytraj.errors import FormatError
from flytraj.flygym import RecordedTrajectory, TrajectoryRecorder, set_trajectory_recorder
from tests.peers.fly import CAMERA, MESHES, make_fly, same, walk

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("tethered", [False, True])
@pytest.mark.parametrize(
    ("playback_speed", "output_fps", "n_frames", "stored"), [(0.05, 25, 20, True), (0.1, 60, 24, False)]
)
def test_the_same_frames(
    tmp_path: Path, playback_speed: float, output_fps: int, n_frames: int, stored: bool, tethered: bool
) -> None:
    """A frame every 20 steps, in a store; and one every 16 2/3, in memory."""
    fly = make_fly(tethered=tethered)
    sim = flygym.Simulation(fly.world)
    rate = {"playback_speed": playback_speed, "output_fps": output_fps}
    theirs = flygym.TrajectoryRecorder(sim.mj_model, **rate)
    store = tmp_path / "run.zarr" if stored else None
    with set_trajectory_recorder(sim, store, sampling="interval", fields=("qvel",), **rate) as ours:
        assert sim.recorder is ours
        for _ in walk(sim, fly, 400):
            assert sim.record_as_needed() == theirs.record_as_needed(sim.mj_data)
        assert isinstance(ours, TrajectoryRecorder)
        assert ours.trajectory.n_frames == n_frames
        assert same(ours.trajectory, theirs.trajectory)
        assert same(ours.trajectories[0], theirs.trajectory)
    if store is not None:
        dataset = ft.open_dataset(store)
        assert same(dataset.traj.trajectory(), theirs.trajectory)
        assert dataset.qvel.shape == (1, n_frames, sim.mj_model.nv)


def test_the_plain_recorder_attached_by_hand() -> None:
    fly = make_fly()
    sim = flygym.Simulation(fly.world)
    theirs = flygym.TrajectoryRecorder(sim.mj_model)
    sim.recorder = ft.TrajectoryRecorder(sim.mj_model, sampling="interval")
    for _ in walk(sim, fly, 200):
        assert sim.record_as_needed() == theirs.record_as_needed(sim.mj_data)
    assert same(sim.recorder.trajectory, theirs.trajectory)


def test_a_trajectory_is_of_both_kinds() -> None:
    fly = make_fly()
    sim = flygym.Simulation(fly.world)
    recorder = set_trajectory_recorder(sim)
    sim.record_as_needed()
    assert isinstance(recorder, TrajectoryRecorder)
    trajectory = recorder.trajectory
    assert isinstance(trajectory, RecordedTrajectory)
    assert isinstance(trajectory, ft.RecordedTrajectory)
    assert isinstance(trajectory, flygym.RecordedTrajectory)
    assert trajectory != recorder.trajectory  # where flygym's own fails: it compares arrays as numbers
    assert len({trajectory, recorder.trajectory}) == 2


def test_the_store_has_the_world_with_its_meshes(tmp_path: Path) -> None:
    """To the last bit, also where the files of the meshes are gone; and the world is left as it was."""
    shutil.copytree(MESHES, tmp_path / "meshes")
    fly = make_fly(meshes=tmp_path / "meshes")
    sim = flygym.Simulation(fly.world, timestep=2e-4)
    with set_trajectory_recorder(sim, tmp_path / "run.zarr"):
        sim.record_as_needed()
    again, _ = fly.world.compile()
    shutil.rmtree(tmp_path / "meshes")
    dataset = ft.open_dataset(tmp_path / "run.zarr")
    model = dataset.traj.model()
    names = [name for name in dir(model) if isinstance(getattr(model, name), np.ndarray) and name[0] != "_"]
    assert len(names) > 300
    for name in names:
        assert np.array_equal(getattr(again, name), getattr(sim.mj_model, name)), name
        if "path" not in name:  # of the files of the meshes
            assert np.array_equal(getattr(model, name), getattr(sim.mj_model, name)), name
    assert model.opt.timestep == 2e-4
    assert model.nmesh > 60
    assert mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, CAMERA) >= 0


def test_the_model_can_be_declined(tmp_path: Path) -> None:
    sim = flygym.Simulation(make_fly().world)
    with set_trajectory_recorder(sim, tmp_path / "run.zarr", embed_model=False):
        sim.record_as_needed()
    with pytest.raises(FormatError, match="holds no model"):
        ft.open_dataset(tmp_path / "run.zarr").traj.model()


def test_reset_keeps_earlier_trials_in_a_store(tmp_path: Path) -> None:
    """As flygym has it, the trajectory begins anew; the earlier frames are episodes, not gone."""
    fly = make_fly()
    sim = flygym.Simulation(fly.world)
    theirs = flygym.TrajectoryRecorder(sim.mj_model)
    trials = []
    with set_trajectory_recorder(sim, tmp_path / "run.zarr", sampling="interval") as ours:
        for n_steps in (200, 350):
            sim.reset()
            theirs.reset()
            for _ in walk(sim, fly, n_steps):
                assert sim.record_as_needed() == theirs.record_as_needed(sim.mj_data)
            assert isinstance(ours, TrajectoryRecorder)
            assert same(ours.trajectory, theirs.trajectory)
            trials.append(ours.trajectory)
    dataset = ft.open_dataset(tmp_path / "run.zarr")
    assert theirs.trajectory.n_frames == 5
    assert dataset.sizes["frame"] == 3 + 5
    assert dataset.episode.values.tolist() == [[0] * 3 + [1] * 5]
    assert np.array_equal(dataset.qpos.values[0], np.concatenate([trial.qpos for trial in trials]))
    assert np.array_equal(dataset.sim_time.values[0], np.concatenate([trial.time for trial in trials]))


def test_difference_a_reset_that_the_recorder_is_not_told_of() -> None:
    """flygym records nothing until time has caught up; here the frame is due at once, in a new episode."""
    fly = make_fly()
    sim = flygym.Simulation(fly.world)
    theirs = flygym.TrajectoryRecorder(sim.mj_model)
    ours = set_trajectory_recorder(sim)
    for _ in walk(sim, fly, 200):
        theirs.record_as_needed(sim.mj_data)
        sim.record_as_needed()
    mujoco.mj_resetData(sim.mj_model, sim.mj_data)
    for _ in walk(sim, fly, 200):
        theirs.record_as_needed(sim.mj_data)
        sim.record_as_needed()
    assert isinstance(ours, TrajectoryRecorder)
    np.testing.assert_allclose(theirs.trajectory.time, [0.0001, 0.0081, 0.0161], atol=1e-9)
    np.testing.assert_allclose(
        ours.trajectory.time, [0.0001, 0.0081, 0.0161, 0.0001, 0.0081, 0.0161], atol=1e-9
    )


def test_difference_the_grid_keeps_the_frame_rate() -> None:
    """10 s at 60 fps: 600 frames; flygym's clock counts from the last frame, and 2 ms steps make 625 of them."""
    sim = flygym.Simulation(make_fly().world, timestep=0.002)
    rate: dict[str, Any] = {"playback_speed": 1.0, "output_fps": 60}
    theirs = flygym.TrajectoryRecorder(sim.mj_model, **rate)
    parity = ft.TrajectoryRecorder(sim.mj_model, sampling="interval", **rate)
    ours = set_trajectory_recorder(sim, **rate)
    for i in range(5000):
        sim.mj_data.time = i * 0.002
        assert theirs.record_as_needed(sim.mj_data) == parity.record_as_needed(sim.mj_data)
        sim.record_as_needed()
    assert isinstance(ours, TrajectoryRecorder)
    assert theirs.trajectory.n_frames == parity.trajectory.n_frames == 625
    assert ours.trajectory.n_frames == 600
    assert np.abs(ours.trajectory.time - np.arange(600) / 60).max() <= 0.001 + 1e-12
