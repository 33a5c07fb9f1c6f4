"""A plain file: blocks of frames, transposed to worlds, one after the other. No index, no codec, no checksum."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.data import Frames
from benchmarks.peers import count_equal

PACKAGES = ("numpy",)
SYNCS = True

_BLOCK_FRAMES = 32


def record(path: Path, frames: Frames) -> None:
    """Fill a block, transpose it, write it."""
    n_frames, n_worlds, nq = frames.shape
    block = np.empty((_BLOCK_FRAMES, n_worlds, nq), frames.states.dtype)
    with path.open("wb") as file:
        for i, states in enumerate(frames):
            block[i % _BLOCK_FRAMES] = states
            filled = i % _BLOCK_FRAMES + 1
            if filled == _BLOCK_FRAMES or i + 1 == n_frames:
                file.write(np.ascontiguousarray(block[:filled].swapaxes(0, 1)).data)
        file.flush()
        os.fsync(file.fileno())


def surviving_frames(path: Path, frames: Frames) -> int:
    """Whole blocks."""
    _, n_worlds, nq = frames.shape
    values = np.fromfile(path, frames.states.dtype)
    n_blocks = len(values) // (_BLOCK_FRAMES * n_worlds * nq)
    blocks = values[: n_blocks * _BLOCK_FRAMES * n_worlds * nq].reshape(n_blocks, n_worlds, _BLOCK_FRAMES, nq)
    return count_equal(blocks.swapaxes(1, 2).reshape(-1, n_worlds, nq), frames)
