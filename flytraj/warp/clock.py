"""The recording's clock on the device: it decides there if a frame is due, and counts in steps.

Warp's time is float32: it drifts (a million steps of 0.1 ms end at 99.33 s) and stops where a step is less than
its resolution. Here time only tells how many steps were made and which worlds were reset; what is recorded are
whole steps times the timestep, in float64. Otherwise the rules are those of `flytraj.clock`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

from flytraj.clock import FrameClock
from flytraj.warp.ring import CHANGED, HEAD, LOST, SLOT, Ring

__all__ = ["ClockState", "DeviceClock"]

wp.set_module_options({"enable_backward": False})

_AS_BEFORE = wp.constant(-2)  # a world's shift: it made as many steps as between the calls before
_BACK = wp.constant(-1)  # it was reset, whatever the others did
_MOST = wp.constant(62)  # steps a call that are counted one by one
_FAR = wp.constant(wp.float64(2**30))
_AT_ONCE = wp.constant(wp.float64(-math.inf))
_RESOLUTION = wp.constant(wp.float64(2.0**-23))


@wp.struct
class ClockState:
    """What the clock knows; times in seconds of the recording's own clock, steps since `origin`."""

    timestep: wp.float64
    interval: wp.float64
    by_grid: wp.bool
    n_worlds: wp.int32
    ring_frames: wp.int64

    started: wp.bool
    has_frames: wp.bool
    origin: wp.float64
    steps: wp.int64
    cadence: wp.int64
    next_due: wp.float64
    grid_start: wp.float64
    grid_place: wp.int64

    # Of the last call: the steps that most worlds made, and that they made in the call before.
    first_call: wp.bool
    first_frame: wp.bool
    made: wp.int64
    expected: wp.int64


@wp.func  # type: ignore[untyped-decorator]
def _steps_from(time: wp.float64, start: wp.float64, timestep: wp.float64) -> wp.int64:
    """Steps from `start` to a float32 `time`, if that is what it is; else -1."""
    steps = wp.round((time - start) / timestep)
    slack = wp.abs(time) * _RESOLUTION * (wp.float64(1.0) + wp.float64(0.5) * steps)
    if steps < wp.float64(0.0) or slack > timestep / wp.float64(8.0):
        return wp.int64(-1)
    if wp.abs(time - start - steps * timestep) > slack:
        return wp.int64(-1)
    return wp.int64(steps)


@wp.func  # type: ignore[untyped-decorator]
def _beginning(
    time: wp.float64, starts: wp.array[wp.float64], timestep: wp.float64
) -> tuple[wp.float64, wp.int64]:
    """Where an episode began that is at `time` now, and its steps since: at 0, at a keyframe, or just now."""
    for k in range(starts.shape[0]):
        steps = _steps_from(time, starts[k], timestep)
        if steps >= wp.int64(0):
            return starts[k], steps
    return time, wp.int64(0)


@wp.func  # type: ignore[untyped-decorator]
def _steps_made(
    now: wp.float64,
    went: wp.float64,
    cadence: wp.int64,
    timestep: wp.float64,
    starts: wp.array[wp.float64],
) -> wp.int32:
    """Steps that a world made, `_AS_BEFORE` if they are `cadence`, `_BACK` if it was reset for sure."""
    if went < wp.float64(0.0):
        return _BACK
    expected = wp.float64(cadence) * timestep
    slack = wp.float64(0.5) * (timestep + wp.float64(cadence) * wp.abs(now) * _RESOLUTION)
    if wp.abs(went - expected) <= slack:
        return _AS_BEFORE
    steps = wp.int32(wp.min(wp.round(went / timestep), _FAR))
    if steps >= _MOST:
        # So far ahead at a keyframe's time: not the simulation went there, a reset did.
        for k in range(1, starts.shape[0]):
            since = _steps_from(now, starts[k], timestep)
            if since >= wp.int64(0) and since <= cadence:
                steps = _BACK
    return steps


@wp.kernel  # type: ignore[untyped-decorator]
def _survey(
    n_threads: int,
    time: wp.array[wp.float32],
    rows: wp.array[wp.int32],
    starts: wp.array[wp.float64],
    state: wp.array[ClockState],
    last: wp.array[wp.float64],
    shift: wp.array[wp.int32],
    votes: wp.array[wp.int32],
    farther: wp.array[wp.int32],
    changed: wp.array[wp.int32],
) -> None:
    """See how far each world went; those that did not go as far as before tell, and vote."""
    started = state[0].started
    timestep = state[0].timestep
    cadence = state[0].cadence
    for i in range(wp.int32(wp.tid()), rows.shape[0], n_threads):
        now = wp.float64(time[rows[i]])
        went = now - last[i]
        last[i] = now
        if started:
            steps = _steps_made(now, went, cadence, timestep, starts)
            if steps != _AS_BEFORE:
                shift[i] = steps
                wp.atomic_add(votes, wp.min(steps, _MOST) + 1, 1)
                if steps >= _MOST:
                    wp.atomic_min(farther, 0, steps)
                changed[0] = 1


@wp.func  # type: ignore[untyped-decorator]
def _elect(
    cadence: wp.int64, n_worlds: wp.int32, votes: wp.array[wp.int32], farther: wp.array[wp.int32]
) -> wp.int64:
    """Steps that most worlds made; 0 if all stood still, -1 if all were reset. The votes are cleared."""
    still = votes[1]
    as_before = n_worlds - votes[0] - votes[1]
    best = wp.int32(0)
    made = wp.int64(-1)
    if still > 0:
        made = wp.int64(0)
    for k in range(1, _MOST + 1):
        count = votes[k + 1]
        as_before -= count
        if count > best:
            best = count
            made = wp.int64(k)
            if k == _MOST:
                made = wp.int64(farther[0])
    if as_before > 0 and as_before >= best:
        made = cadence
    for k in range(_MOST + 2):
        votes[k] = 0
    farther[0] = wp.int32(_FAR)
    return made


@wp.func  # type: ignore[untyped-decorator]
def _tick(state: wp.array[ClockState], time: wp.float64) -> wp.bool:
    """The rule of `FrameClock.tick`, for a time that never goes back."""
    if time < state[0].next_due:
        return False
    interval = state[0].interval
    tolerance = state[0].timestep * wp.float64(0.5)
    if not state[0].by_grid:
        state[0].next_due = time + interval - tolerance
        return True
    if state[0].next_due == _AT_ONCE:
        state[0].grid_start = time
        state[0].grid_place = wp.int64(0)
    start = state[0].grid_start
    passed = wp.int64(wp.floor((time - start + tolerance) / interval))
    place = wp.max(state[0].grid_place, passed) + wp.int64(1)
    state[0].grid_place = place
    state[0].next_due = start + wp.float64(place) * interval - tolerance
    return True


@wp.kernel  # type: ignore[untyped-decorator]
def _decide(
    starts: wp.array[wp.float64],
    last: wp.array[wp.float64],
    tail: wp.array[wp.int64],
    state: wp.array[ClockState],
    votes: wp.array[wp.int32],
    farther: wp.array[wp.int32],
    changed: wp.array[wp.int32],
    status: wp.array[wp.int64],
    ring_time: wp.array[wp.float64],
) -> None:
    """Let the clock go on, and claim a place in the ring if a frame is due."""
    cadence = state[0].cadence
    made = cadence
    status[CHANGED] = wp.int64(changed[0])
    state[0].first_call = not state[0].started
    if not state[0].started:
        made = wp.int64(0)
        start, steps = _beginning(last[0], starts, state[0].timestep)
        if wp.isnan(state[0].origin):
            state[0].origin = start + wp.float64(steps) * state[0].timestep
        state[0].started = True
        status[CHANGED] = wp.int64(1)
    elif changed[0] != 0:
        made = _elect(cadence, state[0].n_worlds, votes, farther)
        if made > wp.int64(0):
            state[0].cadence = made
        if made < wp.int64(0):
            made = wp.int64(1)
            state[0].next_due = _AT_ONCE
    changed[0] = 0
    state[0].expected = cadence
    state[0].made = made
    state[0].steps += made
    time = state[0].origin + wp.float64(state[0].steps) * state[0].timestep
    status[SLOT] = wp.int64(-1)
    if _tick(state, time):
        head = status[HEAD]
        if head - tail[0] < state[0].ring_frames:
            slot = head % state[0].ring_frames
            ring_time[wp.int32(slot)] = time
            status[SLOT] = slot
            status[HEAD] = head + wp.int64(1)
            state[0].first_frame = not state[0].has_frames
            state[0].has_frames = True
        else:
            status[LOST] += wp.int64(1)


@wp.kernel  # type: ignore[untyped-decorator]
def _settle(
    n_threads: int,
    starts: wp.array[wp.float64],
    last: wp.array[wp.float64],
    state: wp.array[ClockState],
    status: wp.array[wp.int64],
    shift: wp.array[wp.int32],
    start: wp.array[wp.float64],
    birth: wp.array[wp.int64],
    restarted: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    ring_sim_time: wp.array2d[wp.float64],
    ring_episode: wp.array2d[wp.int32],
) -> None:
    """Begin the episodes of the worlds that went elsewhere than most, and write each world's time."""
    changed = status[CHANGED] != wp.int64(0)
    slot = wp.int32(status[SLOT])
    if slot < 0 and not changed:
        return
    now = state[0].steps
    timestep = state[0].timestep
    for i in range(wp.int32(wp.tid()), shift.shape[0], n_threads):
        if changed:
            steps = wp.int64(shift[i])
            if shift[i] == _AS_BEFORE:
                steps = state[0].expected
            shift[i] = _AS_BEFORE
            if state[0].first_call or steps != state[0].made:
                began, since = _beginning(last[i], starts, timestep)
                start[i] = began
                birth[i] = now - since
                if not state[0].first_call:
                    restarted[i] = 1
        if slot >= 0:
            if restarted[i] != 0:
                restarted[i] = 0
                if not state[0].first_frame:
                    episode[i] += 1
            ring_sim_time[slot, i] = start[i] + wp.float64(now - birth[i]) * timestep
            ring_episode[slot, i] = episode[i]


@wp.kernel  # type: ignore[untyped-decorator]
def _mark(mask: wp.array[wp.int32], restarted: wp.array[wp.int32]) -> None:
    i = wp.tid()
    restarted[i] = wp.max(restarted[i], mask[i])


@wp.kernel  # type: ignore[untyped-decorator]
def _begin_anew(has_frames: wp.bool, origin: wp.float64, state: wp.array[ClockState]) -> None:
    if not wp.isnan(origin):
        state[0].origin = origin
    state[0].next_due = _AT_ONCE
    state[0].has_frames = has_frames


class DeviceClock:
    """The clock of a recording on the device; see `RecordingClock`.

    All worlds make the same steps of the model's timestep between two calls. One that did not was reset.

    Args:
        frame_clock: Says when a frame is due.
        key_times: Times of the model's keyframes in seconds.
        ring: Where frames go.
    """

    def __init__(self, frame_clock: FrameClock, key_times: Iterable[float], ring: Ring) -> None:
        self._rows = ring.rows
        self._n = n = len(ring.rows)
        self._device = ring.rows.device
        state = ClockState()
        state.timestep = frame_clock.timestep
        state.interval = frame_clock.interval
        state.by_grid = frame_clock.sampling == "grid"
        state.n_worlds = n
        state.ring_frames = ring.n_frames
        state.origin = math.nan
        state.cadence = 1
        state.next_due = -math.inf
        with wp.ScopedDevice(self._device):
            self._state = wp.array([state], dtype=ClockState)
            starts = [0.0, *(float(time) for time in key_times if time > 0)]
            self._starts = wp.array(starts, dtype=wp.float64)
            self._last = wp.zeros(n, dtype=wp.float64)
            self._restarted = wp.zeros(n, dtype=wp.int32)
            self._episode = wp.zeros(n, dtype=wp.int32)
            shift = wp.full(n, int(_AS_BEFORE), dtype=wp.int32)
            changed = wp.zeros(1, dtype=wp.int32)
            votes = wp.zeros(int(_MOST) + 2, dtype=wp.int32)
            farther = wp.full(1, int(_FAR), dtype=wp.int32)
            start, birth = wp.zeros(n, dtype=wp.float64), wp.zeros(n, dtype=wp.int64)
        # On the CPU a kernel's threads come one after the other, so one does it all.
        self._n_threads = n if self._device.is_cuda else 1
        self._ballot = [self._last, shift, votes, farther, changed]
        self._decide = wp.launch(
            _decide,
            1,
            [self._starts, self._last, ring.tail, self._state, votes, farther, changed, ring.status],
            [ring.view("time")],
            device=self._device,
            record_cmd=True,
        )
        self._settle = wp.launch(
            _settle,
            self._n_threads,
            [self._n_threads, self._starts, self._last, self._state, ring.status, shift, start, birth],
            [self._restarted, self._episode, ring.view("sim_time"), ring.view("episode")],
            device=self._device,
            record_cmd=True,
        )
        self._survey: Any = None
        self._time: wp.array = None

    def bind(self, time: wp.array) -> None:
        """Read time from an array, `(n_worlds,)` float32."""
        if time is not self._time:
            self._survey = wp.launch(
                _survey,
                self._n_threads,
                [self._n_threads, time, self._rows, self._starts, self._state],
                self._ballot,
                device=self._device,
                record_cmd=True,
            )
            self._time = time

    def tick(self) -> None:
        """Go on, and claim a place in the ring if a frame is due; the ring's status says so."""
        self._survey.launch()
        self._decide.launch()

    def settle(self) -> None:
        """Begin the episodes of worlds that were reset, and write times and episodes of the frame."""
        self._settle.launch()

    def mark(self, mask: NDArray[np.bool_]) -> None:
        """Let the next frame of some worlds begin a new episode; `mask` is `(n_recorded,)`."""
        marks = wp.array(mask.astype(np.int32), dtype=wp.int32, device=self._device)
        wp.launch(_mark, self._n, [marks], [self._restarted], device=self._device)

    def begin_anew(self, episode: ArrayLike, *, has_frames: bool, origin: float | None = None) -> None:
        """Make a frame due at once.

        Args:
            episode: `(n_recorded,)` int32, the episode of each world's last frame.
            has_frames: Whether there is such a frame.
            origin: Recording time in seconds at which the first frame is; None for the simulation's.
        """
        self._episode.assign(np.asarray(episode, np.int32))
        origin = math.nan if origin is None else origin
        wp.launch(_begin_anew, 1, [has_frames, origin], [self._state], device=self._device)
