"""The writer: takes whole blocks off a recorder's hands and commits them beside the simulation."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (what it does at exit must be registered before `_flush_all`)
import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from flytraj.block import Block
from flytraj.errors import RecorderClosedError, WriteError
from flytraj.store.commit import (
    TimeChunk,
    begin_frames,
    clear_tail,
    commit,
    commit_frames,
    follow,
    frame_chunks,
    read_frames,
)
from flytraj.store.description import ROOT, Description
from flytraj.store.engine import SCRATCH, Engine, Writing

__all__ = ["DatasetWriter", "WriterStats"]

_writers: weakref.WeakSet[DatasetWriter] = weakref.WeakSet()

N_BLOCKS = 3
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
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
        self.is_done = False
        # No Event: an interrupt that strikes inside one can leave its lock taken.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def done(self) -> None:
        """Say that it is done."""
        self.is_done = True
        self._wake.put(None)

    def wait(self) -> None:
        """Wait until it is done; interrupted, it may be called again."""
        while not self.is_done:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=1)


class DatasetWriter:
    """Commits blocks in the order they come, in a thread of its own.

    Block `i` of the dataset lies in place `i % N_BLOCKS` of a ring. The recorder fills `current` and hands it
    over by counting; the thread commits what was handed over and counts too. Each count is set by one side
    alone, so an interrupt (Ctrl-C) at any moment leaves both true.

    Args:
        engine: The store, locked.
        description: The dataset as committed.
        flush_interval: Seconds after which frames of an unfinished block are committed too; None for never.
        on_failure: Called from the writer's thread when writing has failed.

    Attributes:
        current: The block in the making.
    """

    current: Block
    _handed: int
    _written: int

    def __init__(
        self,
        engine: Engine,
        description: Description,
        *,
        flush_interval: float | None,
        on_failure: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._description = description
        self._start_frames = description.n_frames
        self._flush_interval = flush_interval
        self._flush_at = time.monotonic() + (flush_interval or 0)
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._stall_seconds = 0.0
        self._last_commit = 0.0
        self._owner = os.getpid()
        self._closed = False
        self._end = _Job(None)
        self._begun: deque[Writing] = deque()
        self._time_chunk = TimeChunk(engine)
        # Whether the root is ahead of the arrays' own documents.
        self._is_ahead = False
        first = description.n_frames // description.layout.block_frames % N_BLOCKS
        self._ring = {first: self._new_block(first)}
        self._work: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._progress: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._load_unfinished()
        self._work.put(_Job(self._complete_ring))
        self._thread = threading.Thread(target=self._run, name="flytraj-writer", daemon=True)
        self._thread.start()
        _writers.add(self)

    @property
    def n_frames(self) -> int:
        """Committed frames of the dataset."""
        return self._description.n_frames

    @property
    def stats(self) -> WriterStats:
        """What has been done so far."""
        d = self._description
        frames = max(0, d.n_frames - self._start_frames)
        return WriterStats(
            frames=frames,
            bytes=frames * (d.n_worlds * d.schema.row_bytes + 8),
            stall_seconds=self._stall_seconds,
            queue_depth=self._handed - self._written,
            last_commit=self._last_commit,
        )

    def next_block(self) -> Block:
        """Hand the full current block over and get an empty one; waits if all are being written.

        Interrupted, it may be called again.

        Raises:
            WriteError: Writing has failed.
        """
        index = self.current.index + 1
        self._handed = index
        self._work.put(_Job(self._commit_handed))
        while not self._progress.empty():
            self._progress.get()
        began = time.perf_counter()
        place = index % N_BLOCKS
        while (self._written <= index - N_BLOCKS or place not in self._ring) and self._failure is None:
            self._progress.get()
        self._stall_seconds += time.perf_counter() - began
        self.raise_failure()
        self.current = self._ring[place].start(index)
        return self.current

    def flush(self) -> None:
        """Commit everything, the frames of the unfinished block included, and wait for it.

        Raises:
            WriteError: Writing has failed.
            RecorderClosedError: This process was forked from the one that writes.
        """
        self._do(self._commit_all)

    def truncate(self, n_frames: int) -> None:
        """Cut the dataset to its first `n_frames`, and go on from there.

        Raises:
            WriteError: Writing has failed.
        """
        self._do(lambda: self._truncate(n_frames))

    def close(self) -> None:
        """Commit everything and stop; the second call does nothing.

        Raises:
            WriteError: Writing has failed; what was committed stays.
        """
        if self._closed or os.getpid() != self._owner:
            return
        # Neither `join` nor `is_alive` of the thread: interrupted, they can take it for ended while it works.
        self._work.put(_Job(self._commit_all))
        self._work.put(self._end)
        # A recorder may be collected as garbage in this very thread, in the middle of a commit: it ends after that.
        if threading.current_thread() is not self._thread:
            self._end.wait()
        self._closed = True
        self.raise_failure()

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

    def _complete_ring(self) -> None:
        """Make the other blocks; the recorder fills the first one meanwhile."""
        for place in range(N_BLOCKS):
            if place not in self._ring:
                self._ring[place] = self._new_block(place)
                self._progress.put(None)

    def _new_block(self, place: int) -> Block:
        d = self._description
        if self._engine.folder is None:
            return Block(d.schema, d.n_worlds, d.layout.block_frames)
        path = self._engine.folder / SCRATCH / f"block-{place}"
        try:
            path.parent.mkdir(exist_ok=True)
            return Block(d.schema, d.n_worlds, d.layout.block_frames, path=path)
        except OSError as error:
            raise WriteError(f"The block file {path} cannot be made: {error.strerror}.") from error

    def _load_unfinished(self) -> None:
        """Read the committed frames of the last, unfinished block back, to go on from them."""
        d = self._description
        index, n_frames = divmod(d.n_frames, d.layout.block_frames)
        block = self._ring[index % N_BLOCKS].start(index)
        if n_frames:
            times, arrays = read_frames(self._engine, d, d.n_frames - n_frames, d.n_frames)
            for name, values in arrays.items():
                block.arrays[name][:n_frames] = values.swapaxes(0, 1)
            block.time[:n_frames] = times
            block.n_frames = n_frames
        self.current = block
        self._handed = self._written = index

    def _do(self, task: Callable[[], None]) -> None:
        """Let the thread do something and wait for it."""
        if os.getpid() != self._owner:
            raise RecorderClosedError(
                f"{self._engine} is being written by the process this one was forked from."
            )
        self.raise_failure()
        if self._end.is_done:
            raise RecorderClosedError(f"The recorder of {self._engine} is closed.")
        job = _Job(task)
        self._work.put(job)
        try:
            job.wait()
        except BaseException:
            # Interrupted: what has been begun is ended first. Interrupted again, it goes on alone.
            job.wait()
            raise
        self.raise_failure()

    def _run(self) -> None:
        while (job := self._next_job()).task is not None:
            try:
                if self._failure is None:
                    job.task()
            except BaseException as error:
                self._fail(error)
            job.done()
        if self._failure is None and self._engine.folder is not None:
            # All is committed: what cannot be removed now is removed when the dataset is opened to append.
            with contextlib.suppress(OSError):
                for block in self._ring.values():
                    block.remove_file()
                (self._engine.folder / SCRATCH).rmdir()
        self._engine.unlock()
        self._end.done()

    def _next_job(self) -> _Job:
        interval = self._flush_interval
        if interval is None:
            return self._work.get()
        try:
            job = self._work.get(timeout=max(0.0, self._flush_at - time.monotonic()))
        except queue.Empty:
            job = _Job(self._commit_all)
        if time.monotonic() >= self._flush_at:
            self._flush_at = time.monotonic() + interval
        return job

    def _fail(self, error: BaseException) -> None:
        for writing in self._begun:
            with contextlib.suppress(Exception):
                writing.wait()
        self._begun.clear()
        # What a reader finds is what is committed: the root may have been replaced before something failed.
        with contextlib.suppress(Exception):
            self._description = Description.from_json(self._engine.read(ROOT) or b"", str(self._engine))
        self._failure = error
        self._on_failure()
        self._progress.put(None)

    def _commit_handed(self) -> None:
        """Commit in order; meanwhile the shards of blocks handed over later are on their way already."""
        while self._written < self._handed:
            self._begin_handed()
            writing = self._begun[0]
            while not writing.wait(_LOOK_SECONDS):
                self._begin_handed()
            block = self._ring[self._written % N_BLOCKS]
            self._set_committed(block.first_frame + block.capacity)
            self._begun.popleft()
            self._written += 1
            self._progress.put(None)

    def _begin_handed(self) -> None:
        while self._written + len(self._begun) < self._handed:
            block = self._ring[(self._written + len(self._begun)) % N_BLOCKS]
            self._begun.append(self._begin(block, block.capacity))

    def _begin(self, block: Block, n_frames: int) -> Writing:
        arrays = {name: array[:n_frames].swapaxes(0, 1) for name, array in block.arrays.items()}
        times = block.time[:n_frames]
        return begin_frames(
            self._engine, self._description, self._time_chunk, block.first_frame, times, arrays
        )

    def _set_committed(self, n_frames: int) -> None:
        self._description = commit_frames(self._engine, self._description, n_frames)
        self._last_commit = time.time()
        self._is_ahead = True

    def _commit_all(self) -> None:
        self._commit_handed()
        block = self.current
        # The recorder may have gone on to the next block meanwhile: that is for the next time.
        n_frames = block.n_frames
        if block.index == self._written and block.first_frame + n_frames > self.n_frames:
            self._begin(block, n_frames).wait()
            self._set_committed(block.first_frame + n_frames)
        if self._is_ahead:
            follow(self._engine, self._description)
            self._is_ahead = False

    def _truncate(self, n_frames: int) -> None:
        self._commit_all()
        d = self._description
        if n_frames >= d.n_frames:
            return
        # The block files first: a recovery must not bring back what is cut.
        for block in self._ring.values():
            block.n_frames = 0
        self._description = commit(self._engine, d.with_frames(n_frames))
        self._time_chunk = TimeChunk(self._engine)
        clear_tail(self._engine, self._description)
        for name, document in d.arrays.items():
            if "frame" in document["dimension_names"]:
                self._engine.delete(frame_chunks(name, document, range(n_frames, d.n_frames)))
        self._load_unfinished()


def _flush_all() -> None:
    for writer in list(_writers):
        with contextlib.suppress(Exception):
            writer.flush()


if hasattr(threading, "_register_atexit"):
    # Stores that work with thread pools (fsspec) have none any more when `atexit` calls; this comes before.
    threading._register_atexit(_flush_all)
