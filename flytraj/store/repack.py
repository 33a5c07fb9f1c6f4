"""Rewriting a dataset for how it is read, or for the archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flytraj.errors import CorruptDatasetError, DatasetExistsError, InvalidArgumentError
from flytraj.schema import COORDINATES, Schema, Variable, as_number_dtype
from flytraj.store.commit import TimeChunk, commit, whole_block
from flytraj.store.create import COMPRESSIONS, Claim, Compression, now, read_blob, read_description
from flytraj.store.description import Description
from flytraj.store.engine import Engine, Part, open_engine
from flytraj.store.layout import Layout
from flytraj.store.rounding import quaternion_starts, round_within

__all__ = ["PackLayout", "repack"]

PackLayout = Literal["by-world", "by-time"]

_PIECE_BYTES = 32 * 2**20
_BLOCK_BYTES = 256 * 2**20
Progress = Callable[[int, int], None]


def repack(
    src: Any,
    dst: Any,
    *,
    layout: PackLayout = "by-world",
    compression: Compression = "zstd",
    dtype: DTypeLike | None = None,
    precision: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Rewrite a dataset for analysis or archive, in bounded memory, and verify it against its source.

    An interrupted repack goes on where it stopped when it is called again with the same arguments.

    Args:
        src: The dataset to read.
        dst: Path or Zarr store of the new one.
        layout: `"by-world"` for reading whole runs of single worlds, `"by-time"` for reading moments of all.
        compression: `"zstd"`, `"lz4"` or `"none"`.
        dtype: Dtype of floating-point fields and channels; None keeps theirs.
        precision: Largest absolute error of a stored value, proven for each; quaternions stay unit. None stores
            every value as it is.
        progress: Called with the steps done and their number: writing and verifying each block.

    Raises:
        DatasetExistsError: There is something else at `dst`, or a repack that is done.
        InvalidArgumentError: An argument cannot be used, or `dtype` cannot hold a value within `precision`.
        CorruptDatasetError: The source is damaged, or what was written is not what was read.
    """
    if layout not in get_args(PackLayout) or compression not in COMPRESSIONS:
        raise InvalidArgumentError(f"There is no layout {layout!r} with compression {compression!r}.")
    if precision is not None and not precision > 0:
        raise InvalidArgumentError(f"precision must be positive, found {precision!r}.")
    source = open_engine(src)
    old = read_description(source)
    schema = _schema(old.schema, dtype)
    job = {
        "source": str(source), "created": old.info.get("created"), "n_frames": old.n_frames, "layout": layout,
        "compression": compression, "dtype": None if dtype is None else str(np.dtype(dtype)),
        "precision": precision,
    }  # fmt: skip
    claim, new = _claim(source, old, dst, schema, _layout(layout, schema, old), compression, job)
    try:
        convert = _Converter(source, old, schema, precision)
        blocks = _blocks(new, old.n_frames)
        for number, (first, last) in enumerate(blocks):
            if last > new.n_frames:
                _copy(convert, claim.engine, new, first, last)
                new = commit(claim.engine, new.with_frames(last))
            if progress is not None:
                progress(number + 1, 2 * len(blocks))
        for number, (first, last) in enumerate(blocks):
            _verify(convert, claim.engine, new, first, last)
            if progress is not None:
                progress(len(blocks) + number + 1, 2 * len(blocks))
        commit(claim.engine, replace(new, info={**new.info, "repack": {**job, "verified": True}}))
    except BaseException:
        if not new.n_frames and claim.existing is None:
            claim.discard()
        raise
    finally:
        claim.engine.unlock()


class _Converter:
    """Reads boxes of the source as they are to be stored."""

    def __init__(self, source: Engine, old: Description, schema: Schema, precision: float | None) -> None:
        layout = read_blob(source, old, "layout")
        kinematic = None if layout is None else json.loads(layout.tobytes())
        self._source = source
        self._old = old
        self._precision = precision
        self.schema = schema
        self._quaternions = {v.name: quaternion_starts(v, kinematic) for v in schema.variables}

    def raw(self, name: str, worlds: slice, frames: slice) -> NDArray[Any]:
        """The source's values."""
        document = self._old.documents[name]
        rest = tuple(slice(0, size) for size in document["shape"][2:])
        return self._source.read_array(name, document, (worlds, frames, *rest))

    def times(self, frames: slice) -> NDArray[np.float64]:
        """The source's recording times."""
        return self._source.read_array("time", self._old.documents["time"], (frames,))

    def convert(self, variable: Variable, values: NDArray[Any]) -> NDArray[Any]:
        """Values as they are stored."""
        if self._precision is None or variable.name in COORDINATES or variable.dtype.kind != "f":
            return values.astype(variable.dtype, copy=False)
        return round_within(values, self._precision, variable.dtype, self._quaternions[variable.name])

    def within(self, variable: Variable, stored: NDArray[Any], values: NDArray[Any]) -> bool:
        """Whether every stored value is what it should be, and within the precision of the source's."""
        if stored.tobytes() != np.ascontiguousarray(self.convert(variable, values)).tobytes():
            return False
        if self._precision is None or variable.name in COORDINATES or variable.dtype.kind != "f":
            return True
        error = np.abs(stored.astype(np.float64) - values.astype(np.float64))
        return not bool((error > self._precision).any())


def _schema(schema: Schema, dtype: DTypeLike | None) -> Schema:
    if dtype is None:
        return schema
    stored = as_number_dtype("dtype", dtype, kinds="f")
    variables = tuple(
        replace(v, dtype=stored) if v.dtype.kind == "f" and v.name not in COORDINATES else v
        for v in schema.variables
    )
    return replace(schema, variables=variables)


def _layout(kind: PackLayout, schema: Schema, old: Description) -> Layout:
    if kind == "by-time":
        frames = min(32, _power(old.n_frames))
        return Layout(frames, 1, shard_bytes=8 * 2**20, chunk_bytes=256 * 2**10)
    frame_bytes = max(1, schema.row_bytes * old.n_worlds)
    frames = min(4096, _power(old.n_frames))
    while frames > 1 and frames * frame_bytes > _BLOCK_BYTES:
        frames //= 2
    chunk_frames = frames
    while chunk_frames > 64 and chunk_frames * max(v.row_bytes for v in schema.variables) > 256 * 2**10:
        chunk_frames //= 2
    return Layout(frames, chunk_frames, shard_bytes=8 * 2**20, chunk_bytes=64 * 2**10)


def _claim(
    source: Engine,
    old: Description,
    dst: Any,
    schema: Schema,
    layout: Layout,
    compression: Compression,
    job: dict[str, Any],
) -> tuple[Claim, Description]:
    """The destination, locked: a new dataset, or the same job's, to go on with."""
    claim = Claim(dst, "a")
    if claim.existing is not None:
        found = dict(claim.existing.info.get("repack", {}))
        done = found.pop("verified", False)
        if found == job and not done:
            return claim, claim.existing
        claim.release()
        state = "is done already" if found == job else "holds another dataset"
        raise DatasetExistsError(f"{claim.engine} {state}: choose another path.")
    labels = {
        name: source.read_labels(name, document)
        for name, document in old.arrays.items()
        if document["data_type"] == "string"
    }
    blobs = {
        name.removeprefix("model/"): data
        for name in old.arrays
        if name.startswith("model/")
        and (data := read_blob(source, old, name.removeprefix("model/"))) is not None
    }
    new = Description.create(
        schema,
        old.n_worlds,
        layout,
        compression=compression,
        clock=old.clock,
        model=old.model,
        info={**old.info, "repacked": now(), "repack": {**job, "verified": False}},
        labels={dim: len(names) for dim, names in labels.items()},
        blobs={name: len(data) for name, data in blobs.items()},
    )
    worlds = source.read_array("world", old.documents["world"], (slice(0, old.n_worlds),))
    try:
        claim.make(new, worlds, blobs, labels)
    except BaseException:
        claim.release()
        raise
    return claim, new


def _blocks(new: Description, n_frames: int) -> list[tuple[int, int]]:
    size = new.layout.block_frames
    return [(first, min(first + size, n_frames)) for first in range(0, n_frames, size)]


def _pieces(new: Description, variable: Variable) -> Iterator[slice]:
    """Worlds of whole shards that fit in memory together."""
    shard = new.layout.worlds(variable, new.n_worlds)[0]
    rows = max(1, _PIECE_BYTES // (max(1, variable.row_bytes) * new.layout.block_frames * shard))
    step = shard * rows
    for start in range(0, new.n_worlds, step):
        yield slice(start, min(start + step, new.n_worlds))


def _copy(convert: _Converter, target: Engine, new: Description, first: int, last: int) -> None:
    for variable in convert.schema.variables:
        for worlds in _pieces(new, variable):
            values = convert.convert(variable, convert.raw(variable.name, worlds, slice(first, last)))
            if not values.size:
                continue
            whole = whole_block(values, new.layout.block_frames)
            start = (worlds.start, first) + (0,) * len(variable.shape)
            target.write([Part(variable.name, new.documents[variable.name], start, whole)])
    target.write([TimeChunk(target).part(new, first, convert.times(slice(first, last)))])


def _verify(convert: _Converter, target: Engine, new: Description, first: int, last: int) -> None:
    frames = slice(first, last)
    for variable in convert.schema.variables:
        document = new.documents[variable.name]
        rest = tuple(slice(0, size) for size in variable.shape)
        for worlds in _pieces(new, variable):
            stored = target.read_array(variable.name, document, (worlds, frames, *rest))
            if not convert.within(variable, stored, convert.raw(variable.name, worlds, frames)):
                raise CorruptDatasetError(
                    f"{target}: {variable.name} of worlds {worlds.start} to {worlds.stop - 1}, frames {first} to "
                    f"{last - 1} is not what was written. Remove it and repack again."
                )
    if not np.array_equal(target.read_array("time", new.documents["time"], (frames,)), convert.times(frames)):
        raise CorruptDatasetError(f"{target}: time of frames {first} to {last - 1} is not what was written.")


def _power(n: int) -> int:
    """The smallest power of two that is not below `n`."""
    return 1 << max(0, n - 1).bit_length()
