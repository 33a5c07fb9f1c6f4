"""Reading points: many worlds and frames at once, in any order, each chunk decoded once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_points_by_row"]

_BEGUN = 4

Begin = Callable[[NDArray[np.int64], slice], Callable[[], NDArray[Any]]]


def read_points_by_row(
    worlds: NDArray[np.int64], frames: NDArray[np.int64], rows: NDArray[np.int64], begin: Begin
) -> NDArray[Any]:
    """Read points as boxes: for the frames of each row of chunks, all worlds that are asked for there.

    Args:
        worlds: Places along `world`, broadcast together with `frames` and `rows`.
        frames: Places along `frame`.
        rows: For each point, the row of chunks it lies in.
        begin: Begins to read some worlds, in ascending order, in a range of frames, and gives a function that
            waits for the `(world, frame, …)` array.

    Returns:
        The broadcast dims first, then those behind `world` and `frame`.
    """
    arrays = np.broadcast_arrays(worlds, frames, rows)
    shape = arrays[0].shape
    worlds, frames, rows = (array.ravel() for array in arrays)
    order = np.argsort(rows, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1)
    result: NDArray[Any] | None = None
    begun: deque[tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...], Callable[[], NDArray[Any]]]] = (
        deque()
    )
    while groups or begun:
        if groups and len(begun) < _BEGUN:
            group = groups.pop()
            distinct, world = np.unique(worlds[group], return_inverse=True)
            frame = frames[group]
            first, stop = (int(frame.min()), int(frame.max()) + 1) if len(frame) else (0, 0)
            begun.append((group, (world, frame - first), begin(distinct, slice(first, stop))))
            continue
        group, places, values = begun.popleft()
        box = values()
        if result is None:
            result = np.empty((len(worlds), *box.shape[2:]), box.dtype)
        result[group] = box[places]
    assert result is not None
    return result.reshape(*shape, *result.shape[1:])
