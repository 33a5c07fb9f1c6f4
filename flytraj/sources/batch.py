"""MuJoCo's own batch of simulations (`mujoco.batch.Batch`, MuJoCo >= 4)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError, InvalidArgumentError
from flytraj.schema import Schema
from flytraj.sources.arrays import take_worlds

__all__ = ["BatchSource"]


class BatchSource:
    """Reads the live arrays that a batch binds to its simulations."""

    def __init__(self, batch: Any, schema: Schema, worlds: NDArray[np.int64] | None, n_worlds: int) -> None:
        if batch.nsim != n_worlds:
            raise InvalidArgumentError(
                f"The recorder was made for {n_worlds} worlds, the batch has {batch.nsim}."
            )
        self._fields = schema.fields
        self._worlds = worlds
        self._n_worlds = n_worlds
        self._batch = batch
        for variable in self._fields:
            # A derived field that is bound now holds zeros until the batch's next call.
            if variable.stage and variable.name not in batch._bound:
                raise InvalidArgumentError(
                    f"A batch computes {variable.name} only after it is bound: call "
                    f"batch.bind({variable.name!r}) once, before the step whose frame is recorded."
                )
        try:
            self._bound = {v.name: batch.bind(v.name) for v in self._fields}
        except (ValueError, AttributeError, KeyError) as error:
            raise FieldNotFoundError(f"The batch cannot bind a field to record: {error}") from error
        self._time = batch.bind("time")
        self._times = np.empty(n_worlds if worlds is None else len(worlds))

    @staticmethod
    def available() -> bool:
        """Whether the installed MuJoCo has batches."""
        return importlib.util.find_spec("mujoco.batch") is not None

    @classmethod
    def understands(cls, data: object) -> bool:
        """Whether `data` is a batch."""
        if not cls.available():
            return False
        from mujoco.batch import Batch

        return isinstance(data, Batch)

    def accepts(self, data: object) -> bool:
        return data is self._batch

    def times(self, data: Any) -> NDArray[np.float64]:
        if self._worlds is None:
            self._times[:] = self._time
        else:
            np.take(self._time, self._worlds, out=self._times, mode="clip")
        return self._times

    def fill(self, data: Any, frame: Mapping[str, NDArray[Any]]) -> None:
        for variable in self._fields:
            take_worlds(
                self._bound[variable.name], variable, self._worlds, self._n_worlds, frame[variable.name]
            )
