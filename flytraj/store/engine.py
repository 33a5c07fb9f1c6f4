"""What a store must do for a dataset, and the choice of the engine that does it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, WriteError
from flytraj.outputs import outside_datasets

__all__ = [
    "REWRITING",
    "SCRATCH",
    "Engine",
    "Index",
    "Part",
    "Writing",
    "chunk_keys",
    "is_unfinished",
    "open_engine",
    "touched_keys",
]

SCRATCH = ".flytraj"
"""Folder in a dataset for what is not part of it: block files of a recording that goes on, what was set aside."""

REWRITING = f"{SCRATCH}/rewriting"
_UNFINISHED = (".partial", ".__lock")

Index = tuple[slice | NDArray[np.int64], ...]
"""One slice or array of integers a dim, taken along each on its own (NumPy's `np.ix_`)."""


@dataclass(frozen=True)
class Part:
    """Whole shards of an array, to be written.

    Attributes:
        name: Path of the array in the dataset.
        document: Its metadata document.
        start: First index along each dim.
        values: What to write; along each dim it ends on a shard's edge or the array's.
    """

    name: str
    document: dict[str, Any]
    start: tuple[int, ...]
    values: NDArray[Any]

    @property
    def box(self) -> tuple[slice, ...]:
        """Where the values go."""
        return tuple(
            slice(start, start + size) for start, size in zip(self.start, self.values.shape, strict=True)
        )


class Writing(Protocol):
    """Shards on their way to a store."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all are durable.

        Args:
            timeout: Most seconds to wait; None waits to the end.

        Returns:
            Whether it has ended.

        Raises:
            WriteError: It has ended and failed.
        """


class Engine(Protocol):
    """A place that holds one dataset.

    `folder` is the local folder, or None for any other store.
    """

    folder: Path | None

    def read(self, key: str) -> bytes | None:
        """The bytes under a key; None if there are none."""

    def replace(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Put bytes under a key: a reader sees the old or the new ones, whole."""

    def begin_write(self, parts: Iterable[Part]) -> Writing:
        """Begin to write shards, from values that stay as they are until it ends; each is replaced whole."""

    def write(self, parts: Iterable[Part]) -> None:
        """Write shards; each is replaced whole, and all are durable on return."""

    def read_array(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        """Read a box of an array.

        Raises:
            CorruptDatasetError: A chunk is missing or fails its checksum.
            OSError: It cannot be read for another reason, such as missing permission.
        """

    def read_points(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        """Read points: arrays of the index are broadcast together; their dims come first in the result.

        Raises:
            CorruptDatasetError: A chunk is missing or fails its checksum.
        """

    def write_labels(self, name: str, document: dict[str, Any], labels: list[str]) -> None:
        """Write an array of strings."""

    def read_labels(self, name: str, document: dict[str, Any]) -> list[str]:
        """Read an array of strings."""

    def all_keys(self) -> Iterator[str]:
        """All keys, in no order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove keys, those that are not there among them, durably."""

    def keep(self, keys: Iterable[str], folder: str) -> None:
        """Keep what is under some keys under `folder/key` too, whatever becomes of it."""

    def sync(self) -> None:
        """Make all that was written durable, with `durable=False` and labels too."""

    def lock(self) -> None:
        """Become the only writer.

        Raises:
            DatasetLockedError: There is another.
        """

    def unlock(self) -> None:
        """Let others write."""


def open_engine(store: Any, *, create: bool = False) -> Engine:
    """Make the engine for a path or a Zarr store.

    Args:
        store: Path of a local folder, URL that fsspec knows, or a Zarr store.
        create: Make the folder if there is none.

    Raises:
        InvalidArgumentError: It is no store, cannot be recorded into, or would be made inside of a dataset.
        MissingDependencyError: A URL's protocol needs a package that is not installed.
    """
    from flytraj.store.zarr_engine import ZarrEngine, local_root

    if create and getattr(store, "read_only", False):
        raise WriteError(f"{store} was opened read-only: open it for writing.")
    if create and not getattr(store, "supports_deletes", True):
        # A ZIP archive: nothing in it can be replaced, and without its end, written last, all of it is lost.
        raise InvalidArgumentError(f"{store} cannot be recorded into: record to a folder, and pack that.")
    folder = local_root(store)
    if folder is None:
        return ZarrEngine(store)
    from flytraj.store.folder_engine import FolderEngine

    if create:
        outside_datasets(folder.parent)
    return FolderEngine(Path(os.path.abspath(folder.expanduser())), create=create)


def chunk_keys(name: str, document: Mapping[str, Any], places: Iterable[Iterable[int]]) -> Iterator[str]:
    """Keys of an array's shards, given their numbers along each dim."""
    separator = document["chunk_key_encoding"]["configuration"]["separator"]
    for place in itertools.product(*places):
        yield f"{name}/{separator.join(['c', *map(str, place)])}"


def touched_keys(name: str, document: Mapping[str, Any], index: Index) -> Iterator[str]:
    """Keys of the shards that hold a box of an array."""
    places: list[Iterable[int]] = []
    for part, size in zip(index, document["chunk_grid"]["configuration"]["chunk_shape"], strict=True):
        if isinstance(part, slice):
            places.append(range(part.start // size, -(-part.stop // size)))
        else:
            places.append(np.unique(part // size).tolist())
    return chunk_keys(name, document, places)


def is_unfinished(key: str) -> bool:
    """Whether something is what was being written, under a name of its own, when its writer died."""
    return key.endswith(_UNFINISHED) or key.startswith(f"{REWRITING}/")
