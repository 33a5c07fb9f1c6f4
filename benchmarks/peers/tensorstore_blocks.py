"""TensorStore, writing the shards, chunks and codecs that flytraj writes, a block of frames at a time."""

from __future__ import annotations

import copy
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from numpy.typing import NDArray

from benchmarks.data import Frames
from benchmarks.peers import Reader, count_equal

PACKAGES = ("tensorstore",)
SYNCS = True

_SHARD_WORLDS = 256
_FINE_FRAMES = 64


def record(path: Path, frames: Frames, *, in_flight: int = 1, layout: str = "flytraj") -> None:
    """Fill a block, write it; with `in_flight` blocks being written or filled at once.

    With `layout` "fine" or "by-world", which are for reading, everything is written at once.
    """
    n_frames, n_worlds, nq = frames.shape
    metadata = _flytraj_metadata(frames)
    if layout != "flytraj":
        sharding = metadata["codecs"][0]["configuration"]
        sharding["chunk_shape"] = [1, _FINE_FRAMES if layout == "fine" else n_frames, nq]
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = [_SHARD_WORLDS, n_frames, nq]
        _open(path, metadata=metadata, create=True).write(frames.states.swapaxes(0, 1)).result()
        return
    store = _open(path, metadata=metadata, create=True)
    block_frames = metadata["chunk_grid"]["configuration"]["chunk_shape"][1]
    blocks = deque(np.empty((block_frames, n_worlds, nq), frames.states.dtype) for _ in range(in_flight))
    pending: deque[Any] = deque()
    for i, states in enumerate(frames):
        blocks[0][i % block_frames] = states
        done = i + 1
        if done % block_frames == 0 or done == n_frames:
            first = i // block_frames * block_frames
            pending.append(store[:, first:done].write(blocks[0][: done - first].swapaxes(0, 1)))
            blocks.rotate()
            if len(pending) == in_flight:
                pending.popleft().result()
    for future in pending:
        future.result()


def surviving_frames(path: Path, frames: Frames, **options: Any) -> int:
    """Read what is there; missing shards read as NaN."""
    del options
    return count_equal(open_reader(path)(slice(None), slice(None)).swapaxes(0, 1), frames)


def open_reader(path: Path, **options: Any) -> Reader:
    """TensorStore's own indexing."""
    del options
    store = _open(path)

    def read(worlds: slice, frames: slice) -> NDArray[np.float32]:
        values: NDArray[np.float32] = store[worlds, frames].read().result()
        return values

    return read


def _open(path: Path, **options: Any) -> Any:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    if "metadata" in options:
        spec["metadata"] = options.pop("metadata")
    return ts.open(spec, **options).result()


def _flytraj_metadata(frames: Frames) -> dict[str, Any]:
    from flytraj.schema import make_schema
    from flytraj.store.description import Description
    from flytraj.store.layout import choose_layout

    n_frames, n_worlds, nq = frames.shape
    schema = make_schema(None, nq=nq, dtype=frames.states.dtype)
    description = Description.create(
        schema,
        n_worlds,
        choose_layout(schema, n_worlds),
        compression="lz4",
        clock={},
        model={},
        info={},
        labels={},
        blobs={},
    )
    document = description.documents["qpos"]
    kept = {key: value for key, value in document.items() if key != "storage_transformers"}
    kept["shape"] = [n_worlds, n_frames, nq]
    return copy.deepcopy(kept)
