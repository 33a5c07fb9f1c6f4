"""Reading a few chunks of an array in a folder, in the thread that asks.

To hand a chunk to other threads and take it back costs more than to decode it. A chunk that is not as the format has
it is left to TensorStore, which reads it or says what is wrong.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import google_crc32c
import numcodecs.blosc
import numpy as np
from numpy.typing import NDArray

__all__ = ["ChunkReader"]

_CHECKSUM_BYTES = 4
_RESIDUE = 0x48674BC7  # CRC-32C of any data with their own CRC-32C behind them
_BLOSC_HEADER = struct.Struct("<4xI4xI")  # bytes after decoding, bytes before
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)


Places = slice | NDArray[np.int64]


class _Cut(NamedTuple):
    """Where a box and a chunk meet along one dim."""

    shard: int
    chunk: int
    of_chunk: Places
    of_box: Places


class ChunkReader:
    """Reads boxes of a sharded array whose chunks are as flytraj writes them.

    Args:
        folder: The array's folder.
        document: Its metadata document.
    """

    def __init__(self, folder: Path, document: Mapping[str, Any]) -> None:
        sharding = document["codecs"][0]["configuration"]
        self._prefix = f"{folder}/c."
        self._dtype = np.dtype(document["data_type"]).newbyteorder("<")
        self._chunk = tuple(sharding["chunk_shape"])
        shard = document["chunk_grid"]["configuration"]["chunk_shape"]
        self._grid = tuple(whole // part for whole, part in zip(shard, self._chunk, strict=True))
        self._index_size = 2 * math.prod(self._grid)
        self._index_bytes = 8 * self._index_size + _CHECKSUM_BYTES
        self._n_values = math.prod(self._chunk)
        self._n_bytes = self._n_values * self._dtype.itemsize
        names = [codec["name"] for codec in sharding["codecs"]]
        self._compressed = "blosc" in names
        order = sharding["codecs"][0]["configuration"]["order"] if names[0] == "transpose" else None
        order = range(len(self._chunk)) if order is None else order
        self._stored = tuple(self._chunk[axis] for axis in order)
        self._axes = tuple(np.argsort(order))

    @classmethod
    def of(cls, folder: Path, document: Mapping[str, Any]) -> Self | None:
        """A reader, or None for an array that is cut or encoded in another way."""
        codecs = document["codecs"]
        # Without its C part, google_crc32c takes longer than all else.
        if google_crc32c.implementation != "c" or [codec["name"] for codec in codecs] != ["sharding_indexed"]:
            return None
        inner = [codec["name"] for codec in codecs[0]["configuration"]["codecs"]]
        if inner[:1] == ["transpose"]:
            inner = inner[1:]
        return cls(folder, document) if inner in (["bytes", "blosc", "crc32c"], ["bytes", "crc32c"]) else None

    def n_chunks(self, box: tuple[Places, ...]) -> int:
        """How many chunks a box touches."""
        return math.prod(len(_touched(*args)) for args in zip(box, self._chunk, strict=True))

    def read(self, box: tuple[Places, ...]) -> NDArray[Any] | None:
        """Read a box: ranges, and an array of places along one dim at most.

        Returns:
            The values; None if a chunk is missing, damaged or not to be read.
        """
        shape = [part.stop - part.start if isinstance(part, slice) else len(part) for part in box]
        values = np.empty(shape, self._dtype)
        by_shard = []
        for part, size, n_chunks in zip(box, self._chunk, self._grid, strict=True):
            cuts = [_cut(part, size, number, n_chunks) for number in _touched(part, size)]
            by_shard.append([list(same) for _, same in itertools.groupby(cuts, lambda cut: cut.shard)])
        try:
            for shard in itertools.product(*by_shard):
                self._read_shard(shard, values)
        except (OSError, ValueError, RuntimeError, struct.error):
            return None
        return values

    def _read_shard(self, cuts: tuple[list[_Cut], ...], values: NDArray[Any]) -> None:
        # `open` and its file object take longer than all calls to the system here.
        file = os.open(self._prefix + ".".join([str(part[0].shard) for part in cuts]), _FLAGS)
        try:
            end = os.lseek(file, -self._index_bytes, os.SEEK_END)
            index = np.frombuffer(_checked(os.read(file, self._index_bytes)), "<u8", self._index_size)
            index = index.reshape(*self._grid, 2)
            for chunk in itertools.product(*cuts):
                offset, n_bytes = index[tuple([cut.chunk for cut in chunk])].tolist()
                if offset + n_bytes > end:
                    raise ValueError("The chunk is missing.")
                os.lseek(file, offset, os.SEEK_SET)
                decoded = self._decode(_checked(os.read(file, n_bytes)))
                values[tuple([cut.of_box for cut in chunk])] = decoded[tuple([cut.of_chunk for cut in chunk])]
        finally:
            os.close(file)

    def _decode(self, data: bytes) -> NDArray[Any]:
        if self._compressed:
            if _BLOSC_HEADER.unpack_from(data) != (self._n_bytes, len(data) - _CHECKSUM_BYTES):
                raise ValueError("The chunk has another size.")
            data = numcodecs.blosc.decompress(data)
        return np.frombuffer(data, self._dtype, self._n_values).reshape(self._stored).transpose(self._axes)


def _touched(part: Places, size: int) -> range | list[int]:
    """Numbers of the chunks of `size` that hold some places."""
    if isinstance(part, slice):
        return range(part.start // size, (part.stop - 1) // size + 1) if part.stop > part.start else range(0)
    numbers: list[int] = np.unique(part // size).tolist()
    return numbers


def _cut(part: Places, size: int, number: int, n_chunks: int) -> _Cut:
    shard, chunk = divmod(number, n_chunks)
    first = number * size
    if isinstance(part, slice):
        start, stop = max(part.start, first), min(part.stop, first + size)
        where = slice(start - first, stop - first), slice(start - part.start, stop - part.start)
        return _Cut(shard, chunk, *where)
    of_box = np.flatnonzero((part >= first) & (part < first + size))
    return _Cut(shard, chunk, part[of_box] - first, of_box)


def _checked(data: bytes) -> bytes:
    """Data that end with their checksum, if it is right."""
    if google_crc32c.value(data) != _RESIDUE:
        raise ValueError("The checksum is wrong.")
    return data
