"""The recorders of CPU simulations."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.clock import FrameClock
from flytraj.errors import InvalidArgumentError
from flytraj.recording.options import Options, OptionsDict
from flytraj.recording.session import Session
from flytraj.sources import Source, find_source, source_dtype
from flytraj.sources.arrays import take_worlds
from flytraj.store.writer import WriterStats
from flytraj.trajectory import RecordedTrajectory

__all__ = ["BatchTrajectoryRecorder", "TrajectoryRecorder"]


class BatchTrajectoryRecorder:
    """Records selected worlds of a simulation of many at the frame rate of the video.

    Args:
        mj_model: Compiled model.
        n_worlds: Number of worlds in the simulation.
        worlds: Indices of the worlds to record; None for all.
        playback_speed: Speed of the video relative to real time.
        output_fps: Frames per second of the video; may be fractional.
        store: Path or Zarr store of the dataset; None keeps the recording in memory.
        **options: See `flytraj.recording.options.Options`.

    Raises:
        InvalidArgumentError: An argument cannot be used.
        DatasetExistsError: There is something at `store` already, and `mode` is `"w-"`.
        DatasetLockedError: Another recorder writes to `store`.
        ModelMismatchError: With `mode="a"`, the dataset belongs to another model.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        n_worlds: int,
        *,
        worlds: Iterable[int] | None = None,
        playback_speed: float = 0.2,
        output_fps: float = 25,
        store: Any = None,
        **options: Unpack[OptionsDict],
    ) -> None:
        checked = Options(**options)
        clock = FrameClock(playback_speed, output_fps, mj_model.opt.timestep, sampling=checked.sampling)
        self._due = -math.inf
        self._seen = -math.inf
        self._blocked = False
        self._source: Source | None = None
        this = weakref.ref(self)
        self._session = Session(
            mj_model,
            n_worlds,
            worlds,
            clock,
            store,
            checked,
            source="mujoco",
            on_failure=lambda: _block(this()),
        )
        self._channels = tuple(checked.channels)

    @property
    def world_ids(self) -> list[int]:
        """Ids of the recorded worlds."""
        return [int(world) for world in self._session.world_ids]

    @property
    def stats(self) -> WriterStats:
        """Frames, bytes, stall seconds, queue depth and last commit."""
        return self._session.stats

    @property
    def trajectories(self) -> list[RecordedTrajectory]:
        """What was recorded since the last `reset`, a trajectory a world; a store's is read into memory.

        Raises:
            NothingRecordedError: There is no frame yet.
        """
        return self._session.trajectories()

    def record_as_needed(self, data: Any, **channels: Any) -> bool:
        """Record the state of the selected worlds if a frame is due.

        Args:
            data: `mujoco.batch.Batch`, a list of `mujoco.MjData`, or a mapping of arrays `(n_worlds, …)` with
                `time` in seconds. Call it once a simulation step.
            **channels: The user's own arrays, `(n_worlds, …)`; read only when a frame is due.

        Returns:
            True if a frame was recorded.

        Raises:
            InvalidArgumentError: The data or a channel does not fit.
            WriteError: An earlier frame could not be written.
        """
        if self._blocked:
            self._session.check_open()
        source = self._source
        if source is None or not source.accepts(data):
            source = self._find_source(data)
            times = source.times(data)
            self._check_channels(channels)
            self._session.start(source_dtype(data))
            self._source = source
        else:
            times = source.times(data)
        if not self._session.clock.tick(times):
            return False
        try:
            self._record(source, data, times, channels)
        except BaseException:
            self._session.frame_clock.retract()
            raise
        return True

    def begin_episode(self, worlds: Iterable[int] | None = None) -> None:
        """Let the next frame of some worlds begin a new episode.

        Time that goes back does so by itself.

        Args:
            worlds: Ids of the worlds; None for all.

        Raises:
            FieldNotFoundError: A world is not recorded.
        """
        self._session.begin_episode(worlds)

    def reset(self, *, discard: bool = False) -> None:
        """Begin a new trajectory; a frame is due at once.

        Frames in memory are gone. In a store they stay, as earlier episodes.

        Args:
            discard: Cut from the store what was recorded since the last reset.
        """
        self._due = -math.inf
        self._session.reset(discard=discard)

    def flush(self) -> None:
        """Commit every frame recorded so far, and wait until it is on disk.

        Raises:
            WriteError: Writing has failed; what was committed stays.
        """
        self._session.flush()

    def close(self) -> None:
        """Commit everything and give the store back; the second call does nothing.

        Raises:
            WriteError: Writing has failed; what was committed stays.
        """
        _block(self)
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find_source(self, data: Any) -> Source:
        session = self._session
        return find_source(data, session.mj_model, session.schema, session.rows, session.n_worlds)

    def _record(
        self, source: Source, data: Any, times: NDArray[np.float64], channels: Mapping[str, Any]
    ) -> None:
        self._check_channels(channels)
        session = self._session

        def fill(frame: Mapping[str, NDArray[Any]]) -> None:
            source.fill(data, frame)
            for name, value in channels.items():
                take_worlds(value, session.schema[name], session.rows, session.n_worlds, frame[name])

        session.append(times, fill)

    def _check_channels(self, channels: Mapping[str, Any]) -> None:
        if channels.keys() != set(self._channels):
            raise InvalidArgumentError(
                f"With each frame the channels {', '.join(self._channels) or '(none)'} are handed over; "
                f"found {', '.join(channels) or '(none)'}. Channels are declared when the recorder is made, as in "
                'channels={"reward": ((), "float32")}.'
            )


class TrajectoryRecorder(BatchTrajectoryRecorder):
    """Records one simulation at the frame rate of the video.

    Args:
        mj_model: Compiled model.
        playback_speed: Speed of the video relative to real time.
        output_fps: Frames per second of the video; may be fractional.
        store: Path or Zarr store of the dataset; None keeps the recording in memory.
        **options: See `flytraj.recording.options.Options`.

    Raises:
        InvalidArgumentError: An argument cannot be used.
        DatasetExistsError: There is something at `store` already, and `mode` is `"w-"`.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        *,
        playback_speed: float = 0.2,
        output_fps: float = 25,
        store: Any = None,
        **options: Unpack[OptionsDict],
    ) -> None:
        super().__init__(
            mj_model, 1, playback_speed=playback_speed, output_fps=output_fps, store=store, **options
        )

    def record_as_needed(self, mj_data: mujoco.MjData, **channels: Any) -> bool:  # type: ignore[override]
        """Record the state if a frame is due.

        Args:
            mj_data: The simulation's data.
            **channels: The user's own arrays, without a dim for worlds; read only when a frame is due.

        Returns:
            True if a frame was recorded.

        Raises:
            InvalidArgumentError: The data or a channel does not fit.
            WriteError: An earlier frame could not be written.
        """
        try:
            time = mj_data.time
        except AttributeError:
            self._find_source(mj_data)
            raise
        if self._seen <= time < self._due:
            self._seen = time
            return False
        clock = self._session.clock
        if self._seen > -math.inf:
            clock.skip_to(self._seen)
        rows = {name: np.asarray(value)[np.newaxis] for name, value in channels.items()}
        recorded = super().record_as_needed(mj_data, **rows)
        self._seen, self._due = time, clock.next_due
        if self._blocked:
            self._due = -math.inf
        return recorded

    @property
    def trajectory(self) -> RecordedTrajectory:
        """What was recorded since the last `reset`; a store's is read into memory.

        Raises:
            NothingRecordedError: There is no frame yet.
        """
        return self._session.trajectories()[0]


def _block(recorder: BatchTrajectoryRecorder | None) -> None:
    """Let the next call find out what is wrong, instead of returning early."""
    if recorder is not None:
        recorder._blocked = True
        recorder._due = -math.inf
