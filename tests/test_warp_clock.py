"""The clock on the device: the CPU's rule, exact times, resets of some worlds and of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import warp as wp
import xarray as xr
from numpy.typing import NDArray

from flytraj.clock import FrameClock, RecordingClock
from flytraj.dataset import open_dataset
from flytraj.warp import WarpTrajectoryRecorder
from tests.warp_parts import KEY_TIMES, Counting, model_with_keys

N_WORLDS = 6


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return model_with_keys()


def random_resets(rng: np.random.Generator, counting: Counting) -> NDArray[np.bool_]:
    """Which worlds to reset: none, some, or all; only such whose time goes back by it."""
    old = counting.steps > 12
    kind = rng.integers(12)
    if kind == 0 and old.all():
        return old
    some: NDArray[np.bool_] = old & (rng.random(len(old)) < 0.3) & (kind == 1)
    return some


@pytest.mark.filterwarnings("ignore:playback_speed / output_fps asks:UserWarning")  # At 500, more than steps.
@pytest.mark.parametrize("sampling", ["grid", "interval"])
@pytest.mark.parametrize("fps", [25, 29.97, 60, 500])
@pytest.mark.parametrize("worlds", [[4, 0, 3], [5], None])
def test_it_is_the_rule_of_the_cpu(
    model: mujoco.MjModel, tmp_path: Path, sampling: Any, fps: float, worlds: list[int] | None
) -> None:
    rng = np.random.default_rng(int(fps) + len(sampling))
    recorded = list(range(N_WORLDS)) if worlds is None else worlds
    counting = Counting(model, N_WORLDS)
    rule = RecordingClock(FrameClock(0.2, fps, model.opt.timestep, sampling=sampling), len(recorded))
    episode = np.zeros(len(recorded), int)
    frames: list[Any] = []
    cadence = 1
    with WarpTrajectoryRecorder(
        model, N_WORLDS, worlds=worlds, output_fps=fps, sampling=sampling, store=tmp_path / "run.zarr"
    ) as recorder:
        for _ in range(600):
            if rng.integers(50) == 0:
                cadence = int(rng.integers(1, 4))
            mask, before = random_resets(rng, counting), rng.integers(2)
            if before:
                counting.reset(mask)
            counting.step(cadence)
            if not before:
                counting.reset(mask)
            times = counting.times[recorded]
            due = rule.tick(times)
            if due:
                if frames:
                    episode += rule.restarted
                rule.restarted[:] = False
                frames.append((rule.time, times, episode.copy()))
            assert recorder.record_as_needed(counting.data) == due
    check(open_dataset(tmp_path / "run.zarr"), frames)
    assert len(frames) > 90
    assert episode.max() > 3


def check(ds: xr.Dataset, frames: list[Any]) -> None:
    time, sim_time, episode = (np.array(values) for values in zip(*frames, strict=True))
    np.testing.assert_allclose(ds.time, time, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ds.sim_time.values.T, sim_time, rtol=0, atol=1e-9)
    assert np.array_equal(ds.episode.values.T, episode)


@pytest.mark.parametrize(("fps", "n_frames", "shortest"), [(24, 720, 4), (40, 1200, 2)])
def test_a_tie_on_the_grid_gives_no_frame_twice(
    model: mujoco.MjModel, fps: float, n_frames: int, shortest: int
) -> None:
    """4 1/6 and 2 1/2 steps a frame: some places lie in the middle between two steps."""
    counting = Counting(model, 1)
    with WarpTrajectoryRecorder(model, 1, output_fps=fps) as recorder:
        for _ in range(3000):
            recorder.record_as_needed(counting.data)
            counting.step()
        steps = recorder.trajectories[0].qpos[:, 0]
    assert len(steps) == n_frames
    assert np.diff(steps).min() == shortest


def test_staggered_resets_go_by_a_slow_and_obvious_reference(model: mujoco.MjModel, tmp_path: Path) -> None:
    """Masks at random steps, worlds set back twice in a row, and on to keyframes that lie ahead."""
    rng = np.random.default_rng(1)
    counting = Counting(model, N_WORLDS)
    restarted = np.zeros(N_WORLDS, bool)
    episode = np.zeros(N_WORLDS, int)
    frames: list[Any] = []
    with WarpTrajectoryRecorder(model, N_WORLDS, store=tmp_path / "run.zarr") as recorder:
        for step in range(800):
            counting.step()
            if rng.integers(4) == 0:
                mask = rng.random(N_WORLDS) < 0.4
                mask[rng.integers(N_WORLDS)] = False
                counting.reset(mask, rng.choice(KEY_TIMES))
                restarted |= mask
            due = step % 4 == 0
            assert recorder.record_as_needed(counting.data) == due
            if due:
                episode += restarted if frames else 0
                restarted[:] = False
                frames.append(((step + 1) * 0.002, counting.times, episode.copy()))
    check(open_dataset(tmp_path / "run.zarr"), frames)
    assert episode.min() > 50


def test_world_0_is_reset_and_all_go_on(model: mujoco.MjModel, tmp_path: Path) -> None:
    counting = Counting(model, 3)
    with WarpTrajectoryRecorder(model, 3, store=tmp_path / "run.zarr") as recorder:
        for step in range(1000):
            if step == 501:
                counting.reset([0])
            counting.step()
            recorder.enqueue(counting.data)
    ds = open_dataset(tmp_path / "run.zarr")
    # A second of 500 steps, and a second one: 125 frames each, at the same distance all along.
    np.testing.assert_allclose(ds.time, 0.002 + np.arange(250) * 0.008, rtol=0, atol=1e-9)
    assert np.array_equal(ds.episode, [[0] * 126 + [1] * 124, [0] * 250, [0] * 250])
    np.testing.assert_allclose(ds.sim_time[0, 126:], 0.008 + np.arange(124) * 0.008, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ds.sim_time[1], ds.time, rtol=0, atol=1e-9)


@pytest.mark.parametrize("start", KEY_TIMES)
def test_all_worlds_are_reset_at_once(model: mujoco.MjModel, tmp_path: Path, start: float) -> None:
    """Also to a keyframe ahead: a frame is due at once, and the recording's clock makes one step."""
    counting = Counting(model, 3)
    with WarpTrajectoryRecorder(model, 3, store=tmp_path / "run.zarr") as recorder:
        for step in range(100):
            if step == 50:
                counting.reset(slice(None), start)
            counting.step()
            assert recorder.record_as_needed(counting.data) == ((step if step < 50 else step - 50) % 4 == 0)
    ds = open_dataset(tmp_path / "run.zarr")
    steps = np.arange(100)
    due = np.where(steps < 50, steps % 4 == 0, (steps - 50) % 4 == 0)
    np.testing.assert_allclose(ds.time, (steps[due] + 1) * 0.002, rtol=0, atol=1e-9)
    sim_time = np.where(steps < 50, (steps + 1) * 0.002, start + (steps - 49) * 0.002)[due]
    np.testing.assert_allclose(ds.sim_time, np.tile(sim_time, (3, 1)), rtol=0, atol=1e-9)
    assert np.array_equal(ds.episode[1], (steps[due] >= 50).astype(int))


def test_a_million_steps_are_counted_to_the_nanosecond(tmp_path: Path) -> None:
    """Warp's own time is then 0.7 s behind. World 1 is set to a keyframe's time on the way."""
    n_steps, reset_at, start = 1_000_000, 300_000, KEY_TIMES[1]
    model = model_with_keys(timestep=1e-4)
    counting = Counting(model, 2)
    with WarpTrajectoryRecorder(
        model, 2, store=tmp_path / "run.zarr", playback_speed=1, output_fps=9.7
    ) as recorder:
        # Compiled and bound before; it records the frame at time 0.
        recorder.enqueue(counting.data)
        with wp.ScopedCapture() as capture:
            for _ in range(1000):
                counting.step()
                recorder.enqueue(counting.data)
        for done in range(0, n_steps, 1000):
            if done == reset_at:
                counting.reset([1], start)
            wp.capture_launch(capture.graph)
            if done % 100_000 == 0:
                recorder.drain()
    assert counting.data.time.numpy()[0] < 99.4
    ds = open_dataset(tmp_path / "run.zarr")
    steps = ds.qpos[:, :, 0].values.astype(int)
    assert np.array_equal(steps[0], steps[1])
    since = np.where(steps[1] <= reset_at, steps[1], steps[1] - reset_at)
    begun = np.where(steps[1] <= reset_at, 0, start)
    assert np.abs(ds.time - steps[0] * 1e-4).max() < 1e-9
    assert np.abs(ds.sim_time[0] - steps[0] * 1e-4).max() < 1e-9
    assert np.abs(ds.sim_time[1] - (begun + since * 1e-4)).max() < 1e-9
    # The grid of 1/9.7 s is kept to half a step for ever: counted from 0, up to 100 s.
    places = np.round(np.arange(970 + 1) / 9.7 / 1e-4)
    assert np.abs(steps[0] - places).max() <= 1
    assert len(steps[0]) == 971


@pytest.mark.parametrize(("n_steps", "start"), [(1, 65536.0), (3, 65535.9)])
def test_steps_are_counted_where_time_stands_still(tmp_path: Path, n_steps: int, start: float) -> None:
    """From 65536 s on a step of 3.5 ms no longer changes a float32: calls go on as they did."""
    model = model_with_keys(timestep=0.0035)
    counting = Counting(model, 2)
    counting.reset(slice(None), start)
    start = float(np.float32(start))
    with WarpTrajectoryRecorder(
        model, 2, store=tmp_path / "run.zarr", playback_speed=12 * 0.0035, output_fps=1
    ) as recorder:
        for step in range(100):
            assert recorder.record_as_needed(counting.data) == (step * n_steps % 12 == 0)
            counting.step(n_steps)
    assert counting.data.time.numpy()[0] == 65536
    ds = open_dataset(tmp_path / "run.zarr")
    np.testing.assert_allclose(
        ds.sim_time[0], start + ds.qpos[0, :, 0].astype(int) * 0.0035, rtol=0, atol=1e-9
    )
    assert not ds.episode.any()


def test_calls_of_many_steps_and_of_none(model: mujoco.MjModel, tmp_path: Path) -> None:
    counting = Counting(model, 2)
    now, times = 0, []
    with WarpTrajectoryRecorder(model, 2, store=tmp_path / "run.zarr") as recorder:
        for n in (0, 0, 100, 100, 0, 1, 1, 3, 70, 0, 5):
            counting.step(n)
            now += n
            if recorder.record_as_needed(counting.data):
                times.append(now)
    assert times == [0, 100, 200, 205, 275, 280]
    ds = open_dataset(tmp_path / "run.zarr")
    np.testing.assert_allclose(ds.time, np.array(times) * 0.002, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ds.sim_time[1], np.array(times) * 0.002, rtol=0, atol=1e-9)
    assert not ds.episode.any()
