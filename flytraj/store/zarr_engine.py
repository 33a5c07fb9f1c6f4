"""Any Zarr store, through zarr-python. The only module that imports zarr."""

from __future__ import annotations

import asyncio
import os
import zipfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest, Store
from zarr.core.array_spec import ArrayConfigParams
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, StorePath

from flytraj.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    FormatError,
    InvalidArgumentError,
    MissingDependencyError,
    WriteError,
)
from flytraj.store.engine import Index, Part, Writing, touched_keys

__all__ = ["ZarrEngine", "local_root", "local_store"]

_GROWN = 2**40
_READ_ATTEMPTS = 3


def local_root(store: Any) -> Path | None:
    """Folder of a store that is a path or zarr's own local store; None for any other."""
    if isinstance(store, LocalStore):
        return store.root
    if isinstance(store, str):
        store = store.removeprefix("file://")
    if isinstance(store, os.PathLike) or (isinstance(store, str) and "://" not in store):
        return Path(store)
    if isinstance(store, (Store, str)):
        return None
    raise InvalidArgumentError(
        f"A store is a path, a URL or a Zarr store; found {type(store).__module__}.{type(store).__name__}."
    )


class _Written:
    """Shards that were written when they were begun."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return True


class ZarrEngine:
    """A dataset in a Zarr store that is no local folder: in memory, in a ZIP file, in the cloud.

    There is no lock and no fsync: what the store calls written is taken as written.
    """

    folder: Path | None = None

    def __init__(self, store: Store | str) -> None:
        try:
            self._store = FsspecStore.from_url(store) if isinstance(store, str) else store
        except ImportError as error:
            raise MissingDependencyError(f"{store} needs a package for its protocol: {error}.") from error
        except ValueError as error:
            raise InvalidArgumentError(f"{store} is no path or URL that can be opened: {error}.") from error
        try:
            sync(StorePath.open(self._store, "", None))
        except FileNotFoundError as error:
            raise DatasetNotFoundError(f"There is no dataset at {store}.") from error
        except zipfile.BadZipFile as error:
            raise FormatError(f"{store} is no ZIP archive: {error}.") from error

    def __str__(self) -> str:
        return str(self._store)

    def read(self, key: str) -> bytes | None:
        try:
            buffer = sync(self._store.get(key, prototype=default_buffer_prototype()))
        except FileNotFoundError:
            return None
        return None if buffer is None else buffer.to_bytes()

    def replace(self, key: str, data: bytes, *, durable: bool = True) -> None:
        del durable
        buffer = default_buffer_prototype().buffer.from_bytes(data)
        self._write(self._store.set(key, buffer))

    def begin_write(self, parts: Iterable[Part]) -> Writing:
        self.write(parts)
        return _Written()

    def write(self, parts: Iterable[Part]) -> None:
        for part in parts:
            shape = [size if dim != "frame" else _GROWN for dim, size in _dims(part.document)]
            array = self._array(part.name, {**part.document, "shape": shape})
            try:
                array[part.box] = part.values
            except OSError as error:
                raise WriteError(f"Writing {part.name!r} to {self} failed: {error}") from error

    def read_array(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        return self._read(name, document, index, lambda array: array.oindex[index])

    def read_points(self, name: str, document: dict[str, Any], index: Index) -> NDArray[Any]:
        if all(isinstance(places, slice) for places in index):
            return self.read_array(name, document, index)
        return self._read(name, document, index, lambda array: array.vindex[_as_arrays(index)])

    def _read(
        self,
        name: str,
        document: dict[str, Any],
        index: Index,
        select: Callable[[zarr.Array[Any]], Any],
    ) -> NDArray[Any]:
        for attempt in range(_READ_ATTEMPTS):
            try:
                values = np.asarray(select(self._array(name, document)))
                break
            except FileNotFoundError as error:
                raise DatasetNotFoundError(f"{self} is gone: {error}") from error
            except (RuntimeError, ValueError) as error:
                # A writer may have replaced a shard between the reads of its index and of a chunk.
                if attempt == _READ_ATTEMPTS - 1:
                    raise CorruptDatasetError(f"Array {name!r} of {self} cannot be read: {error}") from error
        self._check_present(name, document, index, values)
        return values

    def _check_present(self, name: str, document: dict[str, Any], index: Index, values: NDArray[Any]) -> None:
        """Tell fill values that were written from those that zarr-python gives for a lost shard."""
        fill = document["fill_value"]
        if not (np.isnan(values) if fill == "NaN" else values == fill).any():
            return
        keys, prototype = list(touched_keys(name, document, index)), default_buffer_prototype()

        async def first_bytes() -> list[Buffer | None]:
            byte = RangeByteRequest(0, 1)
            return await asyncio.gather(*(self._store.get(key, prototype, byte) for key in keys))

        for key, byte in zip(keys, sync(first_bytes()), strict=True):
            if byte is None or not len(byte):
                raise CorruptDatasetError(f"Array {name!r} of {self} cannot be read: {key} is missing.")

    def write_labels(self, name: str, document: dict[str, Any], labels: list[str]) -> None:
        array = self._array(name, document)
        array[:] = np.array(labels, dtype=np.dtypes.StringDType())

    def read_labels(self, name: str, document: dict[str, Any]) -> list[str]:
        try:
            labels = np.asarray(self._array(name, document)[:])
        except (RuntimeError, ValueError) as error:
            raise CorruptDatasetError(f"The labels {name!r} of {self} cannot be read: {error}") from error
        self._check_present(name, document, (slice(0, len(labels)),), labels)
        return [str(label) for label in labels]

    def all_keys(self) -> Iterator[str]:
        async def collect() -> list[str]:
            return [key async for key in self._store.list()]

        yield from sync(collect())

    def delete(self, keys: Iterable[str]) -> None:
        async def remove() -> None:
            await asyncio.gather(*(self._store.delete(key) for key in keys))

        self._write(remove())

    def keep(self, keys: Iterable[str], folder: str) -> None:
        for key in keys:
            data = self.read(key)
            if data is not None:
                self.replace(f"{folder}/{key}", data)

    def sync(self) -> None:
        """What a Zarr store calls written is taken as written."""

    def lock(self) -> None:
        """There are no locks in a Zarr store: two writers are the user's to avoid."""

    def unlock(self) -> None:
        """See `lock`."""

    def _write(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            sync(coroutine)
        except (OSError, ValueError) as error:
            raise WriteError(f"Writing to {self} failed: {error}") from error

    def _array(self, name: str, document: dict[str, Any]) -> zarr.Array[Any]:
        # A chunk that holds only the fill value is written too: a missing one is a loss.
        config: ArrayConfigParams = {"order": "C", "write_empty_chunks": True}
        metadata = ArrayV3Metadata.from_dict(document)
        return zarr.Array(zarr.AsyncArray(metadata, StorePath(self._store, name), config=config))


def local_store(folder: Path, *, read_only: bool) -> Store:
    """Zarr's own store of a local folder."""
    return LocalStore(folder, read_only=read_only)


def _dims(document: dict[str, Any]) -> list[tuple[str, int]]:
    return list(zip(document["dimension_names"], document["shape"], strict=True))


def _as_arrays(index: Index) -> tuple[NDArray[np.int64], ...]:
    """Slices as arrays of places along dims of their own, behind those of the arrays."""
    n_broadcast = max(part.ndim for part in index if not isinstance(part, slice))
    n_slices = sum(isinstance(part, slice) for part in index)
    arrays, number = [], 0
    for part in index:
        if isinstance(part, slice):
            shape = [1] * (n_broadcast + n_slices)
            shape[n_broadcast + number] = -1
            number += 1
            arrays.append(np.arange(part.start, part.stop, part.step).reshape(shape))
        else:
            arrays.append(part.reshape(part.shape + (1,) * n_slices))
    return tuple(arrays)
