"""How a dataset is cut into blocks, shards and chunks.

A block is what is committed together: `block_frames` frames of all worlds. Each variable's part of a block is
cut by worlds into shards, one file each, and a shard into chunks of a few worlds, the unit that is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from flytraj.errors import FormatError, InvalidArgumentError
from flytraj.schema import Schema, Variable

__all__ = ["Layout", "choose_layout"]

BLOCK_BYTES = 24 * 2**20
SHARD_BYTES = 2 * 2**20
CHUNK_BYTES = 64 * 2**10
MAX_BLOCK_BYTES = 2**31
MAX_BLOCK_FRAMES = 4096
CHUNK_FRAMES = 64
TIME_CHUNK_FRAMES = 16384


@dataclass(frozen=True)
class Layout:
    """Sizes of blocks, shards and chunks; all powers of two unless given by hand.

    Attributes:
        block_frames: Frames of a block, and of a shard.
        chunk_frames: Frames of a chunk; divides `block_frames`.
        shard_bytes: Shards hold the power of two of worlds that first reaches this.
        chunk_bytes: Chunks hold the power of two of worlds that stays within this, at least one.
    """

    block_frames: int
    chunk_frames: int
    shard_bytes: int = SHARD_BYTES
    chunk_bytes: int = CHUNK_BYTES

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"{name} of a layout must be a positive integer, found {value!r}.")
        if self.block_frames % self.chunk_frames:
            raise InvalidArgumentError(
                f"chunk_frames ({self.chunk_frames}) must divide block_frames ({self.block_frames})."
            )

    @property
    def time_chunk(self) -> int:
        """Frames of a chunk of `time`: whole blocks."""
        return max(1, TIME_CHUNK_FRAMES // self.block_frames) * self.block_frames

    def worlds(self, variable: Variable, n_worlds: int) -> tuple[int, int]:
        """Worlds of a shard and of a chunk of a variable."""
        row = max(1, variable.row_bytes)
        shard, chunk = 1, 1
        while shard < n_worlds and shard * row * self.block_frames < self.shard_bytes:
            shard *= 2
        while 2 * chunk <= shard and 2 * chunk * row * self.chunk_frames <= self.chunk_bytes:
            chunk *= 2
        return shard, chunk

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """Read a layout from a dataset's attributes.

        Raises:
            FormatError: They are damaged.
        """
        try:
            return cls(**{field.name: attributes[field.name] for field in fields(cls)})
        except (KeyError, TypeError, InvalidArgumentError) as error:
            raise FormatError(f"The dataset's layout is damaged: {error!r}.") from error


def choose_layout(
    schema: Schema, n_worlds: int, *, block_frames: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Layout:
    """Choose a layout from the size of a frame.

    Args:
        schema: The variables.
        n_worlds: Number of recorded worlds.
        block_frames: Frames of a block, to override the choice.
        block_bytes: Bytes a block may take; a block has at least one frame.

    Raises:
        InvalidArgumentError: A block of so many frames is too large.
    """
    if block_frames is None:
        block_frames = 1
        frame_bytes = max(1, schema.row_bytes * n_worlds)
        while block_frames < MAX_BLOCK_FRAMES and 2 * block_frames * frame_bytes <= block_bytes:
            block_frames *= 2
    elif block_frames * max(8, schema.row_bytes * n_worlds) > MAX_BLOCK_BYTES:
        raise InvalidArgumentError(
            f"A block of {block_frames} frames takes {block_frames * schema.row_bytes * n_worlds} bytes of memory; "
            f"{MAX_BLOCK_BYTES} are allowed. Leave block_frames out, or make it smaller."
        )
    chunk_frames = CHUNK_FRAMES
    while block_frames % chunk_frames:
        chunk_frames //= 2
    return Layout(block_frames, chunk_frames)
