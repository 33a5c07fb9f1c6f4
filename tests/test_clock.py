"""The frame clock against flygym's rule and against counting by hand; the recording's clock against resets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flytraj.clock import FrameClock, RecordingClock, Sampling
from flytraj.errors import InvalidArgumentError


def count_frames(clock: FrameClock, timestep: float, seconds: float) -> int:
    return sum(clock.tick(k * timestep) for k in range(round(seconds / timestep)))


@pytest.mark.parametrize(("sampling", "expected"), [("grid", 600), ("interval", 625)])
def test_ten_seconds_at_60_fps_and_2_ms(sampling: Sampling, expected: int) -> None:
    assert count_frames(FrameClock(1.0, 60, 0.002, sampling=sampling), 0.002, 10.0) == expected


@pytest.mark.parametrize("sampling", ["grid", "interval"])
def test_both_rules_agree_where_the_interval_is_a_multiple_of_the_step(sampling: Sampling) -> None:
    clock = FrameClock(0.2, 25, 0.001, sampling=sampling)
    due = [k for k in range(1000) if clock.tick(k * 0.001)]
    assert clock.interval == 0.2 / 25
    assert due == list(range(0, 1000, 8))


def test_more_frames_than_steps_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="videos play 100 times as fast"):
        FrameClock(0.2, 10_000, 0.002)
    FrameClock(0.2, 100, 0.002)


@pytest.mark.parametrize("sampling", ["grid", "interval"])
@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_not_finite_is_refused_and_forgotten(sampling: Sampling, time: float) -> None:
    clock = FrameClock(0.2, 25, 0.002, sampling=sampling)
    assert clock.tick(1.0)
    with pytest.raises(InvalidArgumentError, match="must be finite"):
        clock.tick(time)
    assert [k for k in range(1, 9) if clock.tick(1 + k * 0.002)] == [4, 8]


@pytest.mark.filterwarnings("ignore:playback_speed / output_fps")
@given(
    timestep=st.sampled_from([1e-4, 5e-4, 0.001, 0.002, 0.004, 0.01]),
    fps=st.sampled_from([24, 25, 29.97, 30, 50, 60, 120]),
    speed=st.sampled_from([0.05, 0.2, 0.5, 1.0, 2.0]),
)
def test_the_interval_rule_is_flygyms_to_the_bit(timestep: float, fps: float, speed: float) -> None:
    clock = FrameClock(speed, fps, timestep, sampling="interval")
    last, time = -math.inf, 0.0
    for _ in range(500):
        expected = not time < last + speed / fps - timestep * 0.5
        if expected:
            last = time
        assert clock.tick(time) == expected
        time += timestep


@given(
    timestep=st.floats(1e-4, 0.02),
    interval_steps=st.floats(1.0, 40.0),
)
def test_the_grid_never_drifts_by_more_than_half_a_step(timestep: float, interval_steps: float) -> None:
    clock = FrameClock(interval_steps * timestep * 50, 50, timestep)
    due = [k * timestep for k in range(2000) if clock.tick(k * timestep)]
    places = np.arange(len(due)) * clock.interval
    assert np.abs(np.array(due) - places).max() <= timestep * 0.5 + 1e-9


def test_a_frame_is_due_at_once_when_time_goes_back() -> None:
    clock = FrameClock(1.0, 10, 0.01)
    due = [round(t, 2) for t in [*np.arange(0, 0.25, 0.01), *np.arange(0.0, 0.15, 0.01)] if clock.tick(t)]
    assert due == [0.0, 0.1, 0.2, 0.0, 0.1]


def test_reset_makes_the_next_tick_due() -> None:
    clock = FrameClock(1.0, 10, 0.01)
    assert [clock.tick(0.0), clock.tick(0.01)] == [True, False]
    clock.reset()
    assert clock.tick(0.02)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0.0, 25, 0.001), "playback_speed"),
        ((0.2, -1, 0.001), "output_fps"),
        ((0.2, 25, math.nan), "timestep"),
        ((0.2, math.inf, 0.001), "output_fps"),
    ],
)
def test_numbers_that_make_no_clock_are_named(arguments: tuple[float, float, float], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        FrameClock(*arguments)


def test_an_unknown_sampling_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="grid"):
        FrameClock(0.2, 25, 0.001, sampling="often")  # type: ignore[arg-type]


def recording_times(sim_times: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Recording time and resets of every step, with a frame due at each."""
    clock = RecordingClock(FrameClock(1.0, 1 / 0.01, 0.01), sim_times.shape[1])
    times, restarted = [], []
    for row in sim_times:
        clock.tick(row)
        times.append(clock.time)
        restarted.append(clock.restarted.copy())
        clock.restarted[:] = False
    return times, np.array(restarted)


def test_without_resets_the_recording_clock_is_the_simulation_time_to_the_bit() -> None:
    steps = np.cumsum(np.full(200, 0.01))
    times, restarted = recording_times(np.stack([steps, steps], axis=1))
    assert times == steps.tolist()
    assert not restarted.any()


def test_a_reset_of_world_0_does_not_stop_the_clock() -> None:
    steps = np.arange(100) * 0.01
    world_0 = np.where(np.arange(100) < 60, steps, steps - 0.6)
    times, restarted = recording_times(np.stack([world_0, steps, steps], axis=1))
    np.testing.assert_allclose(times, steps, atol=1e-12)
    assert np.argwhere(restarted).tolist() == [[60, 0]]


def test_a_reset_of_all_worlds_goes_on_by_one_step() -> None:
    steps = np.concatenate([np.arange(50), np.arange(50)]) * 0.01
    times, restarted = recording_times(np.stack([steps, steps], axis=1))
    np.testing.assert_allclose(times, np.arange(100) * 0.01, atol=1e-12)
    assert np.argwhere(restarted).tolist() == [[50, 0], [50, 1]]


def test_worlds_that_stand_still_hold_nobody_up() -> None:
    steps = np.arange(100) * 0.01
    still = np.minimum(steps, 0.3)
    times, restarted = recording_times(np.stack([still, steps], axis=1))
    np.testing.assert_allclose(times, steps, atol=1e-12)
    assert not restarted.any()


@given(st.data())
def test_the_recording_clock_follows_the_steps_whatever_is_reset(data: st.DataObject) -> None:
    n_worlds = data.draw(st.integers(2, 6))
    n_steps = 80
    resets = data.draw(
        st.lists(st.tuples(st.integers(1, n_steps // 2 - 1), st.integers(0, n_worlds - 1)), max_size=20)
    )
    sim_times = np.zeros((n_steps, n_worlds))
    for step in range(1, n_steps):
        sim_times[step] = sim_times[step - 1] + 0.01
        for world in {world for when, world in resets if 2 * when == step}:
            sim_times[step, world] = 0.0
    times, restarted = recording_times(sim_times)
    # Every step is one step on the recording's clock, all worlds reset at once included.
    np.testing.assert_allclose(np.diff(times), 0.01, atol=1e-9)
    assert restarted.sum() == sum(sim_times[s, w] == 0.0 for s in range(1, n_steps) for w in range(n_worlds))
