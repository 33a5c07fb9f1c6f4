"""Sources fill a recorder's buffers with one frame of the recorded worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.schema import Schema
from flytraj.sources.arrays import ArraySource
from flytraj.sources.batch import BatchSource
from flytraj.sources.mjdata import MjDataSource

__all__ = ["ArraySource", "BatchSource", "MjDataSource", "Source", "find_source", "source_dtype"]


class Source(Protocol):
    """Reads frames out of one kind of simulation data."""

    def accepts(self, data: object) -> bool:
        """Whether `data` is what this source was made for."""

    def times(self, data: Any) -> NDArray[np.float64]:
        """Simulation time of each recorded world in seconds, `(n_recorded,)`."""

    def fill(self, data: Any, frame: Mapping[str, NDArray[Any]]) -> None:
        """Copy the recorded worlds' fields into `frame`: name to `(n_recorded, …)` array."""


def find_source(
    data: object, mj_model: mujoco.MjModel, schema: Schema, worlds: NDArray[np.int64] | None, n_worlds: int
) -> Source:
    """Make the source that reads `data`.

    Args:
        data: `mujoco.MjData`, a sequence of them (one a world), `mujoco.batch.Batch` (MuJoCo >= 4), or a
            mapping of arrays `(n_worlds, …)` with `time`.
        mj_model: Model of the recording.
        schema: Its variables.
        worlds: `(n_recorded,)` indices of the worlds to record; None for all.
        n_worlds: Number of worlds in the simulation.

    Raises:
        InvalidArgumentError: The data is of no known kind, or does not fit the recorder.
    """
    if isinstance(data, mujoco.MjData):
        return MjDataSource([data], mj_model, schema, worlds, n_worlds)
    if isinstance(data, Mapping):
        return ArraySource(data, schema, worlds, n_worlds)
    if isinstance(data, Sequence) and data and all(isinstance(d, mujoco.MjData) for d in data):
        return MjDataSource(data, mj_model, schema, worlds, n_worlds)
    if BatchSource.understands(data):
        return BatchSource(data, schema, worlds, n_worlds)
    hint = ""
    if not BatchSource.available():
        hint = f" mujoco.batch.Batch comes with MuJoCo 4; this is {mujoco.__version__}."
    raise InvalidArgumentError(
        "Recorded are mujoco.MjData, a list of them, mujoco.batch.Batch, or a mapping of arrays with 'time'; "
        f"found {_describe(data)}.{hint}"
    )


def source_dtype(data: object) -> np.dtype[Any]:
    """Dtype of a source's floating-point state: a mapping's own, float64 for MuJoCo's data."""
    if isinstance(data, Mapping) and "qpos" in data:
        dtype = np.dtype(getattr(data["qpos"], "dtype", np.float64))
        if dtype.kind == "f" and dtype.itemsize <= 8:
            return dtype
    return np.dtype(np.float64)


def _describe(data: object) -> str:
    name = f"{type(data).__module__}.{type(data).__name__}"
    if isinstance(data, Sequence) and not isinstance(data, str):
        return f"{name} of {len(data)} {type(data[0]).__name__ if data else 'things'}"
    return name
