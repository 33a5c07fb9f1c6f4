"""Rendering in several processes, each with an OpenGL context of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import mujoco
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, RenderError
from flytraj.rendering.backend import Choice
from flytraj.rendering.frames import ClipReader, Failure, FrameBatch, LocalSource, Segment, split
from flytraj.rendering.scene import FreeCamera
from flytraj.rendering.settings import Settings
from flytraj.rendering.worker import Setup
from flytraj.trajectory import Clip, RecordedTrajectory

__all__ = ["RenderPool", "count_workers", "make_source"]

_JOBS_EACH = 2
_PICTURES_EACH = 64
_LAST_WORDS = 2000


class _Job(NamedTuple):
    number: int
    segments: list[Segment]
    states: RecordedTrajectory


def count_workers(workers: int | None, n_pictures: int, choice: Choice) -> int:
    """How many processes are worth starting; 1 means none but this one.

    Args:
        workers: What was asked for; None leaves it to the number of cores and of pictures.
        n_pictures: How many pictures there are to render.
        choice: The backend; one process keeps a CUDA device busy.
    """
    if workers is not None:
        if workers < 1:
            raise InvalidArgumentError(f"At least one process has to render, found workers={workers}.")
        return workers
    if choice.backend == "warp":
        import warp

        if warp.get_device(choice.device).is_cuda:
            return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, n_pictures // _PICTURES_EACH))


def make_source(
    mj_model: mujoco.MjModel,
    clips: Sequence[Clip],
    cameras: Mapping[str, int | FreeCamera],
    settings: Settings,
    choice: Choice,
    workers: int,
) -> LocalSource | RenderPool:
    """What renders the clips, in this process or in several."""
    if workers == 1:
        return LocalSource(mj_model, clips, cameras, settings, choice)
    return RenderPool(mj_model, clips, cameras, settings, choice, workers)


class RenderPool:
    """Renders the frames of clips in worker processes; the frames come in order.

    States are read here and sent to the workers, so any clip will do. At most two batches for each worker are on
    their way at any time.

    Args:
        mj_model: Compiled model.
        clips: What to render, from `as_clips`.
        cameras: From `resolve_cameras`.
        settings: What to render, and how.
        choice: The backend.
        workers: Number of processes.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        clips: Sequence[Clip],
        cameras: Mapping[str, int | FreeCamera],
        settings: Settings,
        choice: Choice,
        workers: int,
    ) -> None:
        self._clips = clips
        self._names = list(cameras)
        self.batch_size = settings.batch_size(len(cameras))
        settings = replace(settings, frames_per_batch=self.batch_size)
        self._settings = settings
        self._setup = Setup(mj_model, dict(cameras), settings, choice)
        self._failed: set[int] = set()
        self._again: deque[_Job] = deque()
        self._results: dict[int, tuple[_Job, list[NDArray[Any]] | str]] = {}
        self._workers: list[_Worker] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self._workers.extend(_Worker() for _ in range(workers))
            for worker in self._workers:
                worker.send(self._setup)
            stack.pop_all()

    def stream(self, batches: Iterable[list[Segment]], *, hold: int = 1) -> Iterator[FrameBatch | Failure]:
        """The frames of batches of at most `batch_size` frames, segment after segment.

        The rest of a clip that failed is left out.

        Args:
            batches: What to render.
            hold: From how many clips in turn the batches come.

        Raises:
            RenderError: A worker cannot start.
        """
        to_do = self._jobs(batches, ClipReader(self._clips, hold))
        job = next(to_do, None)
        due = 0
        while True:
            while job is not None and (worker := self._idlest()) is not None:
                self._give(worker, job)
                job = self._again.popleft() if self._again else next(to_do, None)
            if due in self._results:
                yield from self._outcome(*self._results.pop(due))
                due += 1
                continue
            busy: dict[Any, _Worker] = {worker.connection: worker for worker in self._workers if worker.jobs}
            if not busy:
                return
            for connection in wait(list(busy)):
                self._collect(busy[connection])
            if job is None and self._again:
                job = self._again.popleft()

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()

    def _jobs(self, batches: Iterable[list[Segment]], reader: ClipReader) -> Iterator[_Job]:
        number = 0
        for batch in batches:
            segments = [segment for segment in batch if segment.clip not in self._failed]
            if segments:
                yield _Job(number, segments, reader.read(segments))
                number += 1

    def _idlest(self) -> _Worker | None:
        """The worker with the least to do; None if enough is under way."""
        under_way = len(self._results) + sum(len(worker.jobs) for worker in self._workers)
        worker = min(self._workers, key=lambda worker: len(worker.jobs))
        return (
            worker if under_way < _JOBS_EACH * len(self._workers) and len(worker.jobs) < _JOBS_EACH else None
        )

    def _give(self, worker: _Worker, job: _Job) -> None:
        worker.jobs.append(job)
        try:
            worker.connection.send(job.states)
        except OSError:
            self._bury(worker)

    def _collect(self, worker: _Worker) -> None:
        """Take one answer of a worker."""
        try:
            problem = worker.connection.recv()
            if not worker.ready:
                if problem:
                    raise RenderError(problem)
                worker.ready = True
                return
            job = worker.jobs[0]
            frames = [] if problem else [self._settings.empty(job.states.n_frames) for _ in self._names]
            for pixels in frames:
                worker.connection.recv_bytes_into(pixels.data.cast("B"))
        except (EOFError, OSError):
            self._bury(worker)
            return
        worker.jobs.popleft()
        self._results[job.number] = (job, problem or frames)

    def _bury(self, worker: _Worker) -> None:
        """Put another worker in the place of one that died; the job that it was at has failed."""
        reason = worker.end(patience=1.0)
        if not worker.ready:
            raise RenderError(f"A rendering process could not start: it {reason}")
        job = worker.jobs.popleft()
        self._results[job.number] = (job, f"the process that rendered it {reason}")
        self._again.extend(worker.jobs)
        successor = _Worker()
        self._workers[self._workers.index(worker)] = successor
        successor.send(self._setup)

    def _outcome(self, job: _Job, result: list[NDArray[Any]] | str) -> Iterator[FrameBatch | Failure]:
        if isinstance(result, str):
            clips = {segment.clip for segment in job.segments} - self._failed
            self._failed |= clips
            if clips:
                yield Failure(clips, result)
            return
        for batch in split(self._clips, self._names, job.segments, job.states.time, result):
            if batch.index not in self._failed:
                yield batch


class _Worker:
    """A rendering process, what it has to do, and what it says."""

    def __init__(self) -> None:
        self.jobs: deque[_Job] = deque()
        self.ready = False
        self.connection, theirs = Pipe()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "flytraj.rendering.worker", str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends this one
            )

    def send(self, setup: Setup) -> None:
        """Tell it what to render."""
        try:
            self.connection.send(setup)
        except OSError as error:
            raise RenderError(f"A rendering process could not start: it {self.end(1.0)}") from error

    def end(self, patience: float = 0.0) -> str:
        """Kill it if it lives on for more than `patience` seconds; how it ended, in words."""
        if self._words.closed:
            return "was ended"
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.kill()
        status = self._process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()[-_LAST_WORDS:]
        self._words.close()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{how}{f', saying: {words}' if words else ''}"
