"""The writer: takes whole blocks off a recorder's hands and commits them beside the simulation."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.block import Block
from flytraj.errors import WriteError
from flytraj.store.description import ROOT, Description
from flytraj.store.engine import Engine, Part
from flytraj.store.folder_engine import SCRATCH

__all__ = ["DatasetWriter", "WriterStats", "commit", "write_frames"]

N_BLOCKS = 3


@dataclass
class WriterStats:
    """What a writer has done so far.

    Attributes:
        frames: Committed frames of this run.
        bytes: Bytes of state committed in this run, before compression.
        stall_seconds: Seconds the recorder waited for a free block.
        queue_depth: Blocks waiting to be written or being written.
        last_commit: `time.time()` of the last commit; 0 before the first.
    """

    frames: int = 0
    bytes: int = 0
    stall_seconds: float = 0.0
    queue_depth: int = 0
    last_commit: float = 0.0


class _Job:
    """Something for the writer's thread to do; `task` None ends it."""

    def __init__(self, task: Callable[[], None] | None) -> None:
        self.task = task
        self.done = threading.Event()


class DatasetWriter:
    """Commits blocks in the order they come, in a thread of its own.

    Args:
        engine: The store, locked.
        description: The dataset as committed.
        flush_interval: Seconds after which frames of an unfinished block are committed too; None for never.
        on_failure: Called from the writer's thread when writing has failed.
    """

    def __init__(
        self,
        engine: Engine,
        description: Description,
        *,
        flush_interval: float | None,
        on_failure: Callable[[], None],
    ) -> None:
        self.stats = WriterStats()
        self._engine = engine
        self._description = description
        self._start_frames = description.n_frames
        self._flush_interval = flush_interval
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._blocks = [self._new_block(number) for number in range(N_BLOCKS)]
        self._free: queue.SimpleQueue[Block] = queue.SimpleQueue()
        for block in self._blocks[1:]:
            self._free.put(block)
        self._work: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.current = self._blocks[0]
        self._load_unfinished()
        self._thread = threading.Thread(target=self._run, name="flytraj-writer", daemon=True)
        self._thread.start()

    @property
    def n_frames(self) -> int:
        """Committed frames of the dataset."""
        return self._description.n_frames

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, or None."""
        return self._failure

    def next_block(self) -> Block:
        """Hand the full current block over and get an empty one; waits if all are being written.

        Raises:
            WriteError: Writing has failed.
        """
        full = self.current
        self.stats.queue_depth += 1
        self._work.put(_Job(lambda: self._finish(full)))
        began = time.perf_counter()
        block = self._free.get()
        self.stats.stall_seconds += time.perf_counter() - began
        self.raise_failure()
        self.current = block.start(full.index + 1)
        return self.current

    def flush(self) -> None:
        """Commit everything, the frames of the unfinished block included, and wait for it.

        Raises:
            WriteError: Writing has failed.
        """
        if self._thread.is_alive():
            job = _Job(self._commit_current)
            self._work.put(job)
            job.done.wait()
        self.raise_failure()

    def truncate(self, n_frames: int) -> None:
        """Cut the dataset to its first `n_frames`, and go on from there."""
        self.flush()
        if n_frames >= self.n_frames:
            return
        first_lost = -(-n_frames // self.current.capacity)
        last_lost = self.current.index
        self._description = commit(self._engine, self._description.with_frames(n_frames))
        self._load_unfinished()
        if self.current.n_frames:
            self._commit(self.current, self.current.n_frames)
        delete_blocks(self._engine, self._description, range(first_lost, last_lost + 1))

    def close(self) -> None:
        """Commit everything and stop; the second call does nothing.

        Raises:
            WriteError: Writing has failed; what was committed stays.
        """
        if not self._thread.is_alive():
            return
        try:
            self.flush()
        finally:
            self._work.put(_Job(None))
            self._thread.join()
            if self._failure is None:
                for block in self._blocks:
                    block.remove_file()
                if self._engine.folder is not None:
                    (self._engine.folder / SCRATCH).rmdir()
            self._engine.unlock()

    def raise_failure(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failure is None:
            return
        committed = f"{self.n_frames} frames are committed in {self._engine}"
        if isinstance(self._failure, WriteError):
            raise WriteError(f"{self._failure} {committed}.") from self._failure
        raise WriteError(f"Writing failed: {self._failure!r}; {committed}.") from self._failure

    def read(self, name: str, first_frame: int) -> NDArray[Any]:
        """Committed frames of a variable from `first_frame` on, `(n_worlds, n_frames, …)`."""
        document = self._description.documents[name]
        everything = [slice(0, size) for size in document["shape"]]
        everything[1] = slice(first_frame, self.n_frames)
        return self._engine.read_array(name, document, tuple(everything))

    def last_time(self) -> float:
        """Recording time of the last committed frame, in seconds."""
        frames = (slice(self.n_frames - 1, self.n_frames),)
        return float(self._engine.read_array("time", self._description.documents["time"], frames)[0])

    def _new_block(self, number: int) -> Block:
        d = self._description
        path = None
        if self._engine.folder is not None:
            path = self._engine.folder / SCRATCH / f"block-{number}"
            try:
                path.parent.mkdir(exist_ok=True)
                return Block(d.schema, d.n_worlds, d.layout.block_frames, path=path)
            except OSError as error:
                raise WriteError(f"The block file {path} cannot be made: {error.strerror}.") from error
        return Block(d.schema, d.n_worlds, d.layout.block_frames)

    def _load_unfinished(self) -> None:
        """Read the committed frames of the last, unfinished block back, to go on from them."""
        d = self._description
        index, n_frames = divmod(d.n_frames, d.layout.block_frames)
        block = self.current.start(index)
        if n_frames:
            first = index * d.layout.block_frames
            for name, array in block.arrays.items():
                array[:n_frames] = self.read(name, first).swapaxes(0, 1)
            block.time[:n_frames] = self._engine.read_array(
                "time", d.documents["time"], (slice(first, d.n_frames),)
            )
            block.n_frames = n_frames

    def _run(self) -> None:
        flush_at = self._next_flush()
        while True:
            try:
                job = self._work.get(timeout=max(0.0, flush_at - time.monotonic()))
            except queue.Empty:
                job = _Job(self._commit_current)
            if time.monotonic() >= flush_at:
                flush_at = self._next_flush()
            if job.task is None:
                return
            try:
                if self._failure is None:
                    job.task()
            except BaseException as error:
                self._failure = error
                self._on_failure()
            if self._failure is not None:
                # Nobody waits for ever: with a block the recorder goes on, to the error.
                self._free.put(self._blocks[0])
            job.done.set()

    def _next_flush(self) -> float:
        return time.monotonic() + (
            threading.TIMEOUT_MAX / 2 if self._flush_interval is None else self._flush_interval
        )

    def _finish(self, block: Block) -> None:
        self._commit(block, block.capacity)
        block.n_frames = 0
        self.stats.queue_depth -= 1
        self._free.put(block)

    def _commit_current(self) -> None:
        block = self.current
        n_frames = block.n_frames
        if block.first_frame + n_frames > self.n_frames and block.index * block.capacity <= self.n_frames:
            self._commit(block, n_frames)

    def _commit(self, block: Block, n_frames: int) -> None:
        arrays = {name: array[:n_frames].swapaxes(0, 1) for name, array in block.arrays.items()}
        self._description = write_frames(
            self._engine, self._description, block.first_frame, block.time[:n_frames], arrays
        )
        self.stats.frames = self._description.n_frames - self._start_frames
        d = self._description
        self.stats.bytes = self.stats.frames * (d.n_worlds * d.schema.row_bytes + 8)
        self.stats.last_commit = time.time()


def write_frames(
    engine: Engine,
    description: Description,
    first_frame: int,
    times: NDArray[np.float64],
    arrays: Mapping[str, NDArray[Any]],
) -> Description:
    """Write frames of one block and commit them: data first, then the root document.

    The shards of the block are written whole, with what they held before, so that replacing them risks nothing.

    Args:
        engine: The store.
        description: The dataset as committed.
        first_frame: First frame of the block.
        times: `(n_frames,)` recording times of the block's frames.
        arrays: Name to `(n_worlds, n_frames, …)` array.

    Returns:
        The dataset as it is now committed.
    """
    block_frames = description.layout.block_frames
    parts = []
    for name, values in arrays.items():
        document = description.documents[name]
        if values.size:
            start = (0, first_frame) + (0,) * (values.ndim - 2)
            parts.append(Part(name, document, start, _whole_block(values, block_frames)))
    parts.append(_time_part(engine, description, first_frame, times))
    engine.write(parts)
    return commit(engine, description.with_frames(first_frame + len(times)))


def commit(engine: Engine, description: Description) -> Description:
    """Make a dataset's state what a description says, atomically.

    Arrays' own documents follow: no reader needs them before the root's.
    """
    engine.replace(ROOT, description.to_json())
    for name, document in description.arrays.items():
        if "frame" in document["dimension_names"]:
            engine.replace(f"{name}/{ROOT}", _to_json(document), durable=False)
    return description


def delete_blocks(engine: Engine, description: Description, blocks: range) -> None:
    """Remove the shards of blocks that are no longer part of a dataset."""
    keys = []
    for variable in description.schema.variables:
        shard_worlds = description.documents[variable.name]["chunk_grid"]["configuration"]["chunk_shape"][0]
        rest = ".0" * len(variable.shape)
        for shard in range(-(-description.n_worlds // shard_worlds)):
            keys += [f"{variable.name}/c.{shard}.{block}{rest}" for block in blocks]
    engine.delete(keys)


def _to_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1).encode()


def _whole_block(values: NDArray[Any], block_frames: int) -> NDArray[Any]:
    """The values with the rest of the block's frames filled, so that a shard never holds an older run's."""
    missing = block_frames - values.shape[1]
    if not missing:
        return values
    whole = np.full((values.shape[0], block_frames, *values.shape[2:]), _fill(values.dtype), values.dtype)
    whole[:, : values.shape[1]] = values
    return whole


def _time_part(
    engine: Engine, description: Description, first_frame: int, times: NDArray[np.float64]
) -> Part:
    """The chunk of `time` that a block falls in, whole: what it held, and the block's times."""
    document = description.documents["time"]
    size = description.layout.time_chunk
    begin = first_frame // size * size
    values = np.full(size, np.nan)
    if first_frame > begin:
        values[: first_frame - begin] = engine.read_array("time", document, (slice(begin, first_frame),))
    values[first_frame - begin : first_frame - begin + len(times)] = times
    return Part("time", document, (begin,), values)


def _fill(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else np.zeros((), dtype)[()]
