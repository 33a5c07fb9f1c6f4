"""Reading points: many worlds and frames at once, in any order, each chunk decoded once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.store.engine import Index

__all__ = ["are_points_of_frames", "read_points_by_chunk"]

_BEGUN = 4

Begin = Callable[[Index], Callable[[], NDArray[Any]]]


def are_points_of_frames(index: Index) -> bool:
    """Whether places are pairs of a world and a frame, with ranges along the other dims."""
    return (
        len(index) >= 2
        and all(isinstance(part, np.ndarray) for part in index[:2])
        and all(isinstance(part, slice) for part in index[2:])
    )


def read_points_by_chunk(index: Index, chunk_frames: int, begin: Begin) -> NDArray[Any]:
    """Read points as boxes: for the frames of each row of chunks, all worlds that are asked for there.

    Args:
        index: Arrays of worlds and of frames, which are broadcast together, then slices.
        chunk_frames: Frames of a chunk.
        begin: Begins to read a box, and gives a function that waits for its values.

    Returns:
        The broadcast dims first, then those of the slices.
    """
    worlds, frames = np.broadcast_arrays(np.asarray(index[0]), np.asarray(index[1]))
    shape, rest = worlds.shape, index[2:]
    worlds, frames = worlds.ravel(), frames.ravel()
    row = frames // chunk_frames
    order = np.argsort(row, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(row[order])) + 1)
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
            values = begin((distinct, slice(first, stop), *rest))
            begun.append((group, (world, frame - first), values))
            continue
        group, places, values = begun.popleft()
        box = values()
        if result is None:
            result = np.empty((len(worlds), *box.shape[2:]), box.dtype)
        result[group] = box[places]
    assert result is not None
    return result.reshape(*shape, *result.shape[1:])
