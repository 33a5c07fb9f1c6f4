"""Windows of frames for training: random ones, and every one of an epoch, never across a reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError, InvalidArgumentError
from flytraj.store.description import Description
from flytraj.store.engine import Engine
from flytraj.store.points import read_points_by_row

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["Windows"]

_BATCH_POINTS = 2**22


@dataclass(frozen=True)
class Windows:
    """All windows of a view: `length` frames of one world, `stride` apart, within one episode.

    Args:
        view: The view, with dims (world, frame, …).
        episodes: Its table of episodes.
        length: Frames of a window.
        stride: Distance between a window's frames.
        fields: Names of the variables to read.
        rows: For each frame, the row of chunks it lies in.

    Raises:
        FieldNotFoundError: The view has no such variable.
        InvalidArgumentError: The length or stride is not positive, or no episode is that long.
    """

    view: xr.Dataset
    episodes: pd.DataFrame
    length: int
    stride: int
    fields: tuple[str, ...]
    rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("stride", self.stride)):
            if value < 1:
                raise InvalidArgumentError(f"{name} must be a positive number of frames, found {value!r}.")
        for name in self.fields:
            if name not in self.view or self.view[name].dims[:2] != ("world", "frame"):
                raise FieldNotFoundError(
                    f"The view has no {name!r} to sample; it has {', '.join(map(str, self.view.data_vars))}."
                )
        if not len(self):
            raise InvalidArgumentError(
                f"No episode of the view has the {self.span} frames that a window spans "
                f"(length {self.length}, stride {self.stride})."
            )

    @property
    def span(self) -> int:
        """Frames from a window's first to its last, both counted."""
        return (self.length - 1) * self.stride + 1

    def __len__(self) -> int:
        """Number of windows."""
        return int(self._counts().sum())

    def sample(self, n: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw windows with replacement, uniformly over all there are.

        Returns:
            Name to `(n, length, …)` array.

        Raises:
            InvalidArgumentError: `n` is no number of windows.
        """
        if not isinstance(n, (int, np.integer)) or n < 0:
            raise InvalidArgumentError(f"n must be a number of windows, found {n!r}.")
        numbers = rng.integers(len(self), size=n)
        return self.read(numbers)

    def read(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Read windows by number, in 0 … len - 1; each chunk is decoded once.

        Returns:
            Name to `(n, length, …)` array, in the order of `numbers`.
        """
        world, start = self._places(numbers)
        frames = start[:, np.newaxis] + np.arange(self.length) * self.stride
        rows = self.rows[frames]
        result = {}
        for name in self.fields:
            begin = partial(_begin_read, self.view[name].variable)
            result[name] = read_points_by_row(world[:, np.newaxis], frames, rows, begin)
        return result

    def epoch(
        self, batch_size: int, rng: np.random.Generator | None, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Every window once, in batches; the last may be smaller.

        Windows are shuffled within stretches that are read at once, and the stretches are shuffled: near to
        random at the cost of reading in order.

        Args:
            batch_size: Windows of a batch.
            rng: Source of randomness; None keeps the order of worlds and frames.
            part: `(i, n)`: the i-th of n equal parts of the stretches, for n workers with equal `rng`.
        """
        if batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be positive, found {batch_size!r}.")
        batches = max(1, _BATCH_POINTS // (batch_size * self.length * self._row_values()))
        stretch = batch_size * min(64, batches)
        starts = np.arange(0, len(self), stretch)
        if rng is not None:
            rng.shuffle(starts)
        for start in starts[part[0] :: part[1]]:
            numbers = np.arange(start, min(start + stretch, len(self)))
            if rng is not None:
                rng.shuffle(numbers)
            windows = self.read(numbers)
            for first in range(0, len(numbers), batch_size):
                yield {name: values[first : first + batch_size] for name, values in windows.items()}

    def _counts(self) -> NDArray[np.int64]:
        """Windows of each episode."""
        frames = self.episodes["last_frame"].to_numpy() - self.episodes["first_frame"].to_numpy() + 1
        counts: NDArray[np.int64] = np.maximum(frames - self.span + 1, 0)
        return counts

    def _places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Position of the world, and first frame, of windows."""
        ends = self._counts().cumsum()
        episode = np.searchsorted(ends, numbers, side="right")
        before = ends[episode] - self._counts()[episode]
        ids = self.view["world"].values
        position = np.argsort(ids)[np.searchsorted(np.sort(ids), self.episodes["world"].to_numpy()[episode])]
        return position, self.episodes["first_frame"].to_numpy()[episode] + numbers - before

    def _row_values(self) -> int:
        return max(int(np.prod(self.view[name].shape[2:])) for name in self.fields)


def _begin_read(
    variable: xr.Variable, worlds: NDArray[np.int64], frames: slice
) -> Callable[[], NDArray[Any]]:
    box = variable.isel(world=worlds, frame=frames)
    return lambda: box.values


def chunk_rows(view: xr.Dataset, engine: Engine, description: Description) -> NDArray[np.int64]:
    """For each frame of a view, the row of chunks it lies in, found by its time: only speed depends on it."""
    if "time" not in view.coords or not description.n_frames:
        return np.zeros(view.sizes["frame"], np.int64)
    every_frame = (slice(0, description.n_frames),)
    times = engine.read_array("time", description.documents["time"], every_frame)
    rows: NDArray[np.int64] = np.searchsorted(times, view["time"].values) // description.layout.chunk_frames
    return rows


def field_names(view: xr.Dataset, fields: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names asked for; None means the coordinates qpos."""
    if fields is None:
        return ("qpos",)
    return (fields,) if isinstance(fields, str) else tuple(fields)
