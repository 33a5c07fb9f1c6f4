"""Reading arrays shard by shard, to tell which of them are lost or damaged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from flytraj.errors import CorruptDatasetError, DatasetNotFoundError
from flytraj.schema import Variable
from flytraj.store.description import Description
from flytraj.store.engine import Engine, Part, touched_keys
from flytraj.store.report import Problem

__all__ = [
    "boxes",
    "by_shard",
    "chunk_frames",
    "damage_kind",
    "damaged_shards",
    "read_or_error",
    "shard_shape",
    "stretches",
]

_READ_BYTES = 32 * 2**20


def read_or_error(
    engine: Engine, name: str, document: dict[str, Any], box: tuple[slice, ...]
) -> NDArray[Any] | OSError:
    """Values of a box, or the error that tells why there are none."""
    try:
        return engine.read_array(name, document, box)
    except DatasetNotFoundError:
        raise
    except OSError as error:
        return error


def damage_kind(error: Exception) -> str:
    """Whether it is the data that is damaged, or the machine that could not read it."""
    return "corrupt" if isinstance(error, (CorruptDatasetError, ValueError)) else "unreadable"


def damaged_shards(
    engine: Engine, name: str, document: dict[str, Any], box: tuple[slice, ...]
) -> Iterator[Problem]:
    """The damaged shards of a box, each with the frames that cannot be read."""
    axis = document["dimension_names"].index("frame")
    shape = shard_shape(document)
    for frames in stretches(box[axis].stop, shape[axis], box[axis].start):
        for worlds in stretches(box[0].stop, shape[0], box[0].start) if axis else [None]:
            shard = (frames,) if worlds is None else (worlds, frames, *box[2:])
            error = read_or_error(engine, name, document, shard)
            if isinstance(error, OSError):
                kind, bad = _where(engine, name, document, shard, error)
                yield Problem(kind, name, worlds and (worlds.start, worlds.stop), bad, str(error))


def boxes(description: Description, variable: Variable) -> Iterator[tuple[slice, ...]]:
    """Boxes of whole shards, as large as memory allows, that cover a variable; frames run fastest."""
    document = description.documents[variable.name]
    shard_worlds, shard_frames = shard_shape(document)[:2]
    row, chunk = max(1, variable.row_bytes), chunk_frames(document, 1)
    frames_step = shard_frames
    if shard_worlds * shard_frames * row > _READ_BYTES:
        frames_step = max(1, _READ_BYTES // (shard_worlds * chunk * row)) * chunk
    worlds_step = max(1, _READ_BYTES // (frames_step * row * shard_worlds)) * shard_worlds
    for worlds in stretches(description.n_worlds, worlds_step):
        for frames in stretches(description.n_frames, frames_step):
            yield (worlds, frames, *(slice(0, size) for size in variable.shape))


def by_shard(part: Part) -> Iterator[Part]:
    """The parts of a part, a shard each."""
    sizes = shard_shape(part.document)
    for box in itertools.product(
        *(stretches(where.stop, size, where.start) for where, size in zip(part.box, sizes, strict=True))
    ):
        place = [
            slice(where.start - first, where.stop - first)
            for where, first in zip(box, part.start, strict=True)
        ]
        yield replace(part, start=tuple(where.start for where in box), values=part.values[tuple(place)])


def stretches(stop: int, step: int, start: int = 0) -> Iterator[slice]:
    """Slices from `start` to `stop` that end at multiples of `step`."""
    while start < stop:
        end = min(stop, (start // step + 1) * step)
        yield slice(start, end)
        start = end


def shard_shape(document: Mapping[str, Any]) -> list[int]:
    """Sizes of an array's shards, a file each."""
    return [int(size) for size in document["chunk_grid"]["configuration"]["chunk_shape"]]


def chunk_frames(document: Mapping[str, Any], axis: int) -> int:
    """Frames of the smallest part of an array that is read on its own."""
    for codec in document["codecs"]:
        if codec["name"] == "sharding_indexed":
            return int(codec["configuration"]["chunk_shape"][axis])
    return shard_shape(document)[axis]


def _where(
    engine: Engine, name: str, document: dict[str, Any], shard: tuple[slice, ...], error: OSError
) -> tuple[str, tuple[int, int]]:
    """What is wrong with a shard, and the first and one past the last frame that cannot be read."""
    kind, axis = damage_kind(error), document["dimension_names"].index("frame")
    whole = (shard[axis].start, shard[axis].stop)
    if kind == "unreadable":
        return kind, whole
    if engine.read(next(touched_keys(name, document, shard))) is None:
        return "missing", whole
    bad: list[int] = []
    for frames in stretches(shard[axis].stop, chunk_frames(document, axis), shard[axis].start):
        part = (*shard[:axis], frames, *shard[axis + 1 :])
        if isinstance(read_or_error(engine, name, document, part), OSError):
            bad += [frames.start, frames.stop]
    return kind, (min(bad), max(bad)) if bad else whole
