"""What all recorders share: the worlds, the clock, the blocks and where they go."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from flytraj.block import Block
from flytraj.clock import FrameClock, RecordingClock
from flytraj.errors import (
    FieldNotFoundError,
    InvalidArgumentError,
    NothingRecordedError,
    RecorderClosedError,
)
from flytraj.recording.memory import MemoryBlocks
from flytraj.recording.options import Options
from flytraj.schema import make_schema
from flytraj.store.create import Claim, Embedding
from flytraj.store.layout import choose_layout
from flytraj.store.writer import DatasetWriter, WriterStats
from flytraj.trajectory import RecordedTrajectory

__all__ = ["Session"]


class Session:
    """Frames of selected worlds, on their way into a dataset or kept in memory.

    The store is held from the start. The dataset is made with the first frame, when the dtype is known, or
    when the session is closed.

    Args:
        mj_model: The model.
        n_worlds: Number of worlds in the simulation.
        worlds: Indices of the worlds to record; None for all.
        frame_clock: Decides when a frame is due.
        store: Path, Zarr store, or None to record in memory.
        options: What else was asked for.
        source: Name of what is recorded, for the dataset's attributes.
        on_failure: Called from another thread when writing has failed.
        world_ids: Ids of the recorded worlds, if they are not their indices.
        sizes: `(nq, nmocap)`, for a recording without a model.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel | None,
        n_worlds: int,
        worlds: Iterable[int] | None,
        frame_clock: FrameClock,
        store: Any,
        options: Options,
        *,
        source: str,
        on_failure: Callable[[], None] = lambda: None,
        world_ids: ArrayLike | None = None,
        sizes: tuple[int, int] = (0, 0),
    ) -> None:
        indices = _world_indices(n_worlds, worlds)
        every_world = np.array_equal(indices, np.arange(n_worlds))
        self.rows: NDArray[np.int64] | None = None if every_world else indices
        self.world_ids = indices if world_ids is None else _given_ids(world_ids, len(indices))
        self.n_worlds = n_worlds
        self.mj_model = mj_model
        self.frame_clock = frame_clock
        self.clock = RecordingClock(frame_clock, len(self.world_ids))
        self.episode = np.zeros(len(self.world_ids), np.int32)
        self.schema = make_schema(
            mj_model, nq=sizes[0], nmocap=sizes[1], fields=options.fields, channels=options.channels
        )
        self._options = options
        self._source = source
        self._on_failure = on_failure
        self._blocks: DatasetWriter | MemoryBlocks | None = None
        self._first_frame = 0
        self._has_frames = False
        self._owner = os.getpid()
        self._finalizer: weakref.finalize[..., Session] | None = None
        self._closed = False
        self._claim = None if store is None else Claim(store, options.mode)
        if self._claim is not None:
            if self._claim.existing is not None:
                self._check_existing(self._claim)
            self._finalizer = weakref.finalize(self, self._claim.release)

    def start(self, source_dtype: DTypeLike) -> None:
        """Make the dataset, or the blocks in memory; once, before the first frame.

        Args:
            source_dtype: Dtype of the source's floating-point fields.
        """
        if self._blocks is not None:
            return
        dtype = self._options.dtype if self._options.dtype is not None else source_dtype
        self.schema = self.schema.with_float_dtype(dtype)
        layout = choose_layout(self.schema, len(self.world_ids), block_frames=self._options.block_frames)
        if self._claim is None:
            self._blocks = MemoryBlocks(self.schema, len(self.world_ids), layout.block_frames)
            return
        claim = self._claim
        if claim.existing is not None:
            claim.check_appendable(self.schema, self.world_ids, self._clock_attributes(), self.mj_model)
        description = claim.existing or claim.create(
            self.schema,
            self.world_ids,
            layout,
            compression=self._options.compression,
            clock=self._clock_attributes(),
            embedding=Embedding(self.mj_model, self._options.embed_model, self._options.spec),
            source=self._source,
        )
        writer = DatasetWriter(
            claim.engine,
            description,
            flush_interval=self._options.flush_interval,
            on_failure=self._on_failure,
        )
        self._blocks = writer
        if self._finalizer is not None:
            self._finalizer.detach()
        # A recorder that is dropped, or an interpreter that ends, commits what it has.
        self._finalizer = weakref.finalize(self, writer.close)
        if description.n_frames:
            self._resume(writer)

    def append(
        self,
        sim_time: NDArray[np.float64],
        fill: Callable[[Mapping[str, NDArray[Any]]], None],
    ) -> None:
        """Append the frame that is due: `fill` copies fields and channels into rows of the block."""
        blocks = self.check_open()
        block = _block_with_room(blocks)
        i = block.n_frames
        frame = {name: array[i, ...] for name, array in block.arrays.items()}
        fill(frame)
        frame["sim_time"][...] = sim_time
        restarted = self.clock.restarted
        if restarted.any():
            if self._has_frames:
                self.episode += restarted
            restarted[:] = False
        frame["episode"][...] = self.episode
        block.time[i] = self.clock.time
        self._count(blocks, block, 1)

    def extend(self, time: NDArray[np.float64], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Append frames whose clock and episodes are known.

        Args:
            time: `(n,)` recording times in seconds.
            arrays: Every variable's `(n, n_recorded, …)` array, `sim_time` and `episode` included.
        """
        blocks = self.check_open()
        done = 0
        while done < len(time):
            block = _block_with_room(blocks)
            i = block.n_frames
            n = min(len(time) - done, block.capacity - i)
            for name, array in block.arrays.items():
                array[i : i + n] = arrays[name][done : done + n]
            block.time[i : i + n] = time[done : done + n]
            self._count(blocks, block, n)
            done += n
        if done:
            self.episode[:] = arrays["episode"][-1]

    def check_open(self) -> DatasetWriter | MemoryBlocks:
        """Check that frames can be appended.

        Raises:
            RecorderClosedError: The recorder is closed, or belongs to the parent of this forked process.
            WriteError: Writing has failed.
        """
        if self._closed:
            raise RecorderClosedError("The recorder is closed: make a new one to record on.")
        if os.getpid() != self._owner:
            raise RecorderClosedError(
                "The recorder belongs to the process that made it: make one in this process, with a store of its own."
            )
        if self._blocks is None:
            self.start(np.float64)
        assert self._blocks is not None
        self._blocks.raise_failure()
        return self._blocks

    def begin_episode(self, worlds: Iterable[int] | None = None) -> None:
        """Let the next frame of some worlds begin a new episode.

        Args:
            worlds: Ids of the worlds; None for all.

        Raises:
            FieldNotFoundError: A world is not recorded.
        """
        if worlds is None:
            self.clock.restarted[:] = True
            return
        for world in worlds:
            places = np.flatnonzero(self.world_ids == world)
            if not len(places):
                raise FieldNotFoundError(f"World {world} is not recorded.")
            self.clock.restarted[places] = True

    def reset(self, *, discard: bool) -> None:
        """Begin a new trajectory; a frame is due at once."""
        self.frame_clock.reset()
        self.clock.restarted[:] = True
        if self._blocks is None:
            return
        self.check_open()
        if isinstance(self._blocks, MemoryBlocks):
            self._blocks.truncate(0)
            self.episode[:] = 0
            self._has_frames = False
        elif discard:
            self._blocks.truncate(self._first_frame)
            self._has_frames = self._first_frame > 0
            if self._has_frames:
                self.episode[:] = self._blocks.read("episode", self._first_frame - 1)[:, 0]
            else:
                self.episode[:] = 0
        else:
            self._first_frame = self._recorded()

    def trajectories(self) -> list[RecordedTrajectory]:
        """What was recorded since the last reset, a trajectory a world.

        Raises:
            NothingRecordedError: There is no frame yet.
        """
        if self._blocks is None or self._recorded() == self._first_frame:
            raise NothingRecordedError("No frames have been recorded yet.")
        if not self._closed:
            self._blocks.flush()
        read = {
            name: self._blocks.read(name, self._first_frame)
            for name in ("sim_time", "qpos", "mocap_pos", "mocap_quat")
            if name in self.schema.names
        }
        return [
            RecordedTrajectory(
                time=read["sim_time"][i],
                qpos=read["qpos"][i],
                output_fps=self.frame_clock.output_fps,
                playback_speed=self.frame_clock.playback_speed,
                world_id=int(world),
                mocap_pos=read["mocap_pos"][i] if "mocap_pos" in read else None,
                mocap_quat=read["mocap_quat"][i] if "mocap_quat" in read else None,
            )
            for i, world in enumerate(self.world_ids)
        ]

    @property
    def resumed(self) -> bool:
        """Whether there were frames before this session's first, or there are by now."""
        return self._has_frames

    @property
    def stats(self) -> WriterStats:
        """What has been written so far."""
        return WriterStats() if self._blocks is None else self._blocks.stats

    def flush(self) -> None:
        """Commit every frame recorded so far.

        Raises:
            WriteError: Writing has failed.
        """
        self.check_open().flush()

    def abandon(self) -> None:
        """Give the store back as it was found; for a session that was never started."""
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._claim is not None:
            self._claim.release()

    def close(self) -> None:
        """Commit everything and give the store back; the second call does nothing.

        Raises:
            WriteError: Writing has failed; what was committed stays.
        """
        if self._closed or os.getpid() != self._owner:
            return
        try:
            if self._blocks is None and self._claim is not None and self._claim.existing is None:
                self.start(np.float64)
        finally:
            self._closed = True
            if self._finalizer is not None:
                self._finalizer.detach()
            if self._blocks is not None:
                self._blocks.close()
            elif self._claim is not None:
                self._claim.release()

    def _count(self, blocks: DatasetWriter | MemoryBlocks, block: Block, n: int) -> None:
        block.n_frames += n
        self._has_frames = True
        if block.n_frames == block.capacity:
            blocks.next_block()

    def _recorded(self) -> int:
        """Frames of the dataset, those in the making included."""
        if isinstance(self._blocks, DatasetWriter) and not self._closed:
            return self._blocks.current.first_frame + self._blocks.current.n_frames
        return 0 if self._blocks is None else self._blocks.n_frames

    def _clock_attributes(self) -> dict[str, Any]:
        clock = self.frame_clock
        return {
            "output_fps": clock.output_fps,
            "playback_speed": clock.playback_speed,
            "timestep": clock.timestep,
            "sampling": clock.sampling,
        }

    def _check_existing(self, claim: Claim) -> None:
        assert claim.existing is not None
        dtype = self._options.dtype
        if dtype is None:
            dtype = claim.existing.schema["qpos"].dtype
        try:
            schema = self.schema.with_float_dtype(dtype)
            claim.check_appendable(schema, self.world_ids, self._clock_attributes(), self.mj_model)
        except BaseException:
            claim.release()
            raise

    def _resume(self, writer: DatasetWriter) -> None:
        """Go on from an earlier run: a new episode, one interval after its last frame."""
        self._first_frame = writer.n_frames
        self._has_frames = True
        self.episode[:] = writer.read("episode", writer.n_frames - 1)[:, 0]
        self.clock.restarted[:] = True
        self.clock.resume(writer.last_time() + self.frame_clock.interval)


def _block_with_room(blocks: DatasetWriter | MemoryBlocks) -> Block:
    block = blocks.current
    # It is full if an interrupt struck before it was handed over.
    return blocks.next_block() if block.n_frames == block.capacity else block


def _world_indices(n_worlds: int, worlds: Iterable[int] | None) -> NDArray[np.int64]:
    if n_worlds < 1:
        raise InvalidArgumentError(f"n_worlds must be at least 1, found {n_worlds}.")
    if worlds is None:
        return np.arange(n_worlds, dtype=np.int64)
    try:
        ids = [operator.index(world) for world in worlds]
    except TypeError as error:
        raise InvalidArgumentError(f"worlds must be indices of worlds, found {worlds!r}.") from error
    if not ids:
        raise InvalidArgumentError("At least one world must be recorded.")
    for world in ids:
        if not 0 <= world < n_worlds:
            raise InvalidArgumentError(
                f"World {world} is not among the {n_worlds} worlds 0 … {n_worlds - 1}."
            )
    if len(set(ids)) < len(ids):
        raise InvalidArgumentError("A world is named twice in worlds.")
    return np.array(ids, np.int64)


def _given_ids(world_ids: ArrayLike, n_worlds: int) -> NDArray[np.int64]:
    ids = np.asarray(world_ids)
    if ids.shape != (n_worlds,) or ids.dtype.kind not in "iu" or len(np.unique(ids)) < n_worlds:
        raise InvalidArgumentError(f"world_ids must be {n_worlds} different integers, found {world_ids!r}.")
    return ids.astype(np.int64)
