"""The clock that decides when a frame is due."""

from __future__ import annotations

import math
from typing import Literal

from flytraj.errors import InvalidArgumentError

__all__ = ["FrameClock", "Sampling"]

Sampling = Literal["grid", "interval"]


class FrameClock:
    """Decides when the next frame is due, given the simulation time.

    A frame stands for `interval = playback_speed / output_fps` seconds of simulation. Half a timestep is the
    tolerance when times are compared.

    With `sampling="grid"` frames keep to multiples of the interval, counted from the first tick: each is at
    most half a timestep off its place, for ever. With `sampling="interval"` the next frame is due one interval
    after the last one, which is flygym's rule to the bit; where the interval is no multiple of the timestep
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

    def tick(self, time: float) -> bool:
        """Tell whether a frame is due at `time`, and count it if so.

        Args:
            time: Simulation time in seconds.

        Returns:
            True if a frame is due.
        """
        time = float(time)
        went_back = time < self._last_time
        self._last_time = time
        if time < self._next_due and not went_back:
            return False
        if self.sampling == "interval":
            self._next_due = time + self._interval - self._tolerance
            return True
        if went_back or self._next_due == -math.inf:
            self._start = time
        passed = math.floor((time - self._start + self._tolerance) / self._interval)
        self._next_due = self._start + (passed + 1) * self._interval - self._tolerance
        return True
