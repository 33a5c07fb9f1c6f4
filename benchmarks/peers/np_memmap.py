"""`np.memmap` of the whole recording, written frame by frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Frames
from benchmarks.peers import Reader, count_equal

PACKAGES = ("numpy",)
SYNCS = True


def record(path: Path, frames: Frames, *, order: str = "frames") -> None:
    """Assign each frame, flush at the end; `order` "frames" or "worlds" says what is the first dim."""
    n_frames, n_worlds, nq = frames.shape
    shape = (n_frames, n_worlds, nq) if order == "frames" else (n_worlds, n_frames, nq)
    array = np.lib.format.open_memmap(path, "w+", frames.states.dtype, shape)
    by_frame = _by_frame(array, order)
    for i, states in enumerate(frames):
        by_frame[i] = states
    array.flush()


def surviving_frames(path: Path, frames: Frames, *, order: str = "frames") -> int:
    """What the file holds. It has its full length from the start: that zeros are no data, it does not say."""
    return count_equal(_by_frame(np.load(path, mmap_mode="r"), order), frames)


def open_reader(path: Path, *, order: str = "frames") -> Reader:
    """Slices of the map, copied into memory."""
    array = _by_frame(np.load(path, mmap_mode="r"), order)

    def read(worlds: slice, frames: slice) -> NDArray[np.float32]:
        return np.array(array[frames, worlds].swapaxes(0, 1), order="C")

    return read


def _by_frame(array: NDArray[np.float32], order: str) -> NDArray[np.float32]:
    return array if order == "frames" else array.swapaxes(0, 1)
