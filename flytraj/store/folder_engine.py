"""A local folder, through TensorStore and the operating system."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from numpy.typing import NDArray

from flytraj.errors import CorruptDatasetError, DatasetLockedError, DatasetNotFoundError, WriteError
from flytraj.store.engine import Index, Part
from flytraj.store.lock import FolderLock
from flytraj.store.zarr_engine import local_store, read_labels, write_labels

__all__ = ["SCRATCH", "FolderEngine"]

SCRATCH = ".flytraj"
"""Folder for the block files of a recording that goes on; it lies in the dataset and goes with the recording."""

_GROWN = 2**40
_LOCK_PATIENCE = 0.25


class FolderEngine:
    """A dataset in a folder. Every replacement is atomic, and durable unless said otherwise."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder: Path | None = folder
        self._root = folder
        self._lock = FolderLock(folder)
        self._arrays: dict[tuple[str, tuple[int, ...]], Any] = {}
        if create:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WriteError(f"The folder {folder} cannot be made: {error.strerror}.") from error

    def __str__(self) -> str:
        return str(self._root)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self._root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def read(self, key: str) -> bytes | None:
        try:
            return (self._root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, key: str, data: bytes, *, durable: bool = True) -> None:
        path = self._root / key
        unfinished = path.with_name(f"{path.name}.partial")
        with _as_write_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            unfinished.replace(path)
            if durable:
                _sync_folder(path.parent)

    def write(self, parts: Iterable[Part]) -> None:
        pending = []
        with _as_write_error(self._root):
            for part in parts:
                array = self._open(part.name, part.document, grown=True)
                region = tuple(
                    slice(start, start + size)
                    for start, size in zip(part.start, part.values.shape, strict=True)
                )
                pending.append(array[region].write(part.values))
            for future in pending:
                future.result()

    def read_array(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        return self._read(name, document, lambda array: array.oindex[index])

    def read_points(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        return self._read(name, document, lambda array: array.vindex[index])

    def _read(self, name: str, document: dict[str, Any], select: Callable[[Any], Any]) -> NDArray[Any]:
        try:
            return np.asarray(select(self._open(name, document, grown=False)).read().result())
        except (ValueError, OSError, RuntimeError) as error:
            if not self._root.exists():
                raise DatasetNotFoundError(f"The dataset {self._root} is gone.") from error
            raise CorruptDatasetError(f"Array {name!r} of {self._root} cannot be read: {error}") from error

    def write_labels(self, name: str, document: dict[str, Any], labels: list[str]) -> None:
        with _as_write_error(self._root):
            write_labels(local_store(self._root), name, document, labels)

    def read_labels(self, name: str, document: dict[str, Any]) -> list[str]:
        return read_labels(local_store(self._root), name, document)

    def keys(self) -> list[str]:
        return sorted(
            path.relative_to(self._root).as_posix() for path in self._root.rglob("*") if path.is_file()
        )

    def delete(self, keys: Iterable[str]) -> None:
        with _as_write_error(self._root):
            for key in keys:
                path = self._root / key
                path.unlink(missing_ok=True)
                for parent in path.parents:
                    if parent == self._root or any(parent.iterdir()):
                        break
                    parent.rmdir()

    def lock(self) -> None:
        deadline = time.monotonic() + _LOCK_PATIENCE
        while not self._lock.acquire():
            if time.monotonic() > deadline:
                raise DatasetLockedError(
                    f"Another recorder is writing to {self._root}: close it, or record elsewhere."
                )
            time.sleep(0.02)

    def unlock(self) -> None:
        self._lock.release()

    def is_being_written(self) -> bool:
        """Whether a recorder, of this process or another, holds the dataset."""
        probe = FolderLock(self._root)
        if not probe.acquire():
            return True
        probe.release()
        return False

    def _open(self, name: str, document: dict[str, Any], *, grown: bool) -> Any:
        """Open an array by a document, so that the committed length counts and not the array's own file."""
        shape = list(document["shape"])
        if grown:
            shape = [
                _GROWN if dim == "frame" else size
                for dim, size in zip(document["dimension_names"], shape, strict=True)
            ]
        key = (name, tuple(shape))
        if key not in self._arrays:
            spec = {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": f"{self._root}/{name}/"},
                "metadata": {
                    **{k: v for k, v in document.items() if k != "storage_transformers"},
                    "shape": shape,
                },
                "assume_metadata": True,
                # A chunk that holds only the fill value is written too: a missing one is a loss.
                "store_data_equal_to_fill_value": True,
                "fill_missing_data_reads": False,
            }
            self._arrays[key] = ts.open(spec, context=_context(), read=True, write=True).result()
        return self._arrays[key]


@cache
def _context() -> Any:
    return ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_concurrency": {"limit": 16}})


@contextlib.contextmanager
def _as_write_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise WriteError(
            f"Writing to {path} failed: {getattr(error, 'strerror', None) or error}. What was committed stays."
        ) from error


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
