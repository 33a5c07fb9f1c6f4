"""Plain arrays, one a field, with a row a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.schema import Schema, Variable, as_numbers

__all__ = ["ArraySource", "take_worlds"]


class ArraySource:
    """Reads a mapping of field names to arrays `(n_worlds, …)`, with `time` as `(n_worlds,)` or a number."""

    def __init__(
        self, data: Mapping[str, Any], schema: Schema, worlds: NDArray[np.int64] | None, n_worlds: int
    ) -> None:
        missing = [name for name in ("time", *(v.name for v in schema.fields)) if name not in data]
        if missing:
            raise InvalidArgumentError(
                f"The arrays lack {', '.join(missing)}; found {', '.join(map(str, data)) or 'none'}."
            )
        self._fields = schema.fields
        self._worlds = worlds
        self._n_worlds = n_worlds
        self._times = np.empty(n_worlds if worlds is None else len(worlds))

    def accepts(self, data: object) -> bool:
        return isinstance(data, Mapping)

    def times(self, data: Mapping[str, Any]) -> NDArray[np.float64]:
        time = as_numbers("time", data["time"])
        if time.shape not in ((), (self._n_worlds,)):
            raise InvalidArgumentError(
                f"time must be a number or of shape ({self._n_worlds},), found shape {time.shape}."
            )
        self._times[:] = time if time.ndim == 0 or self._worlds is None else time[self._worlds]
        return self._times

    def fill(self, data: Mapping[str, Any], frame: Mapping[str, NDArray[Any]]) -> None:
        for variable in self._fields:
            take_worlds(data[variable.name], variable, self._worlds, self._n_worlds, frame[variable.name])


def take_worlds(
    value: Any, variable: Variable, worlds: NDArray[np.int64] | None, n_worlds: int, out: NDArray[Any]
) -> None:
    """Copy the rows of the recorded worlds of an array `(n_worlds, …)` into `out`; `worlds` None means all.

    Raises:
        InvalidArgumentError: The array has another shape, or holds no numbers.
    """
    array = as_numbers(variable.name, value)
    if array.shape != (n_worlds, *variable.shape):
        raise InvalidArgumentError(
            f"{variable.name} must have shape {(n_worlds, *variable.shape)}, a row a world; found {array.shape}."
        )
    if worlds is None:
        out[...] = array
    elif array.dtype == out.dtype:
        np.take(array, worlds, axis=0, out=out, mode="clip")
    else:
        out[...] = array[worlds]
