"""What lies in a dataset's store and is not part of what is committed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from flytraj.store.description import ROOT, Description
from flytraj.store.engine import Engine, is_unfinished, touched_keys
from flytraj.store.recover import find_recoverable, find_untrusted
from flytraj.store.report import Problem
from flytraj.store.shards import chunk_frames, read_or_error, shard_shape, stretches

__all__ = ["document_problems", "file_problems", "frame_shards", "tail_problems"]


def document_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    """Arrays whose own document is not what the root says of them."""
    for name, expected in description.documents.items():
        try:
            found = json.loads(engine.read(f"{name}/{ROOT}") or b"")
            shape = found.get("shape")
        except (ValueError, AttributeError, RecursionError):
            yield Problem("metadata", name, None, None, "its own zarr.json is missing or damaged.")
            continue
        if shape != expected.get("shape"):
            message = f"its own zarr.json says shape {shape}, the root {expected.get('shape')}."
            yield Problem("length", name, None, None, message)
        elif found != expected:
            yield Problem("metadata", name, None, None, "its own zarr.json is not what the root says.")


def tail_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    """Values behind the last frame, in the shards that hold it."""
    n_frames = description.n_frames
    for name, document in description.arrays.items():
        dims, shape = document["dimension_names"], document["shape"]
        if "frame" not in dims or not math.prod(shape):
            continue
        axis = dims.index("frame")
        last = -(-n_frames // shard_shape(document)[axis]) * shard_shape(document)[axis]
        grown = {**document, "shape": [*shape[:axis], last, *shape[axis + 1 :]]}
        everything = [slice(0, size) for size in shape]
        for frames in stretches(last, chunk_frames(document, axis), n_frames):
            if not _is_fill(engine, name, grown, (*everything[:axis], frames, *everything[axis + 1 :])):
                message = "there are values behind the last committed frame."
                yield Problem("tail", name, None, (frames.start, last), message)
                break


def file_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    """Files that were being written, shards behind the last frame, and block files."""
    for key in engine.all_keys():
        if is_unfinished(key):
            yield Problem("unfinished", "", None, None, f"{key} was being written when its writer died.")
    n_frames = description.n_frames
    beyond: dict[str, tuple[int, int, int]] = {}
    for name, _, frames in frame_shards(engine, description):
        if frames.start >= n_frames:
            count, first, last = beyond.get(name, (0, frames.start, frames.stop))
            beyond[name] = (count + 1, min(first, frames.start), max(last, frames.stop))
    for name, (count, first, last) in sorted(beyond.items()):
        message = f"shards that lie behind the last committed frame: {count}."
        yield Problem("tail", name, None, (first, last), message)
    if recoverable := find_recoverable(engine, description):
        message = "a recording that was killed left them; appending (mode='a') or repair commits them."
        yield Problem("recoverable", "", None, (n_frames, n_frames + recoverable), message)
    for path in find_untrusted(engine, description):
        message = f"{path} holds frames that are not committed and cannot be trusted; repair sets it aside."
        yield Problem("untrusted", "", None, None, message)


def frame_shards(engine: Engine, description: Description) -> Iterator[tuple[str, str, range]]:
    """Array, key and frames of each shard that is there, whether it is part of the dataset or not."""
    for key in engine.all_keys():
        name, _, chunk = key.partition("/")
        document = description.arrays.get(name)
        if document is None or "frame" not in document["dimension_names"]:
            continue
        axis = document["dimension_names"].index("frame")
        places = re.split(r"[./]", chunk)
        if places[0] == "c" and len(places) == len(document["shape"]) + 1 and places[axis + 1].isdecimal():
            size = shard_shape(document)[axis]
            first = int(places[axis + 1]) * size
            yield name, key, range(first, first + size)


def _is_fill(engine: Engine, name: str, document: dict[str, Any], box: tuple[slice, ...]) -> bool:
    values = read_or_error(engine, name, document, box)
    if isinstance(values, OSError):
        # A lost shard, or a damaged chunk with committed frames in it, is reported by those frames.
        axis = document["dimension_names"].index("frame")
        is_shared = box[axis].start % chunk_frames(document, axis)
        return bool(is_shared) or engine.read(next(touched_keys(name, document, box))) is None
    return bool((np.isnan(values) if values.dtype.kind == "f" else values == 0).all())
