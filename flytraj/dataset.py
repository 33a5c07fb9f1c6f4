"""Datasets as xarray views: opening, lazy reading, selecting by time. Only this module imports xarray."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing
from xarray.core.indexes import PandasIndex
from xarray.core.indexing import IndexSelResult

from flytraj.errors import CorruptDatasetError, FlytrajError
from flytraj.indexing import read_outer, read_points
from flytraj.schema import COORDINATES
from flytraj.store.create import read_description
from flytraj.store.description import ROOT, Description
from flytraj.store.engine import Engine, open_engine
from flytraj.store.folder_engine import FolderEngine
from flytraj.store.recover import find_recoverable
from flytraj.view import Handle, TrajAccessor

__all__ = [
    "DamagedLabelsWarning",
    "FlytrajBackendEntrypoint",
    "RecoverableFramesWarning",
    "TimeIndex",
    "open_dataset",
]

_TINY = 4096


class RecoverableFramesWarning(UserWarning):
    """A killed recording left frames that opening to append, or `repair`, would commit."""


class DamagedLabelsWarning(UserWarning):
    """The names along a dim are lost or damaged; all else of the dataset is there."""


def open_dataset(store: Any, *, chunks: Any = None) -> xr.Dataset:
    """Open a dataset as a lazy view: nothing but metadata and labels is read.

    The view has the coordinates `world`, `time` (frame; the recording's clock, seconds), `sim_time` and
    `episode` (world, frame), the names along labelled dims, and a variable for each field and channel. Selection
    is xarray's own; `ds.sel(time=slice(a, b))` goes by the recording's clock. `ds.traj` has what xarray has not.

    Args:
        store: Path or Zarr store.
        chunks: Dask chunks, as in `xarray.open_dataset`; None reads without dask.

    Raises:
        DatasetNotFoundError: Nothing is there.
        FormatError: It is no flytraj dataset, or of a newer format.

    Warns:
        DamagedLabelsWarning: The names along a dim cannot be read: that coordinate is left out.
        RecoverableFramesWarning: A killed recording left frames that can be recovered.
    """
    dataset = _open(store)
    return dataset if chunks is None else dataset.chunk(_chunks(dataset, chunks))


class FlytrajBackendEntrypoint(BackendEntrypoint):
    """Lets `xarray.open_dataset(store, engine="flytraj")` open datasets."""

    description = "Trajectories of parallel MuJoCo worlds"
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None
    ) -> xr.Dataset:
        """See `flytraj.open_dataset`."""
        dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        return _open(filename_or_obj).drop_vars(dropped)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether a path holds a flytraj dataset."""
        if not isinstance(filename_or_obj, (str, os.PathLike)) or "://" in os.fspath(filename_or_obj):
            return False
        try:
            data = open_engine(filename_or_obj).read(ROOT)
            return data is not None and bool(Description.from_json(data, "it"))
        except (FlytrajError, OSError):
            return False


class TimeIndex(xr.Index):
    """Index of the `time` coordinate along `frame`, read only when something is selected by time."""

    def __init__(self, variable: xr.Variable) -> None:
        self._variable = variable

    @classmethod
    def from_variables(cls, variables: Mapping[Any, xr.Variable], *, options: Mapping[str, Any]) -> Self:
        """Make the index of one variable."""
        del options
        (variable,) = variables.values()
        return cls(variable)

    def create_variables(self, variables: Mapping[Any, xr.Variable] | None = None) -> dict[Any, xr.Variable]:
        """The coordinate."""
        del variables
        return {"time": self._variable}

    def isel(self, indexers: Mapping[Any, Any]) -> Self | None:
        """The index of some frames."""
        selected = self._variable.isel(indexers)
        return type(self)(selected) if selected.ndim == 1 else None

    def sel(self, labels: dict[Any, Any], method: str | None = None, tolerance: Any = None) -> IndexSelResult:
        """Frames at, or between, times in seconds."""
        return self._pandas().sel(labels, method=method, tolerance=tolerance)

    def equals(self, other: xr.Index, *, exclude: frozenset[Any] | None = None) -> bool:
        """Whether another index has the same times."""
        del exclude
        return isinstance(other, TimeIndex) and bool(np.array_equal(self._variable, other._variable))

    def to_pandas_index(self) -> pd.Index:
        """The times, read."""
        return self._pandas().index

    def _pandas(self) -> PandasIndex:
        return PandasIndex(pd.Index(self._variable.values, name="time"), "frame")


class _LazyArray(BackendArray):
    """One array of a dataset; reads a box when it is indexed."""

    def __init__(self, handle: Handle, name: str) -> None:
        document = handle.description.documents[name]
        self._handle = handle
        self._name = name
        self.shape = tuple(document["shape"])
        self.dtype = np.dtype(document["data_type"])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        engine, document = self._handle.engine, self._handle.description.documents[self._name]
        if isinstance(key, indexing.VectorizedIndexer):
            return read_points(key.tuple, self.shape, partial(engine.read_points, self._name, document))
        return read_outer(key.tuple, self.shape, partial(engine.read_array, self._name, document))


def computed_variable(
    dims: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype[Any], compute: Callable[[Any, Any], Any]
) -> xr.Variable:
    """A variable with dims (world, frame, …) whose values are computed when they are read.

    Args:
        dims: Its dims.
        shape: Their sizes.
        dtype: Its dtype.
        compute: Takes places of worlds and frames, gives the values of that box.
    """
    return xr.Variable(dims, indexing.LazilyIndexedArray(_ComputedArray(shape, dtype, compute)))


class _ComputedArray(BackendArray):
    """Values of a box of worlds and frames, computed when it is indexed."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], compute: Callable[[Any, Any], Any]
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._compute = compute

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        if isinstance(key, indexing.VectorizedIndexer):
            return indexing.explicit_indexing_adapter(
                key,
                self.shape,
                indexing.IndexingSupport.OUTER,
                partial(read_outer, shape=self.shape, read=self._box),
            )
        return read_outer(key.tuple, self.shape, self._box)

    def _box(self, index: tuple[Any, ...]) -> Any:
        values = self._compute(index[0], index[1])
        for axis, places in enumerate(index[2:], start=2):
            values = values[(slice(None),) * axis + (places,)]
        return values


def _open(store: Any) -> xr.Dataset:
    engine = open_engine(store)
    description = read_description(engine)
    _tell_recoverable(engine, description)
    handle = Handle(engine, description)
    variables: dict[str, xr.Variable] = {}
    coordinates: dict[str, xr.Variable] = {}
    for name, document in description.arrays.items():
        dims = tuple(document["dimension_names"])
        if name.startswith("model/"):
            continue
        if document["data_type"] == "string":
            try:
                labels = np.array(engine.read_labels(name, document), dtype=object)
            except CorruptDatasetError as error:
                warnings.warn(f"{error} {name!r} has no names here.", DamagedLabelsWarning, stacklevel=3)
            else:
                coordinates[name] = xr.Variable(dims, labels)
            continue
        data = indexing.LazilyIndexedArray(_LazyArray(handle, name))
        variable = xr.Variable(dims, data, attrs=document["attributes"])
        (coordinates if name == "world" or name in COORDINATES else variables)[name] = variable
    time = coordinates.pop("time")
    dataset = xr.Dataset(variables, coordinates, attrs=_attributes(engine, description))
    dataset = dataset.assign_coords(xr.Coordinates({"time": time}, {"time": TimeIndex(time)}))
    dataset.encoding["flytraj"] = handle
    dataset.encoding["source"] = str(engine)
    return dataset


def _attributes(engine: Engine, description: Description) -> dict[str, Any]:
    """The dataset's attributes, flat, so that a view can be saved in any format."""
    return {
        "store": str(engine),
        **description.clock,
        "fingerprint": description.model["fingerprint"],
        "created": description.info.get("created", ""),
        **{f"{name}_version": version for name, version in description.info.get("versions", {}).items()},
    }


def _tell_recoverable(engine: Engine, description: Description) -> None:
    if not isinstance(engine, FolderEngine):
        return
    n_frames = find_recoverable(engine, description)
    if n_frames and not engine.is_being_written():
        warnings.warn(
            f"{engine}: a recording that was killed left {n_frames} more frames. Opening to append "
            "(mode='a') or flytraj.repair recovers them.",
            RecoverableFramesWarning,
            stacklevel=4,
        )


def _chunks(dataset: xr.Dataset, chunks: Any) -> Any:
    if chunks == "auto" or chunks == {} or isinstance(chunks, int):
        return chunks if chunks != {} else dict(dataset.sizes)
    return chunks


xr.register_dataset_accessor("traj")(TrajAccessor)  # type: ignore[no-untyped-call]
