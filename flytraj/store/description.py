"""The root document of a dataset: what it says, how it is written and read.

The root `zarr.json` holds the metadata of all arrays (consolidated) and, under the attribute `flytraj`, what
Zarr does not know. Replacing it is the commit: it makes all arrays longer together.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from flytraj.errors import FormatError
from flytraj.schema import COORDINATES, Schema, Variable
from flytraj.store.layout import Layout

__all__ = ["ATTRIBUTE", "FORMAT", "ROOT", "Description", "array_document", "group_document"]

ROOT = "zarr.json"
ATTRIBUTE = "flytraj"
FORMAT = 1
_MAX_FRAMES = 2**40
_MAX_CHUNK_VALUES = 2**31
# benchmarks/layouts.py measures them: bits side by side are fastest for lz4; for zstd, bytes and the frames of a
# coordinate side by side are smallest.
_CODECS: dict[str, dict[str, Any]] = {
    "lz4": {"cname": "lz4", "clevel": 1, "shuffle": "bitshuffle"},
    "zstd": {"cname": "zstd", "clevel": 3, "shuffle": "shuffle"},
}
_FRAMES_LAST = ("zstd",)
_LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
_CHECKSUM = {"name": "crc32c"}


@dataclass(frozen=True)
class Description:
    """All that is known of a dataset before its arrays are read.

    Attributes:
        schema: Its variables.
        n_worlds: Number of recorded worlds.
        n_frames: Committed frames.
        layout: Blocks, shards and chunks.
        compression: `"lz4"`, `"zstd"` or `"none"`.
        clock: `output_fps`, `playback_speed`, `timestep`, `sampling`.
        model: `fingerprint`, and names of what is embedded.
        info: Versions and time of creation.
        documents: Metadata document of every array and group, by path.
    """

    schema: Schema
    n_worlds: int
    n_frames: int
    layout: Layout
    compression: str
    clock: Mapping[str, Any]
    model: Mapping[str, Any]
    info: Mapping[str, Any]
    documents: Mapping[str, dict[str, Any]]

    @classmethod
    def create(
        cls,
        schema: Schema,
        n_worlds: int,
        layout: Layout,
        *,
        compression: str,
        clock: Mapping[str, Any],
        model: Mapping[str, Any],
        info: Mapping[str, Any],
        labels: Mapping[str, int],
        blobs: Mapping[str, int],
    ) -> Self:
        """Describe a new dataset without frames.

        Args:
            schema: Its variables.
            n_worlds: Number of recorded worlds.
            layout: Blocks, shards and chunks.
            compression: `"lz4"`, `"zstd"` or `"none"`.
            clock: The clock's arguments.
            model: The fingerprint.
            info: Versions and time of creation.
            labels: Sizes of the label coordinates.
            blobs: Bytes of the embedded parts of the model.
        """
        documents = {
            "world": _static_document("world", n_worlds, "int64"),
            "time": _time_document(layout, compression),
        }
        for variable in schema.variables:
            documents[variable.name] = _variable_document(variable, n_worlds, layout, compression)
        documents |= {dim: _label_document(dim, size) for dim, size in labels.items()}
        if blobs:
            documents["model"] = group_document()
        documents |= {f"model/{name}": _blob_document(name, size) for name, size in blobs.items()}
        return cls(schema, n_worlds, 0, layout, compression, clock, model, info, documents)

    @property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """The documents of arrays, by path."""
        return {name: doc for name, doc in self.documents.items() if doc["node_type"] == "array"}

    def with_frames(self, n_frames: int) -> Self:
        """The same dataset with another count of committed frames."""
        documents = dict(self.documents)
        for name, document in self.arrays.items():
            dims = document["dimension_names"]
            if "frame" in dims:
                axis = dims.index("frame")
                shape = [n_frames if i == axis else size for i, size in enumerate(document["shape"])]
                documents[name] = {**document, "shape": shape}
        return replace(self, n_frames=n_frames, documents=documents)

    def to_json(self) -> bytes:
        """The root document."""
        attributes = {
            "coordinates": " ".join(COORDINATES),
            ATTRIBUTE: {
                "format": FORMAT,
                "n_frames": self.n_frames,
                "clock": dict(self.clock),
                "layout": {
                    "block_frames": self.layout.block_frames,
                    "chunk_frames": self.layout.chunk_frames,
                    "shard_bytes": self.layout.shard_bytes,
                    "chunk_bytes": self.layout.chunk_bytes,
                },
                "compression": self.compression,
                "channels": list(self.schema.channels),
                "model": dict(self.model),
                **self.info,
            },
        }
        consolidated = {"kind": "inline", "must_understand": False, "metadata": dict(self.documents)}
        return json.dumps(
            {**group_document(), "attributes": attributes, "consolidated_metadata": consolidated}
        ).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Self:
        """Read a root document.

        Raises:
            FormatError: It is none of a flytraj dataset, of a newer format, or damaged.
        """
        try:
            root = json.loads(data)
        except ValueError as error:
            raise FormatError(
                f"The root document {where}/{ROOT} is damaged: it is no JSON ({error})."
            ) from error
        try:
            attributes = root["attributes"][ATTRIBUTE]
            version = attributes["format"]
        except (KeyError, TypeError) as error:
            raise FormatError(f"{where} is no flytraj dataset (no attribute {ATTRIBUTE!r}).") from error
        if version != FORMAT:
            raise FormatError(
                f"{where} has format {version!r}; this flytraj reads format {FORMAT}. Install a newer flytraj."
            )
        try:
            return cls._parse(attributes, root["consolidated_metadata"]["metadata"])
        except FormatError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise FormatError(f"The metadata of {where} is damaged: {error!r}.") from error

    @classmethod
    def _parse(cls, attributes: Mapping[str, Any], members: Mapping[str, Any]) -> Self:
        variables = tuple(
            _parse_variable(name, document)
            for name, document in members.items()
            if document["node_type"] == "array"
            and list(document["dimension_names"][:2]) == ["world", "frame"]
        )
        n_frames, n_worlds = int(attributes["n_frames"]), int(members["world"]["shape"][0])
        schema = Schema(variables, tuple(attributes["channels"]))
        known = {"format", "n_frames", "clock", "layout", "compression", "channels", "model"}
        description = cls(
            schema,
            n_worlds,
            n_frames,
            Layout.from_attributes(attributes["layout"]),
            str(attributes["compression"]),
            dict(attributes["clock"]),
            dict(attributes["model"]),
            {key: value for key, value in attributes.items() if key not in known},
            dict(members),
        )
        _check(description)
        return description


def group_document() -> dict[str, Any]:
    """Metadata document of a group without attributes."""
    return {"zarr_format": 3, "node_type": "group", "attributes": {}}


def array_document(
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    data_type: str,
    codecs: list[dict[str, Any]],
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Metadata document of a Zarr v3 array."""
    fill: object = {"bool": False, "string": ""}.get(data_type, "NaN" if "float" in data_type else 0)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(1, size) for size in chunk]}},
        # All shards of an array in one folder: a new block makes no new folders, which would have to be durable.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": dict(attributes or {}),
        "dimension_names": list(dims),
        "storage_transformers": [],
    }


def _check(description: Description) -> None:
    """Check sizes before anything is allocated by them, and names before they become paths."""
    frames, worlds = description.n_frames, description.n_worlds
    if not (0 <= frames <= _MAX_FRAMES and worlds >= 0):
        raise FormatError(f"The dataset claims {worlds} worlds and {frames} frames.")
    for name in ("time", "qpos", *COORDINATES):
        if name not in description.documents:
            raise FormatError(f"The dataset lacks the array {name!r}.")
    for name, document in description.arrays.items():
        if not re.fullmatch(r"(model/)?[A-Za-z_]\w*", name):
            raise FormatError(f"The dataset has an array with the name {name!r}.")
        shape, dims = document["shape"], document["dimension_names"]
        chunk = document["chunk_grid"]["configuration"]["chunk_shape"]
        if len(shape) != len(dims) or len(chunk) != len(dims) or min([1, *shape]) < 0 or min(chunk) < 1:
            raise FormatError(f"Array {name!r} has shape {shape}, dims {dims} and chunks {chunk}.")
        if math.prod(chunk) > _MAX_CHUNK_VALUES:
            raise FormatError(f"Array {name!r} has shards of {math.prod(chunk)} values.")
        for dim, size in zip(dims, shape, strict=True):
            if size != {"frame": frames, "world": worlds}.get(dim, size):
                raise FormatError(
                    f"Array {name!r} has {size} along {dim!r}; the dataset has {frames} frames × {worlds} worlds."
                )


def _parse_variable(name: str, document: Mapping[str, Any]) -> Variable:
    attributes = document["attributes"]
    return Variable(
        name,
        tuple(str(dim) for dim in document["dimension_names"][2:]),
        tuple(int(size) for size in document["shape"][2:]),
        np.dtype(document["data_type"]),
        str(attributes.get("units", "")),
        str(attributes.get("stage", "")),
    )


def _variable_document(variable: Variable, n_worlds: int, layout: Layout, compression: str) -> dict[str, Any]:
    rank = len(variable.shape) + 2
    shard_worlds, chunk_worlds = layout.worlds(variable, n_worlds)
    attributes = {"units": variable.units} if variable.units else {}
    if variable.stage:
        attributes["stage"] = variable.stage
    frames_last = {"name": "transpose", "configuration": {"order": [0, *range(2, rank), 1]}}
    inner = [
        *([frames_last] if rank > 2 and compression in _FRAMES_LAST else []),
        _LITTLE_ENDIAN,
        *_compressors(compression, variable.dtype.itemsize),
        _CHECKSUM,
    ]
    sharding = {
        "chunk_shape": [chunk_worlds, layout.chunk_frames, *(max(1, size) for size in variable.shape)],
        "codecs": inner,
        "index_codecs": [_LITTLE_ENDIAN, _CHECKSUM],
        "index_location": "end",
    }
    return array_document(
        ("world", "frame", *variable.dims),
        (n_worlds, 0, *variable.shape),
        (shard_worlds, layout.block_frames, *variable.shape),
        variable.dtype.name,
        [{"name": "sharding_indexed", "configuration": sharding}],
        attributes,
    )


def _compressors(compression: str, itemsize: int) -> list[dict[str, Any]]:
    if compression == "none":
        return []
    configuration = {**_CODECS[compression], "typesize": itemsize, "blocksize": 0}
    return [{"name": "blosc", "configuration": configuration}]


def _time_document(layout: Layout, compression: str) -> dict[str, Any]:
    codecs = [_LITTLE_ENDIAN, *_compressors(compression, 8), _CHECKSUM]
    return array_document(("frame",), (0,), (layout.time_chunk,), "float64", codecs, {"units": "s"})


def _static_document(dim: str, size: int, data_type: str) -> dict[str, Any]:
    return array_document((dim,), (size,), (size,), data_type, [_LITTLE_ENDIAN, _CHECKSUM])


def _label_document(dim: str, size: int) -> dict[str, Any]:
    return array_document((dim,), (size,), (size,), "string", [{"name": "vlen-utf8", "configuration": {}}])


def _blob_document(name: str, size: int) -> dict[str, Any]:
    zstd = {"name": "zstd", "configuration": {"level": 3, "checksum": True}}
    return array_document((f"{name}_bytes",), (size,), (min(size, 2**24),), "uint8", [_LITTLE_ENDIAN, zstd])
