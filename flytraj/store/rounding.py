"""Rounding within an absolute error, so that values compress; quaternions stay unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.schema import Variable

__all__ = ["quaternion_starts", "round_within"]


def quaternion_starts(variable: Variable, layout: Mapping[str, Any] | None) -> list[int]:
    """Where quaternions begin along a variable's last dim.

    Args:
        variable: The variable.
        layout: The model's `kinematic_layout`, for qpos; None where there is no model.
    """
    if variable.dims[-1:] == ("wxyz",):
        return [0]
    if variable.name != "qpos" or layout is None:
        return []
    offset = {"free": 3, "ball": 0}
    return [
        int(joint["qposadr"]) + offset[joint["type"]] for joint in layout["joints"] if joint["type"] in offset
    ]


def round_within(
    values: NDArray[Any], precision: float, dtype: np.dtype[Any], quaternions: list[int]
) -> NDArray[Any]:
    """Round to multiples of a power of two, each value by no more than `precision`.

    Of a quaternion, all components but the largest are rounded, and that one makes it unit. What cannot be
    rounded within the precision is kept.

    Args:
        values: `(…, n)` floating-point array.
        precision: Largest absolute error.
        dtype: Dtype of the result.
        quaternions: Where quaternions begin along the last dim.

    Raises:
        InvalidArgumentError: The dtype cannot hold a value within the precision.
    """
    exact = values.astype(np.float64)
    kept = values.astype(dtype)
    rounded = _to_multiples(exact, precision).astype(dtype)
    for start in quaternions:
        part = slice(start, start + 4)
        rounded[..., part] = _unit(exact[..., part], precision).astype(dtype)
        too_far = (np.abs(rounded[..., part] - exact[..., part]) > precision).any(axis=-1, keepdims=True)
        rounded[..., part] = np.where(too_far, kept[..., part], rounded[..., part])
    rounded = np.where(np.abs(rounded - exact) <= precision, rounded, kept)
    error = np.abs(rounded.astype(np.float64) - exact)
    if (error > precision).any():
        worst = float(exact.flat[int(np.nanargmax(error))])
        raise InvalidArgumentError(
            f"{dtype} cannot hold {worst!r} within {precision:g}: choose a wider dtype."
        )
    return rounded


def _to_multiples(values: NDArray[np.float64], precision: float) -> NDArray[np.float64]:
    step = 2.0 ** math.floor(math.log2(2 * precision))
    result: NDArray[np.float64] = np.rint(values / step) * step
    return result


def _unit(quaternions: NDArray[np.float64], precision: float) -> NDArray[np.float64]:
    """Unit quaternions near the given ones, three components of each a multiple of a power of two."""
    # The largest component is at least 1/2; an error e of the others moves it by at most 3 e.
    rounded = _to_multiples(quaternions, precision / 4)
    largest = np.abs(np.nan_to_num(quaternions)).argmax(axis=-1, keepdims=True)
    np.put_along_axis(rounded, largest, 0.0, axis=-1)
    rest = np.clip(1.0 - (rounded**2).sum(axis=-1, keepdims=True), 0.0, None)
    sign = np.copysign(1.0, np.take_along_axis(quaternions, largest, axis=-1))
    np.put_along_axis(rounded, largest, sign * np.sqrt(rest), axis=-1)
    return rounded
