"""Making datasets, and opening them to append."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    FormatError,
    InvalidArgumentError,
    ModelMismatchError,
)
from flytraj.model import dim_labels, fingerprint, kinematic_layout, pack_model, pack_spec
from flytraj.schema import Schema
from flytraj.store.commit import commit, to_json
from flytraj.store.description import ROOT, Description, group_document
from flytraj.store.engine import SCRATCH, Engine, Part, is_unfinished, open_engine
from flytraj.store.layout import Layout
from flytraj.store.recover import recover, warn_set_aside

__all__ = [
    "COMPRESSIONS",
    "Claim",
    "Compression",
    "Embedding",
    "Mode",
    "now",
    "read_blob",
    "read_description",
]

Mode = Literal["w-", "w", "a"]
Compression = Literal["lz4", "zstd", "none"]
COMPRESSIONS = ("lz4", "zstd", "none")
_CREATING = f"{SCRATCH}/creating"


@dataclass(frozen=True)
class Embedding:
    """What of the model goes into a dataset.

    Attributes:
        mj_model: The model, for names, layout and fingerprint; None where there is none.
        embed_model: Whether the compiled model is embedded.
        spec: Its spec, to embed the XML with its assets.
    """

    mj_model: mujoco.MjModel | None
    embed_model: bool = True
    spec: mujoco.MjSpec | None = None

    def blobs(self) -> dict[str, NDArray[np.uint8]]:
        """Name to bytes."""
        if self.mj_model is None:
            return {}
        layout = json.dumps(kinematic_layout(self.mj_model)).encode()
        blobs = {"layout": np.frombuffer(layout, np.uint8)}
        if self.embed_model:
            blobs["mjb"] = pack_model(self.mj_model)
        if self.spec is not None:
            blobs["xml"] = pack_spec(self.spec, self.mj_model)
        return blobs


class Claim:
    """A store held for writing, before a dataset is made in it or after one is found there.

    Args:
        store: Path or Zarr store.
        mode: `"w-"` makes a new dataset, `"w"` replaces one, `"a"` appends to one or makes it.

    Attributes:
        engine: The store, locked.
        existing: The dataset to append to; None where one is to be made.

    Raises:
        DatasetExistsError: With `"w-"`, there is something at the store.
        DatasetLockedError: Another recorder writes to it.
        FormatError: What is to be replaced or appended to is no flytraj dataset.
    """

    def __init__(self, store: Any, mode: Mode) -> None:
        if mode not in ("w-", "w", "a"):
            raise InvalidArgumentError(f'mode must be "w-", "w" or "a", not {mode!r}.')
        self._mode = mode
        self.engine: Engine = open_engine(store, create=True)
        self.existing: Description | None = None
        self.engine.lock()
        try:
            self._look()
        except BaseException:
            self.engine.unlock()
            raise

    def create(
        self,
        schema: Schema,
        worlds: NDArray[np.int64],
        layout: Layout,
        *,
        compression: Compression,
        clock: Mapping[str, Any],
        embedding: Embedding,
        source: str,
    ) -> Description:
        """Describe a new dataset and make it, without frames."""
        labels = _labels(embedding.mj_model, schema)
        blobs = embedding.blobs()
        description = Description.create(
            schema,
            len(worlds),
            layout,
            compression=compression,
            clock=clock,
            model={"fingerprint": _fingerprint(embedding.mj_model)},
            info={"versions": _versions(source), "created": now()},
            labels={dim: len(names) for dim, names in labels.items()},
            blobs={name: len(data) for name, data in blobs.items()},
        )
        self.make(description, worlds, blobs, labels)
        return description

    def make(
        self,
        description: Description,
        worlds: NDArray[np.int64],
        blobs: Mapping[str, NDArray[np.uint8]],
        labels: Mapping[str, list[str]],
    ) -> None:
        """Make the dataset that is described, without frames.

        Whatever interrupts it, the next claim finds the old dataset whole, the new one whole, or a mark that
        says that what lies there is neither.
        """
        if self.engine.folder is not None:
            self.engine.replace(_CREATING, b"")
        try:
            if self._mode == "w":
                self._clear()
            self._write_static(description, worlds, blobs, labels)
            self.engine.sync()
            commit(self.engine, description)
        except BaseException:
            self._clear()
            self._unmark()
            raise
        self._unmark()

    def discard(self) -> None:
        """Remove the dataset that was made, with all that lies in it, and give the store back."""
        self._clear()
        self.release()

    def _clear(self) -> None:
        """Remove everything but the mark, the root first."""
        self.engine.delete([ROOT])
        self.engine.delete([key for key in self.engine.all_keys() if key != _CREATING])

    def _unmark(self) -> None:
        if self.engine.folder is not None:
            self.engine.delete([_CREATING])

    def _write_static(
        self,
        description: Description,
        worlds: NDArray[np.int64],
        blobs: Mapping[str, NDArray[np.uint8]],
        labels: Mapping[str, list[str]],
    ) -> None:
        self.engine.replace(f"model/{ROOT}", to_json(group_document()), durable=False)
        for name, document in description.arrays.items():
            self.engine.replace(f"{name}/{ROOT}", to_json(document), durable=False)
        static: dict[str, NDArray[Any]] = {
            "world": worlds,
            **{f"model/{name}": data for name, data in blobs.items()},
        }
        documents = description.documents
        self.engine.write(Part(name, documents[name], (0,), data) for name, data in static.items())
        for dim, names in labels.items():
            self.engine.write_labels(dim, documents[dim], names)

    def check_appendable(
        self,
        schema: Schema,
        worlds: NDArray[np.int64],
        clock: Mapping[str, Any],
        mj_model: mujoco.MjModel | None,
    ) -> None:
        """Check that frames of these variables, worlds and model can be appended.

        Raises:
            InvalidArgumentError: Variables, worlds or the clock differ.
            ModelMismatchError: The model does.
        """
        assert self.existing is not None
        found, where = self.existing, str(self.engine)
        if found.model["fingerprint"] != _fingerprint(mj_model):
            raise ModelMismatchError(f"{where} was recorded with another model: record to a new dataset.")
        recorded = {v.name: (v.shape, v.dtype) for v in found.schema.variables}
        wanted = {v.name: (v.shape, v.dtype) for v in schema.variables}
        for name in recorded.keys() | wanted.keys():
            if recorded.get(name) != wanted.get(name):
                raise InvalidArgumentError(
                    f"Frames cannot be appended to {where}: {name!r} is {_shown(recorded.get(name))} there, "
                    f"{_shown(wanted.get(name))} here. Ask for the same fields, channels and dtype."
                )
        ids = self.engine.read_array("world", found.documents["world"], (slice(0, found.n_worlds),))
        if not np.array_equal(ids, worlds):
            raise InvalidArgumentError(
                f"Frames cannot be appended to {where}: it holds other worlds ({len(ids)}: {ids[:5]}…) than "
                f"this recorder's ({len(worlds)}: {worlds[:5]}…)."
            )
        if dict(found.clock) != dict(clock):
            raise InvalidArgumentError(
                f"Frames cannot be appended to {where}: its clock is {dict(found.clock)}, here {dict(clock)}."
            )

    def release(self) -> None:
        """Give the store back untouched; a folder made for nothing goes."""
        self.engine.unlock()
        if self.engine.folder is not None:
            # Another writer's lock file is enough to let it stay.
            with contextlib.suppress(OSError):
                self.engine.folder.rmdir()

    def _look(self) -> None:
        root = self.engine.read(ROOT)
        where = str(self.engine)
        if self.engine.read(_CREATING) is not None:
            if root is None:
                self._clear()
            self._unmark()
        if self._mode == "w-":
            if root is not None or self._has_anything():
                raise DatasetExistsError(
                    f'{where} exists already: choose another path, or mode="a" to append, "w" to replace.'
                )
        elif root is not None:
            description = Description.from_json(root, where)
            if self._mode == "a":
                self._recover(description)
        elif self._has_anything():
            raise FormatError(f"{where} holds something that is no flytraj dataset: it is left alone.")

    def _recover(self, description: Description) -> None:
        recovery = recover(self.engine, description)
        self.existing = recovery.description
        warn_set_aside(recovery)

    def _has_anything(self) -> bool:
        return any(not is_unfinished(key) for key in self.engine.all_keys())


def read_description(engine: Engine) -> Description:
    """Read what a store holds.

    Raises:
        DatasetNotFoundError: Nothing is there.
        FormatError: It is no flytraj dataset, or of a newer format.
    """
    root = engine.read(ROOT)
    if root is None:
        if engine.folder is not None and not engine.folder.exists():
            raise DatasetNotFoundError(f"There is no dataset at {engine}.")
        raise FormatError(f"{engine} is no flytraj dataset (it has no {ROOT}).")
    return Description.from_json(root, str(engine))


def read_blob(engine: Engine, description: Description, name: str) -> NDArray[np.uint8] | None:
    """Bytes of an embedded part of the model; None if it is not embedded."""
    document = description.documents.get(f"model/{name}")
    if document is None:
        return None
    return engine.read_array(f"model/{name}", document, (slice(0, document["shape"][0]),))


def _fingerprint(mj_model: mujoco.MjModel | None) -> str:
    return "" if mj_model is None else fingerprint(kinematic_layout(mj_model))


def _labels(mj_model: mujoco.MjModel | None, schema: Schema) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for variable in schema.variables:
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            if dim not in labels and size:
                names = list(dim) if dim in ("xyz", "wxyz") else None
                if mj_model is not None:
                    names = dim_labels(mj_model, dim, size)
                if names is not None:
                    labels[dim] = names
    return labels


def _versions(source: str) -> dict[str, str]:
    return {
        "flytraj": importlib.metadata.version("flytraj"),
        "mujoco": mujoco.__version__,
        "source": source,
    }


def now() -> str:
    """This moment in UTC, as datasets write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _shown(value: tuple[tuple[int, ...], np.dtype[Any]] | None) -> str:
    return "absent" if value is None else f"{value[1]} {value[0]}"
