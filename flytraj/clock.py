"""The clock that decides when a frame is due."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError

__all__ = ["FrameClock", "RecordingClock", "Sampling"]

Sampling = Literal["grid", "interval"]


class FrameClock:
    """Decides when the next frame is due, given the simulation time.

    A frame stands for `interval = playback_speed / output_fps` seconds of simulation. Half a timestep is the
    tolerance when times are compared.

    With `sampling="grid"` frames keep to multiples of the interval, counted from the first tick: each is at
    most half a timestep off its place, for ever. With `sampling="interval"` the next frame is due one
    interval after the last one, which is flygym's rule to the bit; where the interval is no multiple of the timestep
    its rounding adds up (2 ms steps at 60 fps give 62.5 frames a second).

    Time that goes back is a reset of the simulation: a frame is due at once and the grid starts there anew.

    Args:
        playback_speed: Speed of the video relative to real time.
        output_fps: Frames per second of the video; may be fractional.
        timestep: Timestep of the simulation in seconds.
        sampling: `"grid"` or `"interval"`.

    Raises:
        InvalidArgumentError: A number is not positive and finite, or the sampling is unknown.
    """

    def __init__(
        self, playback_speed: float, output_fps: float, timestep: float, *, sampling: Sampling = "grid"
    ) -> None:
        for name, value in (
            ("playback_speed", playback_speed),
            ("output_fps", output_fps),
            ("timestep", timestep),
        ):
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(f"{name} must be a positive finite number, not {value!r}.")
        if sampling not in ("grid", "interval"):
            raise InvalidArgumentError(f'sampling must be "grid" or "interval", not {sampling!r}.')
        self.playback_speed = playback_speed
        self.output_fps = output_fps
        self.timestep = timestep
        self.sampling: Sampling = sampling
        self._interval = playback_speed / output_fps
        self._tolerance = timestep * 0.5
        if self._interval < timestep * (1 - 1e-9):
            warnings.warn(
                f"playback_speed / output_fps asks for a frame every {self._interval:g} s, and the timestep is "
                f"{timestep:g} s: with a frame a step, videos play {timestep / self._interval:.3g} times as fast as "
                "playback_speed says. Lower output_fps.",
                stacklevel=2,
            )
        self.reset()

    @property
    def interval(self) -> float:
        """Simulated seconds between two frames."""
        return self._interval

    @property
    def next_due(self) -> float:
        """No tick before this time is due, unless time goes back; `-inf` before the first tick."""
        return self._next_due

    def reset(self) -> None:
        """Make the next `tick` due whatever its time."""
        self._last_time = -math.inf
        self._next_due = -math.inf
        self._start = 0.0
        self._place = 0
        self._before = (self._next_due, self._start, self._place)

    def retract(self) -> None:
        """Take the last due tick back: its frame could not be recorded, and is due again."""
        self._next_due, self._start, self._place = self._before

    def tick(self, time: float) -> bool:
        """Tell whether a frame is due at `time`, and count it if so.

        Args:
            time: Simulation time in seconds.

        Returns:
            True if a frame is due.

        Raises:
            InvalidArgumentError: The time is not finite.
        """
        time = float(time)
        went_back = time < self._last_time
        if time < self._next_due and not went_back:
            self._last_time = time
            return False
        if not math.isfinite(time):
            raise InvalidArgumentError(f"The simulation time must be finite, found {time}.")
        self._last_time = time
        self._before = (self._next_due, self._start, self._place)
        if self.sampling == "interval":
            self._next_due = time + self._interval - self._tolerance
            return True
        if went_back or self._next_due == -math.inf:
            self._start = time
            self._place = 0
        # At a tie the division may round down to the place just taken.
        passed = math.floor((time - self._start + self._tolerance) / self._interval)
        self._place = max(self._place, passed) + 1
        self._next_due = self._start + self._place * self._interval - self._tolerance
        return True


class RecordingClock:
    """The clock of a recording of many worlds: it follows the simulation and never goes back.

    Without resets it is the simulation time. When some worlds are reset it goes on with the others; when all
    are, it goes on by one timestep and a frame is due at once.

    Args:
        frame_clock: Decides which times are due.
        n_worlds: Number of recorded worlds.

    Attributes:
        time: Seconds on the recording's own clock.
        restarted: `(n_worlds,)` bool: worlds reset since the last frame.
    """

    def __init__(self, frame_clock: FrameClock, n_worlds: int) -> None:
        self.frame_clock = frame_clock
        self.time = 0.0
        self.restarted = np.zeros(n_worlds, bool)
        self._tolerance = frame_clock.timestep * 0.5
        self._previous = np.empty(n_worlds)
        self._steps = np.empty(n_worlds)
        self._leader = 0
        self._offset = 0.0
        self._started = False
        self._resume_at: float | None = None

    @property
    def next_due(self) -> float:
        """Simulation time of the leading world before which no frame is due."""
        return self.frame_clock.next_due - self._offset

    @property
    def resume_at(self) -> float | None:
        """Where `resume` put the next frame; None if it was not called."""
        return self._resume_at

    def resume(self, time: float) -> None:
        """Make the next frame due at once, at `time` on the recording's clock."""
        self._resume_at = time
        self._started = False
        self.frame_clock.reset()

    def skip_to(self, time: float) -> None:
        """Count ticks that were not due and not passed on, the last of them at simulation time `time`."""
        self._previous[:] = time
        self.time = max(self.time, self._offset + time)

    def tick(self, times: NDArray[np.float64]) -> bool:
        """Tell whether a frame is due.

        Args:
            times: `(n_worlds,)` simulation time of each world in seconds.
        """
        if not self._started:
            self._start(times)
        else:
            np.subtract(times, self._previous, out=self._steps)
            lowest, highest = self._steps.min(), self._steps.max()
            leading = self._steps[self._leader]
            if lowest < 0:
                self.restarted |= self._steps < 0
            if highest - leading > self._tolerance or leading < 0:
                self._follow(times)
        self._previous[:] = times
        self.time = max(self.time, self._offset + float(times[self._leader]))
        return self.frame_clock.tick(self.time)

    def _start(self, times: NDArray[np.float64]) -> None:
        if self._resume_at is not None:
            self._offset = self._resume_at - float(times[self._leader])
        elif self._offset == 0.0:
            self.time = float(times[self._leader])
        self._started = True

    def _follow(self, times: NDArray[np.float64]) -> None:
        """Find a world that moves with most of the others, and go on from where the clock stands."""
        forward = self._steps[self._steps > 0]
        if len(forward):
            step = float(np.median(forward))
        else:
            step = self.frame_clock.timestep
            self.frame_clock.reset()
        behind = np.abs(self._steps - step)
        if behind[self._leader] > self._tolerance:
            self._leader = int(behind.argmin()) if len(forward) else self._leader
            self._offset = self.time + step - float(times[self._leader])
