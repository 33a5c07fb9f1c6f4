"""The commit: data first, then the root document, which makes all arrays longer together.

Shards are only ever replaced whole, by shards that hold what they held. A reader goes by the root alone, so it
sees what was committed before or what is committed now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.store.description import ROOT, Description
from flytraj.store.engine import REWRITING, Engine, Part, Writing, chunk_keys, touched_keys

__all__ = [
    "TimeChunk",
    "begin_frames",
    "clear_tail",
    "commit",
    "commit_frames",
    "follow",
    "frame_chunks",
    "read_frames",
    "to_json",
    "whole_block",
    "write_frames",
]


def write_frames(
    engine: Engine,
    description: Description,
    first_frame: int,
    times: NDArray[np.float64],
    arrays: Mapping[str, NDArray[Any]],
) -> Description:
    """Write frames of one block and commit them.

    Args:
        engine: The store.
        description: The dataset as committed.
        first_frame: First frame of the block.
        times: `(n_frames,)` recording times of the block's frames.
        arrays: Name to `(n_worlds, n_frames, …)` array.

    Returns:
        The dataset as it is now committed.
    """
    begin_frames(engine, description, TimeChunk(engine), first_frame, times, arrays).wait()
    return commit(engine, description.with_frames(first_frame + len(times)))


class TimeChunk:
    """The chunk of `time` that is being filled, in memory: reading it back for each block would wait for shards.

    Args:
        engine: The store.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._begin = -1
        self._values = np.empty(0)

    def part(self, description: Description, first_frame: int, times: NDArray[np.float64]) -> Part:
        """The chunk that a block falls in, whole: what it held, the block's times, and fill."""
        size = description.layout.time_chunk
        begin = first_frame // size * size
        if begin != self._begin:
            self._values = np.full(size, np.nan)
            if first_frame > begin:
                document = description.documents["time"]
                held = self._engine.read_array("time", document, (slice(begin, first_frame),))
                self._values[: len(held)] = held
            self._begin = begin
        end = first_frame - begin + len(times)
        self._values[first_frame - begin : end] = times
        self._values[end:] = np.nan
        return Part("time", description.documents["time"], (begin,), self._values.copy())


def begin_frames(
    engine: Engine,
    description: Description,
    time_chunk: TimeChunk,
    first_frame: int,
    times: NDArray[np.float64],
    arrays: Mapping[str, NDArray[Any]],
) -> Writing:
    """Begin to write the shards of a block: what they held, the frames given, and fill.

    Blocks may be on their way side by side: each has shards of its own, and a later one's chunk of `time` holds
    the times of those before it.
    """
    parts = [*_shards(description, first_frame, arrays), time_chunk.part(description, first_frame, times)]
    return engine.begin_write(parts)


def commit_frames(engine: Engine, description: Description, n_frames: int) -> Description:
    """Commit frames that are durable, up to the `n_frames`-th; `follow` is left to the caller."""
    description = description.with_frames(n_frames)
    engine.replace(ROOT, description.to_json())
    return description


def commit(engine: Engine, description: Description) -> Description:
    """Make a dataset's state what a description says, atomically; arrays' own documents follow."""
    engine.replace(ROOT, description.to_json())
    follow(engine, description)
    return description


def follow(engine: Engine, description: Description) -> None:
    """Let arrays' own documents say what the root says. Readers go by the root: it need not be at once."""
    for name, document in description.arrays.items():
        if "frame" in document["dimension_names"]:
            engine.replace(f"{name}/{ROOT}", to_json(document), durable=False)


def to_json(document: Mapping[str, Any]) -> bytes:
    """An array's or group's own document."""
    return json.dumps(document).encode()


def read_frames(
    engine: Engine, description: Description, first: int, last: int
) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
    """Committed frames `first` to `last` (exclusive): times, and name to `(n_worlds, n_frames, …)` array."""
    frames = slice(first, last)
    arrays = {}
    for variable in description.schema.variables:
        document = description.documents[variable.name]
        box = [slice(0, size) for size in document["shape"]]
        box[1] = frames
        arrays[variable.name] = engine.read_array(variable.name, document, tuple(box))
    return engine.read_array("time", description.documents["time"], (frames,)), arrays


def clear_tail(engine: Engine, description: Description) -> None:
    """Fill what lies behind the last frame in the shards that hold it, so that nothing can bring it back."""
    block_frames = description.layout.block_frames
    first = description.n_frames // block_frames * block_frames
    parts: list[Part] = []
    if first < description.n_frames:
        times, arrays = read_frames(engine, description, first, description.n_frames)
        parts = [*_shards(description, first, arrays), TimeChunk(engine).part(description, first, times)]
    elif first % description.layout.time_chunk:
        parts = [TimeChunk(engine).part(description, first, np.empty(0))]
    _rewrite(engine, parts)


def _rewrite(engine: Engine, parts: list[Part]) -> None:
    """Write shards that may be damaged now: made elsewhere, since an engine may look into one that it replaces."""
    moves = [
        (f"{REWRITING}/{key}", key)
        for part in parts
        for key in touched_keys(part.name, part.document, part.box)
    ]
    engine.delete(made for made, _ in moves)
    engine.write(replace(part, name=f"{REWRITING}/{part.name}") for part in parts)
    for made, key in moves:
        engine.replace(key, engine.read(made) or b"")
    engine.delete(made for made, _ in moves)


def frame_chunks(name: str, document: Mapping[str, Any], frames: range) -> Iterator[str]:
    """Keys of an array's shards that begin within a stretch of frames."""
    places = []
    chunk_shape = document["chunk_grid"]["configuration"]["chunk_shape"]
    for dim, size, chunk in zip(document["dimension_names"], document["shape"], chunk_shape, strict=True):
        if dim == "frame":
            places.append(range(-(-frames.start // chunk), -(-frames.stop // chunk)))
        else:
            places.append(range(-(-size // chunk)))
    return chunk_keys(name, document, places)


def _shards(description: Description, first_frame: int, arrays: Mapping[str, NDArray[Any]]) -> Iterator[Part]:
    for name, values in arrays.items():
        if values.size:
            start = (0, first_frame) + (0,) * (values.ndim - 2)
            whole = whole_block(values, description.layout.block_frames)
            yield Part(name, description.documents[name], start, whole)


def whole_block(values: NDArray[Any], block_frames: int) -> NDArray[Any]:
    """The values with the rest of the block's frames filled, so that a shard never holds an older run's."""
    if values.shape[1] == block_frames:
        return values
    whole = np.full((values.shape[0], block_frames, *values.shape[2:]), _fill(values.dtype), values.dtype)
    whole[:, : values.shape[1]] = values
    return whole


def _fill(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else np.zeros((), dtype)[()]
