"""zarr-python: one sharded array, written and made longer a block of frames at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec

from benchmarks.data import Frames
from benchmarks.peers import Reader, count_equal

PACKAGES = ("zarr", "numcodecs")
SYNCS = False

_BLOCK_FRAMES = 32
_SHARD_WORLDS = 256
_CHUNK_WORLDS = 16


def record(path: Path, frames: Frames) -> None:
    """Fill a block, make the array longer, assign it: all shards are written whole."""
    n_frames, n_worlds, nq = frames.shape
    array = zarr.create_array(
        path,
        shape=(n_worlds, 0, nq),
        shards=(_SHARD_WORLDS, _BLOCK_FRAMES, nq),
        chunks=(_CHUNK_WORLDS, _BLOCK_FRAMES, nq),
        dtype=frames.states.dtype,
        compressors=BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"),
        fill_value=np.nan,
    )
    block = np.empty((_BLOCK_FRAMES, n_worlds, nq), frames.states.dtype)
    for i, states in enumerate(frames):
        block[i % _BLOCK_FRAMES] = states
        done = i + 1
        if done % _BLOCK_FRAMES == 0 or done == n_frames:
            first = i // _BLOCK_FRAMES * _BLOCK_FRAMES
            array.resize((n_worlds, done, nq))
            array[:, first:done] = block[: done - first].swapaxes(0, 1)


def surviving_frames(path: Path, frames: Frames) -> int:
    """Read what is there."""
    return count_equal(open_reader(path)(slice(None), slice(None)).swapaxes(0, 1), frames)


def open_reader(path: Path) -> Reader:
    """zarr-python's own indexing."""
    array = zarr.open_array(path, mode="r")

    def read(worlds: slice, frames: slice) -> NDArray[np.float32]:
        return np.asarray(array[worlds, frames])

    return read
