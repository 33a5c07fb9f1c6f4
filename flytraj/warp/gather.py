"""Rows of the recorded worlds, from the simulation's arrays into the ring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import warp as wp

from flytraj.errors import InvalidArgumentError
from flytraj.schema import Variable
from flytraj.warp.ring import SLOT, Ring

__all__ = ["Gather", "check_array"]

wp.set_module_options({"enable_backward": False})

_THREADS = 32  # threads that copy a row on CUDA
_WIDE = wp.constant(16)  # words that are copied at once on the CPU

_WIDE_WORDS = {word: wp.types.vector(length=int(_WIDE), dtype=word) for word in (wp.uint8, wp.uint32)}


@wp.kernel  # type: ignore[untyped-decorator]
def _gather(
    status: wp.array[wp.int64],
    rows: wp.array[wp.int32],
    row_threads: int,
    word_threads: int,
    n_wide: int,
    wide_source: wp.array2d[Any],
    source: wp.array2d[Any],
    wide_ring: wp.array3d[Any],
    ring: wp.array3d[Any],
) -> None:
    """Copy the rows of the recorded worlds into the place of the frame that is due, if one is."""
    first_row, first_word = wp.tid()  # type: ignore[misc]
    slot = wp.int32(status[SLOT])
    if slot < 0:
        return
    for i in range(first_row, rows.shape[0], row_threads):
        row = rows[i]
        for k in range(n_wide):
            wide_ring[slot, i, k] = wide_source[row, k]
        for k in range(n_wide * _WIDE + first_word, source.shape[1], word_threads):
            ring[slot, i, k] = source[row, k]


for _word, _words in _WIDE_WORDS.items():
    wp.overload(
        _gather,
        {
            "wide_source": wp.array2d[_words],
            "source": wp.array2d[_word],
            "wide_ring": wp.array3d[_words],
            "ring": wp.array3d[_word],
        },
    )


class Gather:
    """Copies one variable's rows of the recorded worlds into the ring.

    Args:
        ring: The ring.
        variable: The variable.
        n_worlds: Number of worlds in the simulation.
    """

    def __init__(self, ring: Ring, variable: Variable, n_worlds: int) -> None:
        self._ring = ring
        self._name = variable.name
        self._shape = (n_worlds, *variable.shape)
        self._dtype = ring.dtype(variable.name)
        self._word = wp.uint8 if self._dtype.itemsize % 4 else wp.uint32
        self._places = [ring.view(variable.name, word) for word in (_WIDE_WORDS[self._word], self._word)]
        self._source: Any = None
        self._launch: Any = None
        # Not when it is first used, which may be in a capture.
        wp.load_module(__name__, device=ring.rows.device)

    def bind(self, source: Any) -> None:
        """Read from an array `(n_worlds, …)`.

        Raises:
            InvalidArgumentError: It is no Warp array of the variable's shape and dtype on the ring's device.
        """
        if source is self._source:
            return
        rows = self._ring.rows
        check_array(source, self._name, self._shape, self._dtype, rows.device)
        words = [
            wp.array(
                ptr=source.ptr,
                dtype=place.dtype,
                shape=(self._shape[0], place.shape[2]),
                strides=(source.strides[0], place.strides[2]),
                device=rows.device,
            )
            for place in self._places
        ]
        n_wide, n_words = (place.shape[2] for place in self._places)
        # On the CPU, where threads come one after the other, one copies all, in long words.
        threads = (1, 1)
        if rows.device.is_cuda:
            threads, n_wide = (len(rows), min(n_words, _THREADS)), 0
        self._launch = wp.launch(
            _gather,
            threads,
            [self._ring.status, rows, *threads, n_wide, *words],
            self._places,
            device=rows.device,
            record_cmd=True,
        )
        self._source = source

    def launch(self) -> None:
        """Copy the rows, if a frame is due."""
        self._launch.launch()


def check_array(
    array: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], device: wp.Device
) -> None:
    """Check that kernels can read an array.

    Args:
        array: What was handed over.
        name: Its name, for the error.
        shape: `(n_worlds, …)`; vectors and matrices may be Warp's own.
        dtype: Dtype of its numbers.
        device: Where it must be.

    Raises:
        InvalidArgumentError: It is something else.
    """
    expected = f"{name} must be a Warp array on {device}, {dtype} of shape {shape}"
    if not isinstance(array, wp.array):
        raise InvalidArgumentError(
            f"{expected}; found {type(array).__module__}.{type(array).__name__}. wp.array, wp.from_torch and "
            "wp.from_jax make one."
        )
    if array.device != device:
        raise InvalidArgumentError(
            f"{expected}; it is on {array.device}. The recorder's device= says where the simulation is."
        )
    seen = array.__cuda_array_interface__ if device.is_cuda else array.__array_interface__
    found = np.dtype(seen["typestr"])
    same = found == dtype or (found.itemsize == dtype.itemsize == 1 and "f" not in (found.kind, dtype.kind))
    if not same or seen["shape"][0] != shape[0] or math.prod(seen["shape"]) != math.prod(shape):
        raise InvalidArgumentError(f"{expected}; found {found} of shape {tuple(seen['shape'])}.")
    inner = wp.types.type_size_in_bytes(array.dtype)
    for size, stride in zip(reversed(array.shape[1:]), reversed(array.strides[1:]), strict=True):
        if size > 1 and stride != inner:
            raise InvalidArgumentError(f"{expected}; its rows are not contiguous: hand over a copy.")
        inner *= size
