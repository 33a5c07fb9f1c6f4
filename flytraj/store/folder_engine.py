"""A local folder, through TensorStore and the operating system."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from numpy.typing import NDArray

from flytraj.errors import (
    CorruptDatasetError,
    DatasetLockedError,
    DatasetNotFoundError,
    FlytrajError,
    WriteError,
)
from flytraj.store.chunks import ChunkReader
from flytraj.store.engine import Index, Part, Writing, touched_keys
from flytraj.store.lock import LOCK_FILE, FolderLock, is_locked
from flytraj.store.points import read_points_by_row
from flytraj.store.shard_queue import ShardQueue, ShardWriting
from flytraj.store.shards import by_shard, chunk_frames
from flytraj.store.zarr_engine import ZarrEngine, local_store

__all__ = ["FolderEngine"]

_GROWN = 2**40
# Threads for files. Each has an arena of memory of its own that is never given back: with 16 a recording grew
# by 23 MiB from 160 frames to 1,600, with 2 by 4.
_WRITERS = 2
_READERS = 16
_FEW_CHUNKS = 64
_LOCK_PATIENCE = 0.25


class _FolderWriting:
    """Shards on their way to a folder."""

    def __init__(self, root: Path, shards: ShardWriting) -> None:
        self._root = root
        self._shards = shards

    def wait(self, timeout: float | None = None) -> bool:
        with _as_write_error(self._root):
            return self._shards.wait(timeout)


class FolderEngine:
    """A dataset in a folder. Every replacement is atomic, and durable unless said otherwise."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder: Path | None = folder
        self._root = folder
        self._lock = FolderLock(folder)
        self._arrays: dict[tuple[str, int], Any] = {}
        self._readers: dict[str, ChunkReader | None] = {}
        self._shards = ShardQueue(self._begin_shard)
        self._begun: dict[str, tuple[tuple[int, ...], Any]] = {}
        if create:
            try:
                _make_folder(folder)
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
            try:
                with unfinished.open("wb") as file:
                    file.write(data)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                unfinished.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
            if durable:
                _sync(path.parent)

    def begin_write(self, parts: Iterable[Part]) -> Writing:
        with _as_write_error(self._root):
            if _was_forked():
                self._write_in_child(list(parts))
                return _FolderWriting(self._root, ShardQueue(self._begin_shard).add([]))
            shards = itertools.chain.from_iterable(map(by_shard, parts))
            return _FolderWriting(self._root, self._shards.add(shards))

    def _begin_shard(self, part: Part) -> Any:
        before = self._begun.get(part.name)
        if before is not None and before[0] == part.start:
            # Values of two writes to one chunk are taken in any order, unless the first are taken already.
            before[1].exception()
        # Not copied first: the values stay until the shards are durable, and no cache holds on to them, as none is
        # larger than nothing and none of these arrays is read.
        future = self._open(part.name, part.document, _WRITERS)[part.box].write(
            part.values, can_reference_source_data_indefinitely=True
        )
        self._begun[part.name] = (part.start, future.copy)
        return future

    def write(self, parts: Iterable[Part]) -> None:
        self.begin_write(parts).wait()

    def read_array(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        few = self._read_few(name, document, index)
        if few is not None:
            return few
        if _was_forked():
            return self._by_zarr().read_array(name, document, index)
        return self._read(name, lambda: self._begin_read(name, document, index)())

    def read_points(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        if _was_forked():
            return self._by_zarr().read_points(name, document, index)
        worlds, frames, *rest = index
        if isinstance(worlds, np.ndarray) and isinstance(frames, np.ndarray) and _are_slices(rest):
            # TensorStore takes 10 µs a point.
            rows = frames // chunk_frames(document, 1)

            def begin(worlds: NDArray[np.int64], frames: slice) -> Callable[[], NDArray[Any]]:
                return self._begin_read(name, document, (worlds, frames, *rest))

            return self._read(name, lambda: read_points_by_row(worlds, frames, rows, begin))
        array = self._open(name, document, _READERS)
        return self._read(name, lambda: np.asarray(array.vindex[index].read().result()))

    def _read_few(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any] | None:
        """Values of a small box; None if it is not small, or cannot be read."""
        if name not in self._readers:
            self._readers[name] = ChunkReader.of(self._root / name, document)
        reader = self._readers[name]
        if reader is None:
            return None
        box = tuple(
            np.arange(part.start, part.stop, part.step)
            if isinstance(part, slice) and part.step not in (None, 1)
            else part
            for part in index
        )
        arrays = [part for part in box if isinstance(part, np.ndarray)]
        return reader.read(box) if len(arrays) < 2 and reader.n_chunks(box) <= _FEW_CHUNKS else None

    def _begin_read(self, name: str, document: dict[str, Any], index: Index) -> Callable[[], NDArray[Any]]:
        future = self._open(name, document, _READERS).oindex[index].read()
        return lambda: np.asarray(future.result())

    def _read(self, name: str, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        try:
            return read()
        except (ValueError, OSError, RuntimeError) as error:
            if not self._root.exists():
                raise DatasetNotFoundError(f"The dataset {self._root} is gone.") from error
            code = re.search(r"(?:os_error_code='|OS error )(\d+)", str(error))
            if code is not None:
                # The machine's trouble (permission, too many files, a bad disk) says nothing of the data.
                number = int(code[1])
                raise OSError(number, os.strerror(number), str(self._root / name)) from error
            raise CorruptDatasetError(
                f"Array {name!r} of {self._root} is damaged ({_first_sentence(error)}): `flytraj validate` tells "
                "where, `flytraj repair` cuts it."
            ) from error

    def write_labels(self, name: str, document: dict[str, Any], labels: list[str]) -> None:
        with _as_write_error(self._root):
            self._by_zarr(read_only=False).write_labels(name, document, labels)

    def read_labels(self, name: str, document: dict[str, Any]) -> list[str]:
        return self._by_zarr().read_labels(name, document)

    def all_keys(self) -> Iterator[str]:
        for folder, _, files in os.walk(self._root):
            for file in files:
                if file != LOCK_FILE:
                    yield (Path(folder) / file).relative_to(self._root).as_posix()

    def delete(self, keys: Iterable[str]) -> None:
        folders: set[Path] = set()
        with _as_write_error(self._root):
            for key in keys:
                path = self._root / key
                path.unlink(missing_ok=True)
                folders.add(path.parent)
            for folder in folders:
                self._prune(folder)

    def keep(self, keys: Iterable[str], folder: str) -> None:
        folders: set[Path] = set()
        with _as_write_error(self._root):
            for key in keys:
                kept = self._root / folder / key
                kept.parent.mkdir(parents=True, exist_ok=True)
                # No file of a dataset is changed in place, so a second name keeps what it holds.
                try:
                    os.link(self._root / key, kept)
                except OSError:
                    shutil.copy2(self._root / key, kept)
                    _sync(kept)
                folders.update(parent for parent in kept.parents if parent.is_relative_to(self._root))
            for path in folders:
                _sync(path)

    def sync(self) -> None:
        with _as_write_error(self._root):
            for folder, _, files in os.walk(self._root):
                for file in files:
                    _sync(Path(folder) / file)
                _sync(Path(folder))

    def lock(self) -> None:
        deadline = time.monotonic() + _LOCK_PATIENCE
        with _as_write_error(self._root):
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
        return is_locked(self._root)

    def _open(self, name: str, document: dict[str, Any], n_threads: int) -> Any:
        """Open an array by a document, without an end along `frame`: the committed length is the caller's to keep."""
        if (name, n_threads) not in self._arrays:
            shape = [
                _GROWN if dim == "frame" else size
                for dim, size in zip(document["dimension_names"], document["shape"], strict=True)
            ]
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
            opened = ts.open(spec, context=_context(n_threads), read=True, write=True)
            self._arrays[name, n_threads] = opened.result()
        return self._arrays[name, n_threads]

    def _by_zarr(self, *, read_only: bool = True) -> ZarrEngine:
        return ZarrEngine(local_store(self._root, read_only=read_only))

    def _write_in_child(self, parts: list[Part]) -> None:
        self._by_zarr(read_only=False).write(parts)
        for part in parts:
            for key in touched_keys(part.name, part.document, part.box):
                _sync(self._root / key)
            _sync(self._root / part.name)

    def _prune(self, folder: Path) -> None:
        """Remove a folder and those above it that are empty now, and make that durable."""
        while folder != self._root:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                break
            folder = folder.parent
        _sync(folder)


def _are_slices(parts: list[slice | NDArray[np.int64]]) -> bool:
    return all(isinstance(part, slice) for part in parts)


def _first_sentence(error: Exception) -> str:
    """What TensorStore says first; places in its sources follow."""
    return str(error).partition(" [")[0].rstrip(".")


@cache
def _context(n_threads: int) -> Any:
    return ts.Context(
        {
            "cache_pool": {"total_bytes_limit": 0},
            "file_io_concurrency": {"limit": n_threads},
            # One process writes (FolderLock). TensorStore's own lock files outlive a kill, and are written into
            # without being cut: a shorter shard would end in what the dead process had written.
            "file_io_locking": {"mode": "none"},
        }
    )


_forked = False


def _after_fork_in_child() -> None:
    global _forked
    _forked = _forked or _context.cache_info().currsize > 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _was_forked() -> bool:
    """Whether this process was forked from one that used TensorStore, which ends such a child when it is used."""
    return _forked


@contextlib.contextmanager
def _as_write_error(path: Path) -> Iterator[None]:
    try:
        yield
    except FlytrajError:
        raise
    except (OSError, ValueError) as error:
        raise WriteError(
            f"Writing to {path} failed: {getattr(error, 'strerror', None) or error}. What was committed stays."
        ) from error


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        # A folder that may be entered and written, but not read, cannot be synced.
        with contextlib.suppress(PermissionError):
            _sync(path.parent)


def _sync(path: Path) -> None:
    """Make a file, or a folder's list of names, durable."""
    if sys.platform == "win32" and path.is_dir():
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
