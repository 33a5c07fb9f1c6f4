"""Checks of recorded values, a stretch at a time: quaternions of unit length, time that goes forward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.schema import Variable
from flytraj.store.create import read_blob
from flytraj.store.description import Description
from flytraj.store.engine import Engine
from flytraj.store.report import Problem
from flytraj.store.rounding import quaternion_starts

__all__ = ["EpisodeCheck", "QuaternionCheck", "TimeCheck", "quaternion_columns"]


class _Findings:
    """Values that are wrong: how many, between which worlds and frames, and the first of them."""

    def __init__(self, kind: str, array: str) -> None:
        self._kind = kind
        self._array = array
        self._count = 0
        self._worlds: list[int] = []
        self._frames: list[int] = []
        self._first = ""

    def add(self, worlds: NDArray[np.int64], frames: NDArray[np.int64], first: str) -> None:
        """Note places; `first` is about the first of them."""
        if len(frames):
            self._first = self._first or first
            self._count += len(frames)
            self._worlds = [min([*self._worlds, int(worlds.min())]), max([*self._worlds, int(worlds.max())])]
            self._frames = [min([*self._frames, int(frames.min())]), max([*self._frames, int(frames.max())])]

    def problem(self, what: str, *, with_worlds: bool = True) -> Iterator[Problem]:
        """One problem for all that was noted."""
        if self._count:
            worlds = (self._worlds[0], self._worlds[1] + 1) if with_worlds else None
            frames = (self._frames[0], self._frames[1] + 1)
            yield Problem(
                self._kind, self._array, worlds, frames, f"{self._count} {what}; the first: {self._first}"
            )


class QuaternionCheck:
    """Looks for quaternions that are not of unit length.

    Args:
        array: Name of the array.
        columns: First column of each quaternion along the last dim.
    """

    def __init__(self, array: str, columns: list[int]) -> None:
        self._columns = columns
        self._findings = _Findings("quaternion", array)

    def see(self, values: NDArray[Any], first_world: int, first_frame: int) -> None:
        """Look at `(n_worlds, n_frames, …)` values."""
        tolerance = 1e-2 if values.dtype.itemsize == 2 else 1e-3
        for column in self._columns:
            norms = np.linalg.norm(values[..., column : column + 4].astype(np.float64), axis=-1)
            bad = ~(np.abs(norms - 1) <= tolerance)
            worlds, frames = np.nonzero(bad)[:2]
            if len(worlds):
                first = (
                    f"norm {norms[bad][0]:g} in column {column}, world {worlds[0] + first_world}, "
                    f"frame {frames[0] + first_frame}"
                )
                self._findings.add(worlds + first_world, frames + first_frame, first)

    def problems(self) -> Iterator[Problem]:
        """What was found."""
        yield from self._findings.problem("quaternions are not of unit length")


class TimeCheck:
    """Looks for places where the recording's clock goes back."""

    def __init__(self) -> None:
        self._last = -np.inf
        self._findings = _Findings("time", "time")

    def see(self, values: NDArray[np.float64], first_frame: int) -> None:
        """Look at `(n_frames,)` times."""
        before = np.concatenate([[self._last], values[:-1]])
        (frames,) = np.nonzero(~(values >= before))
        if len(frames):
            first = (
                f"{before[frames[0]]:g} s, then {values[frames[0]]:g} s at frame {frames[0] + first_frame}"
            )
            self._findings.add(frames, frames + first_frame, first)
        self._last = values[-1]

    def problems(self) -> Iterator[Problem]:
        """What was found."""
        yield from self._findings.problem("times go back, or are no numbers", with_worlds=False)


class EpisodeCheck:
    """Looks for places where a world's simulation time goes back within an episode."""

    def __init__(self) -> None:
        self._findings = _Findings("time", "sim_time")
        self._last: tuple[int, int, NDArray[Any], NDArray[Any]] | None = None

    def see(
        self, times: NDArray[np.float64], episodes: NDArray[np.int32], first_world: int, first_frame: int
    ) -> None:
        """Look at `(n_worlds, n_frames)` times and numbers of episodes."""
        time_before, episode_before = times[:, :1], episodes[:, :1]
        if self._last is not None and self._last[:2] == (first_world, first_frame):
            time_before, episode_before = self._last[2:]
        time_before = np.concatenate([time_before, times[:, :-1]], axis=1)
        episode_before = np.concatenate([episode_before, episodes[:, :-1]], axis=1)
        bad = ~(times >= time_before) & (episodes == episode_before)
        worlds, frames = np.nonzero(bad)
        if len(worlds):
            first = (
                f"{time_before[bad][0]:g} s, then {times[bad][0]:g} s in world {worlds[0] + first_world}, "
                f"frame {frames[0] + first_frame}"
            )
            self._findings.add(worlds + first_world, frames + first_frame, first)
        self._last = (first_world, first_frame + times.shape[1], times[:, -1:], episodes[:, -1:])

    def problems(self) -> Iterator[Problem]:
        """What was found."""
        yield from self._findings.problem("times go back within an episode, or are no numbers")


def quaternion_columns(engine: Engine, description: Description, variable: Variable) -> list[int]:
    """First column of each quaternion along a variable's last dim; for qpos, from the embedded layout.

    Raises:
        CorruptDatasetError: The layout cannot be read.
        ValueError: It is no layout.
    """
    data = read_blob(engine, description, "layout") if variable.name == "qpos" else None
    try:
        columns = quaternion_starts(variable, None if data is None else json.loads(data.tobytes()))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"The embedded layout has no list of joints: {error!r}") from error
    if not all(0 <= column <= variable.shape[-1] - 4 for column in columns):
        raise ValueError(f"The embedded layout puts quaternions at the columns {columns} of {variable.name}.")
    return columns
