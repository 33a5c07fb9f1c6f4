"""Blocks kept in memory, behind the interface of a dataset's writer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.block import Block
from flytraj.schema import Schema
from flytraj.store.writer import WriterStats

__all__ = ["MemoryBlocks"]


class MemoryBlocks:
    """What a recorder without a store fills.

    Args:
        schema: The variables.
        n_worlds: Number of recorded worlds.
        block_frames: Frames of a block.
    """

    def __init__(self, schema: Schema, n_worlds: int, block_frames: int) -> None:
        self._schema = schema
        self._n_worlds = n_worlds
        self._block_frames = block_frames
        self._blocks: list[Block] = []
        self.next_block()

    @property
    def current(self) -> Block:
        """The block in the making."""
        return self._blocks[-1]

    @property
    def n_frames(self) -> int:
        """Frames recorded."""
        return sum(block.n_frames for block in self._blocks)

    @property
    def stats(self) -> WriterStats:
        """Frames and bytes kept."""
        frames = self.n_frames
        return WriterStats(frames=frames, bytes=frames * (self._n_worlds * self._schema.row_bytes + 8))

    def next_block(self) -> Block:
        """Add an empty block."""
        block = Block(self._schema, self._n_worlds, self._block_frames)
        self._blocks.append(block.start(len(self._blocks)))
        return block

    def read(self, name: str, first_frame: int) -> NDArray[Any]:
        """Frames of a variable from `first_frame` on, `(n_worlds, n_frames, …)`."""
        frames = np.concatenate([block.arrays[name][: block.n_frames] for block in self._blocks])
        return frames[first_frame:].swapaxes(0, 1)

    def truncate(self, n_frames: int) -> None:
        """Keep the first `n_frames` only."""
        kept = n_frames // self._block_frames
        del self._blocks[kept + 1 :]
        self.current.n_frames = min(self.current.n_frames, n_frames - kept * self._block_frames)

    def raise_failure(self) -> None:
        """Memory does not fail."""

    def flush(self) -> None:
        """There is nothing to commit."""

    def close(self) -> None:
        """The frames stay readable."""
