"""xarray's indexers, turned into what a store can read: forward slices, and arrays of places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Places", "read_outer", "read_points"]

Places = slice | NDArray[np.int64]
Read = Callable[[tuple[Places, ...]], NDArray[Any]]


def read_outer(key: tuple[Any, ...], shape: tuple[int, ...], read: Read) -> NDArray[Any]:
    """Read a box: each entry of `key` selects along its own dim.

    Args:
        key: An integer, a slice or an array of integers for each dim.
        shape: Shape of the whole array.
        read: Reads a box of forward slices and arrays of places that are not negative.

    Raises:
        IndexError: A place is out of bounds.
    """
    index: list[Places] = []
    flipped, dropped = [], []
    for axis, (part, size) in enumerate(zip(key, shape, strict=True)):
        if isinstance(part, slice):
            places, backward = _forward(part, size)
            index.append(places)
            if backward:
                flipped.append(axis)
        elif isinstance(part, np.ndarray):
            index.append(_not_negative(part, size))
        else:
            place = int(_not_negative(np.array(part), size))
            index.append(slice(place, place + 1))
            dropped.append(axis)
    values = read(tuple(index))
    return np.flip(values, tuple(flipped)).squeeze(tuple(dropped))


def read_points(key: tuple[Any, ...], shape: tuple[int, ...], read: Read) -> NDArray[Any]:
    """Read points: the arrays in `key` are broadcast together.

    A dim whose places do not depend on the other dims' is read as a range, not point by point.

    Args:
        key: A slice or an array of integers for each dim.
        shape: Shape of the whole array.
        read: Reads forward slices and arrays that are broadcast together; in its result the dims of the arrays
            come first, then those of the slices.

    Returns:
        An array with the broadcast dims first, then those of the slices.
    """
    wanted = np.broadcast_shapes(*(part.shape for part in key if isinstance(part, np.ndarray)))
    n_dims = len(wanted)
    index: list[Places] = []
    flipped_axes = []
    for axis, (part, size) in enumerate(zip(key, shape, strict=True)):
        if isinstance(part, slice):
            places, backward = _forward(part, size)
            index.append(places)
            if backward:
                flipped_axes.append(axis)
        else:
            index.append(_not_negative(_slim(part.reshape((1,) * (n_dims - part.ndim) + part.shape)), size))
    ranges = _ranges(index, n_dims)
    given = [axis for axis, part in enumerate(index) if isinstance(part, slice)]
    for axis, (places, _) in ranges.items():
        index[axis] = places
    removed = tuple(dim for _, dim in ranges.values())
    index = [part if isinstance(part, slice) else part.squeeze(removed) for part in index]
    values = read(tuple(index))
    if all(isinstance(part, slice) for part in index):
        values = values.reshape((1,) * (n_dims - len(ranges)) + values.shape)
    order = _order(n_dims, ranges, [a for a, part in enumerate(index) if isinstance(part, slice)], given)
    values = values.transpose(order)
    if values.shape[:n_dims] != wanted:
        values = np.broadcast_to(values, (*wanted, *values.shape[n_dims:])).copy()
    return np.flip(values, tuple(n_dims + given.index(axis) for axis in flipped_axes))


def _slim(part: NDArray[Any]) -> NDArray[Any]:
    """The places without repetition: xarray broadcasts all arrays to the shape of the result."""
    for axis, size in enumerate(part.shape):
        first = part.take([0], axis) if size > 1 else part
        if size > 1 and (part == first).all():
            part = first
    return part


def _ranges(index: list[Places], n_dims: int) -> dict[int, tuple[slice, int]]:
    """Axes that can be read as a range: axis to the range and the broadcast dim that is its own."""
    ranges = {}
    for axis, part in enumerate(index):
        if isinstance(part, slice):
            continue
        wide = [dim for dim in range(n_dims) if part.shape[dim] > 1]
        others = [p for a, p in enumerate(index) if a != axis and not isinstance(p, slice)]
        if len(wide) == 1 and all(other.shape[wide[0]] == 1 for other in others):
            steps = np.diff(part.ravel())
            if steps[0] > 0 and (steps == steps[0]).all():
                first, last = int(part.flat[0]), int(part.flat[-1])
                ranges[axis] = (slice(first, last + 1, int(steps[0])), wide[0])
    return ranges


def _order(
    n_dims: int, ranges: dict[int, tuple[slice, int]], sliced: list[int], given: list[int]
) -> list[int]:
    """Where the dims of the result lie in what was read."""
    owner = {dim: axis for axis, (_, dim) in ranges.items()}
    n_broadcast = n_dims - len(owner)
    broadcast = iter(range(n_broadcast))
    order = [
        n_broadcast + sliced.index(owner[dim]) if dim in owner else next(broadcast) for dim in range(n_dims)
    ]
    return order + [n_broadcast + sliced.index(axis) for axis in given]


def _forward(part: slice, size: int) -> tuple[slice, bool]:
    """The same places as a slice that goes forward, and whether they were asked for backwards."""
    places = range(size)[part]
    if not len(places):
        return slice(0, 0, 1), False
    if places.step < 0:
        return slice(places[-1], places[0] + 1, -places.step), True
    return slice(places[0], places[-1] + 1, places.step), False


def _not_negative(places: NDArray[Any], size: int) -> NDArray[np.int64]:
    outside = places[(places < -size) | (places >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of bounds for a dim of size {size}")
    return np.where(places < 0, places + size, places).astype(np.int64)
