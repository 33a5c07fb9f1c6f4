"""A block: the frames of all recorded worlds that are written together."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flytraj.schema import Schema

__all__ = ["Block", "BlockHeader", "read_block_header"]

_MAGIC = 0x314B4C4254594C46  # "FLYTBLK1"
_PAGE = mmap.PAGESIZE
_ZEROS = memoryview(bytes(2**20))
_HEADER_WORDS = 16
_FINGERPRINT_WORDS = 8


@dataclass(frozen=True)
class BlockHeader:
    """What a block file says of itself.

    Attributes:
        index: Which block of the dataset it holds: its first frame is `index * capacity`.
        n_frames: Frames that are complete.
        fits: Whether it is a block of the schema that was asked for, and whole.
        trusted: Whether its pages outlived nothing but processes: the machine has not been started anew
            since, so what was written before the count was advanced is there.
    """

    index: int
    n_frames: int
    fits: bool
    trusted: bool


class Block:
    """Buffers for the frames of one block, one array a variable, frame-major.

    In a file, the buffers are mapped memory whose pages outlive the process: a recording killed at any moment
    is recovered from them. The count of complete frames is advanced after a frame's copy.

    Args:
        schema: The variables.
        n_worlds: Number of recorded worlds.
        capacity: Frames in a full block.
        path: File to map; None for plain memory.
        readonly: Open a file that exists, to recover it.

    Attributes:
        arrays: Name to `(capacity, n_worlds, …)` array.
        time: `(capacity,)` float64 recording times in seconds.
    """

    def __init__(
        self,
        schema: Schema,
        n_worlds: int,
        capacity: int,
        *,
        path: Path | None = None,
        readonly: bool = False,
    ) -> None:
        self.capacity = capacity
        self.path = path
        buffer = _memory(_file_size(schema, n_worlds, capacity), path, readonly)
        self._header = np.frombuffer(buffer, np.int64, _HEADER_WORDS)
        offset = _PAGE
        mapped: dict[str, NDArray[Any]] = {}
        for name, (shape, dtype) in _buffers(schema, n_worlds, capacity).items():
            mapped[name] = np.frombuffer(buffer, dtype, math.prod(shape), offset).reshape(shape)
            offset += _whole_pages(mapped[name].nbytes)
        self.time = mapped.pop("time")
        self.arrays: Mapping[str, NDArray[Any]] = mapped
        if not readonly:
            self._header[_FINGERPRINT_WORDS:] = _layout_words(schema, n_worlds, capacity)
            self._header[3:5] = _boot_words()
            self.start(0)
            self._header[0] = _MAGIC

    @property
    def index(self) -> int:
        """Which block of the dataset this is."""
        return int(self._header[1])

    @property
    def n_frames(self) -> int:
        """Number of complete frames."""
        return int(self._header[2])

    @n_frames.setter
    def n_frames(self, value: int) -> None:
        self._header[2] = value

    @property
    def first_frame(self) -> int:
        """Frame of the dataset at which the block begins."""
        return self.index * self.capacity

    @property
    def n_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(array.nbytes for array in self.arrays.values()) + self.time.nbytes

    def start(self, index: int) -> Self:
        """Empty the block and make it the dataset's `index`-th."""
        self._header[2] = 0
        self._header[1] = index
        return self

    def remove_file(self) -> None:
        """Remove the file under the buffers; what is mapped stays usable."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def read_block_header(path: Path, schema: Schema, n_worlds: int, capacity: int) -> BlockHeader | None:
    """Read what a block file says of itself, without mapping it.

    Returns:
        The header; None if nothing was ever recorded into the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_HEADER_WORDS * 8)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    words = np.frombuffer(data.ljust(_HEADER_WORDS * 8, b"\0"), np.int64)
    if words[0] != _MAGIC:
        return None
    index, n_frames = int(words[1]), int(words[2])
    fits = (
        list(words[_FINGERPRINT_WORDS:]) == _layout_words(schema, n_worlds, capacity)
        and index >= 0
        and 0 <= n_frames <= capacity
        and size >= _file_size(schema, n_worlds, capacity)
    )
    boot = _boot_words()
    return BlockHeader(index, n_frames, fits, trusted=any(boot) and list(words[3:5]) == boot)


def _memory(size: int, path: Path | None, readonly: bool) -> mmap.mmap | NDArray[np.uint8]:
    if path is None:
        # Private memory in huge pages, as NumPy asks for it: half the time of a shared mapping's first touch.
        return np.empty(size, np.uint8)
    if readonly:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    with path.open("w+b") as file:
        # Space is claimed now: a full disk is an error here, not a fault in the middle of a copy. Zeros are
        # written, since pages that a write made are mapped many at once: a fifth of the time of touching holes.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        for offset in range(0, size, len(_ZEROS)):
            file.write(_ZEROS[: size - offset])
        file.flush()
        return mmap.mmap(file.fileno(), size)


def _buffers(
    schema: Schema, n_worlds: int, capacity: int
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each buffer, in the order they lie in the file."""
    variables = {v.name: ((capacity, n_worlds, *v.shape), v.dtype) for v in schema.variables}
    return {"time": ((capacity,), np.dtype(np.float64)), **variables}


def _file_size(schema: Schema, n_worlds: int, capacity: int) -> int:
    sizes = [
        math.prod(shape) * dtype.itemsize for shape, dtype in _buffers(schema, n_worlds, capacity).values()
    ]
    return _PAGE + sum(map(_whole_pages, sizes))


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _layout_words(schema: Schema, n_worlds: int, capacity: int) -> list[int]:
    described = repr([(v.name, v.shape, v.dtype.str) for v in schema.variables]) + f"{n_worlds},{capacity}"
    words: list[int] = np.frombuffer(hashlib.blake2b(described.encode()).digest(), np.int64).tolist()
    return words


@cache
def _boot_words() -> list[int]:
    """Two words that change whenever the machine starts; zeros where it does not tell."""
    text = ""
    if sys.platform == "linux":
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text()
        except OSError:
            return [0, 0]
    elif sys.platform == "darwin":
        text = subprocess.run(
            ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        ).stdout
    digits = text.strip().replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.int64).tolist() if len(digits) == 32 else [0, 0]
