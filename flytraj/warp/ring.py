"""Frames wait in a ring on the device until they are moved to the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, RingOverrunError
from flytraj.schema import Schema

__all__ = ["CHANGED", "HEAD", "LOST", "SLOT", "Ring"]

wp.set_module_options({"enable_backward": False})

# What the status counts: the place of the frame that is due now or -1, whether a world was reset, frames so far,
# frames for which there was no place.
SLOT = wp.constant(0)
CHANGED = wp.constant(1)
HEAD = wp.constant(2)
LOST = wp.constant(3)

_BUDGET = 64 * 2**20
_FEWEST, _MOST = 8, 1024
_MIN_FRAMES = 4

Deliver = Callable[[NDArray[np.float64], Mapping[str, NDArray[Any]]], None]


@wp.kernel  # type: ignore[untyped-decorator]
def _set(value: wp.int64, out: wp.array[wp.int64]) -> None:
    out[0] = value


class Ring:
    """A ring of frames on the device, and their way to the host.

    A frame is contiguous: the recording time, then the rows of each variable. On CUDA, frames are copied to
    pinned memory in a stream of their own; while one buffer is filled, the other is handed on.

    Args:
        schema: The variables.
        rows: `(n_recorded,)` int32, the recorded worlds, on the device.
        n_frames: Frames it holds; None lets flytraj choose.
        steps_per_frame: Steps of the simulation between two frames.
        deliver: Takes `(n,)` recording times and every variable's `(n, n_recorded, …)` array.

    Attributes:
        n_frames: Frames it holds.
        rows: The recorded worlds.
        status: `(4,)` int64 on the device, indexed by `SLOT`, `CHANGED`, `HEAD` and `LOST`.
        tail: `(1,)` int64 on the device: frames that have been moved to the host.

    Raises:
        InvalidArgumentError: `n_frames` is too small.
    """

    def __init__(
        self, schema: Schema, rows: wp.array, n_frames: int | None, steps_per_frame: float, deliver: Deliver
    ) -> None:
        self._frame = Frame(schema, len(rows))
        size = self._frame.size
        if n_frames is None:
            n_frames = min(max(_BUDGET // size, _FEWEST), _MOST)
        elif n_frames < _MIN_FRAMES:
            raise InvalidArgumentError(f"ring_frames must be at least {_MIN_FRAMES}, found {n_frames}.")
        self.n_frames = n_frames
        self.rows = rows
        self._steps_per_frame = steps_per_frame
        self._deliver = deliver
        self._device = device = rows.device
        self._on_cuda = device.is_cuda
        self.status = wp.array([-1, 0, 0, 0], dtype=wp.int64, device=device)
        self.tail = wp.zeros(1, dtype=wp.int64, device=device)
        self._memory = wp.zeros((n_frames, size), dtype=wp.uint8, device=device)
        self._answer = self.status
        if self._on_cuda:
            self._answer = wp.zeros(4, dtype=wp.int64, device="cpu", pinned=True)
            self._stream = wp.Stream(device)
            self._answered = wp.Event(device)
            self._arrived = [wp.Event(device) for _ in range(2)]
        self._counts: NDArray[np.int64] = self._answer.numpy()
        self._half = n_frames // 2
        self._buffers = [
            wp.zeros((self._half, size), dtype=wp.uint8, device="cpu", pinned=self._on_cuda) for _ in range(2)
        ]
        self._arrays = [self._frame.arrays(buffer.numpy()) for buffer in self._buffers]
        self._turn = 0
        self._on_the_way = 0
        self._moved = 0
        self._reported = 0
        self.ask()

    def view(self, name: str, word: Any = None) -> wp.array:
        """A variable's place in the ring, `(n_frames, n_recorded)`, or `(n_frames, n_recorded, n_words)`."""
        offset, shape, dtype = self._frame.places[name]
        shape, strides = shape[:1], [self._frame.size]
        if shape:
            strides.append(self._frame.row_bytes(name))
        if word is not None:
            width = wp.types.type_size_in_bytes(word)
            shape = (*shape, self._frame.row_bytes(name) // width)
            strides.append(width)
        return wp.array(
            ptr=self._memory.ptr + offset,
            dtype=wp.dtype_from_numpy(dtype) if word is None else word,
            shape=(self.n_frames, *shape),
            strides=tuple(strides),
            device=self._device,
        )

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype of a variable in the ring: that of its source."""
        return self._frame.places[name][2]

    def ask(self) -> None:
        """Let the device tell, when it gets here, how far it is; frames that it counts are complete by then."""
        if self._on_cuda:
            wp.copy(self._answer, self.status)
            self._device.stream.record_event(self._answered)

    def look(self) -> tuple[bool, bool]:
        """Wait for the device; whether a frame is due now, and whether a world was reset."""
        self.ask()
        self._wait(self._answered if self._on_cuda else None)
        return bool(self._counts[int(SLOT)] >= 0), bool(self._counts[int(CHANGED)])

    def drain(self) -> None:
        """Move frames that were finished by the last call to the host, and hand on those that have arrived.

        Raises:
            RingOverrunError: There was no place for some frames.
        """
        self._move()
        self._raise_if_lost()

    def finish(self) -> None:
        """Move every frame enqueued so far to the host, and hand it on.

        Raises:
            RingOverrunError: There was no place for some frames.
        """
        self.ask()
        while self._move():
            pass
        self._raise_if_lost()

    def _move(self) -> bool:
        """Start the next copy, hand on the last; whether there is more to come."""
        arrived = self._on_the_way
        turn = self._turn
        self._wait(self._answered if self._on_cuda else None)
        self._start_copy(min(int(self._counts[int(HEAD)]) - self._moved, self._half))
        self.ask()
        if arrived:
            self._wait(self._arrived[turn] if self._on_cuda else None)
            arrays = {name: array[:arrived] for name, array in self._arrays[turn].items()}
            self._deliver(arrays.pop("time"), arrays)
        return self._on_the_way > 0

    def _start_copy(self, n: int) -> None:
        self._on_the_way = n
        if not n:
            return
        self._turn = 1 - self._turn
        size = self._frame.size
        stream = self._stream if self._on_cuda else None
        first = self._moved % self.n_frames
        before_the_seam = min(n, self.n_frames - first)
        buffer = self._buffers[self._turn]
        wp.copy(buffer, self._memory, 0, first * size, before_the_seam * size, stream)
        if n > before_the_seam:
            rest = n - before_the_seam
            wp.copy(buffer, self._memory, before_the_seam * size, 0, rest * size, stream)
        self._moved += n
        wp.launch(_set, 1, [self._moved], [self.tail], device=self._device, stream=stream)
        if stream is not None:
            stream.record_event(self._arrived[self._turn])

    def _wait(self, event: wp.Event | None) -> None:
        if event is not None:
            wp.synchronize_event(event)

    def _raise_if_lost(self) -> None:
        lost = int(self._counts[int(LOST)]) - self._reported
        if lost <= 0:
            return
        self._reported += lost
        # Frames of two calls wait while those of the one before are copied.
        frames = self.n_frames // 3
        raise RingOverrunError(
            f"{lost} frames are lost: the ring on the device holds {self.n_frames}, and they came before there was "
            f"place. Call drain() at least every {frames} frames, which are {int(frames * self._steps_per_frame)} "
            f"steps, or give the recorder a larger ring_frames."
        )


class Frame:
    """How a frame lies in memory: each variable contiguous, at a multiple of 8 bytes, with its source's dtype.

    Args:
        schema: The variables.
        n_worlds: Number of recorded worlds.

    Attributes:
        places: Name to offset in bytes, shape and dtype; the recording time is `time`.
        size: Bytes of a frame.
    """

    def __init__(self, schema: Schema, n_worlds: int) -> None:
        fields = {variable.name for variable in schema.fields}
        self.places: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {
            "time": (0, (), np.dtype(np.float64))
        }
        self.size = 8
        for v in schema.variables:
            is_state = v.name in fields and v.dtype.kind == "f"
            dtype = np.dtype(np.float32) if is_state else v.dtype
            shape = (n_worlds, *v.shape)
            self.places[v.name] = (self.size, shape, dtype)
            self.size += -(-math.prod(shape) * dtype.itemsize // 8) * 8

    def row_bytes(self, name: str) -> int:
        """Bytes of one world's row."""
        _, shape, dtype = self.places[name]
        return math.prod(shape[1:]) * dtype.itemsize

    def arrays(self, frames: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Each variable's values in frames `(n, size)`, as `(n, n_worlds, …)` arrays on the same memory."""
        result = {}
        for name, (offset, shape, dtype) in self.places.items():
            n_bytes = math.prod(shape) * dtype.itemsize
            result[name] = frames[:, offset : offset + n_bytes].view(dtype).reshape(len(frames), *shape)
        return result
