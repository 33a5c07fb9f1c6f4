"""Recording of simulations on MuJoCo Warp."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
import warnings
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, Unpack

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from flytraj.clock import FrameClock
from flytraj.errors import FieldNotFoundError, InvalidArgumentError, RecorderClosedError
from flytraj.recording.options import Options, OptionsDict
from flytraj.recording.session import Session
from flytraj.store.writer import WriterStats
from flytraj.trajectory import RecordedTrajectory
from flytraj.warp.clock import DeviceClock
from flytraj.warp.gather import Gather, check_array
from flytraj.warp.ring import Ring

__all__ = ["WarpTrajectoryRecorder"]

logger = logging.getLogger("flytraj.warp")

_DRAIN_SECONDS = 1.0


class WarpTrajectoryRecorder:
    """Records selected worlds of a MuJoCo Warp simulation at the frame rate of the video.

    There are two ways. `record_as_needed(mjw_data)`, once a step, waits for the device to know if a frame is
    due. `enqueue(mjw_data)` never waits and can be captured in a graph with the step; then `drain()` has to be
    called now and then. Both give the same data, and can be mixed.

    A clock on the device counts steps of the model's timestep, so times are exact however coarse Warp's float32
    time is. All worlds make the same steps between two calls; one that did not was reset, and begins a new
    episode. That a world is at the very time where it would be without a reset cannot be seen:
    `begin_episode` tells.

    Frames on the device die with the process; `record_as_needed` drains at least every second that it is called.

    Args:
        mj_model: Compiled model.
        n_worlds: Number of worlds in the simulation.
        worlds: Indices of the worlds to record; None for all. Only they are copied to the host.
        playback_speed: Speed of the video relative to real time.
        output_fps: Frames per second of the video; may be fractional.
        store: Path or Zarr store of the dataset; None keeps the recording in memory.
        device: Warp's name of the simulation's device; None takes Warp's default, which is CUDA where there is.
        ring_frames: Frames that wait on the device for `drain`; None takes what 64 MiB hold, from 8 to 1024.
        **options: See `flytraj.recording.options.Options`.

    Raises:
        InvalidArgumentError: An argument cannot be used, or the model has a feature that MuJoCo Warp refuses.
        FieldNotFoundError: MuJoCo Warp does not have a field.
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
        device: str | None = None,
        ring_frames: int | None = None,
        **options: Unpack[OptionsDict],
    ) -> None:
        checked = Options(**options)
        frame_clock = FrameClock(playback_speed, output_fps, mj_model.opt.timestep, sampling=checked.sampling)
        self._device = wp.get_device(device)
        if device is None and self._device.is_cpu:
            _tell_of_the_cpu()
        _check_model(mj_model)
        self._blocked = False
        this = weakref.ref(self)
        session = Session(
            mj_model,
            n_worlds,
            worlds,
            frame_clock,
            store,
            checked,
            source="mujoco_warp",
            on_failure=lambda: _block(this()),
        )
        try:
            _check_fields(session)
            rows = wp.array(session.world_ids, dtype=wp.int32, device=self._device)
            steps_per_frame = frame_clock.interval / frame_clock.timestep
            self._ring = Ring(session.schema, rows, ring_frames, steps_per_frame, session.extend)
            self._clock = DeviceClock(frame_clock, mj_model.key_time, self._ring)
            variables = [*session.schema.fields, *(session.schema[name] for name in checked.channels)]
            self._gathers = {v.name: Gather(self._ring, v, n_worlds) for v in variables if v.row_bytes}
            session.start(np.float32)
        except BaseException:
            session.abandon()
            raise
        self._session = session
        self._time_shape = (n_worlds,)
        self._fields = [v.name for v in session.schema.fields if v.row_bytes]
        self._channels = set(checked.channels)
        self._bound_time: Any = None
        self._undrained = 0
        self._drained_at = time.monotonic()
        self._finalizer = weakref.finalize(self, _finish, self._ring, session)
        self._begin_anew(session.clock.resume_at)

    @property
    def world_ids(self) -> list[int]:
        """Ids of the recorded worlds."""
        return [int(world) for world in self._session.world_ids]

    @property
    def stats(self) -> WriterStats:
        """Frames, bytes, stall seconds, queue depth and last commit; of frames that were drained."""
        return self._session.stats

    @property
    def trajectories(self) -> list[RecordedTrajectory]:
        """What was recorded since the last `reset`, a trajectory a world; a store's is read into memory.

        Raises:
            NothingRecordedError: There is no frame yet.
            RingOverrunError: Frames were lost, see `drain`.
        """
        if not self._blocked:
            self._ring.finish()
        return self._session.trajectories()

    def record_as_needed(self, mjw_data: mjw.Data, **channels: wp.array) -> bool:
        """Record the state of the selected worlds if a frame is due. Waits for the device.

        Args:
            mjw_data: The simulation's data, on the recorder's device. Call it once a simulation step.
            **channels: The user's own Warp arrays, `(n_worlds, …)`.

        Returns:
            True if a frame was recorded.

        Raises:
            InvalidArgumentError: The data or a channel does not fit.
            WriteError: An earlier frame could not be written.
        """
        self._bind(mjw_data, channels)
        self._clock.tick()
        is_due, has_changed = self._ring.look()
        if is_due or has_changed:
            self._clock.settle()
        if is_due:
            for gather in self._gathers.values():
                gather.launch()
            self._ring.ask()
            self._undrained += 1
            now = time.monotonic()
            if self._undrained >= self._ring.n_frames // 4 or now > self._drained_at + _DRAIN_SECONDS:
                self._undrained, self._drained_at = 0, now
                self._ring.drain()
        return is_due

    def enqueue(self, mjw_data: mjw.Data, **channels: wp.array) -> None:
        """Let the device record the state of the selected worlds if a frame is due. Does not wait for it.

        It may be captured in a graph with the simulation's step; the arrays are then those of this call, and the
        recorder must live as long as the graph. Call it once a simulation step, and `drain` before the ring is full.

        Args:
            mjw_data: The simulation's data, on the recorder's device.
            **channels: The user's own Warp arrays, `(n_worlds, …)`.

        Raises:
            InvalidArgumentError: The data or a channel does not fit.
            WriteError: An earlier frame could not be written.
        """
        self._bind(mjw_data, channels)
        self._clock.tick()
        self._clock.settle()
        for gather in self._gathers.values():
            gather.launch()

    def drain(self) -> None:
        """Move frames from the device to the host, beside the simulation.

        It starts to copy the frames that were finished by the last call, and hands those copied since then to
        the writer, so that neither the device nor the host waits for the other. `flush` moves them all. Call it
        where the simulation's stream is Warp's current one, at least every third of a ring of frames.

        Raises:
            RingOverrunError: The ring was full and frames were lost; the message says how often to drain.
            WriteError: An earlier frame could not be written.
        """
        if self._blocked:
            self._session.check_open()
        self._ring.drain()

    def begin_episode(self, worlds: Iterable[int] | None = None) -> None:
        """Let the next frame of some worlds begin a new episode.

        Time that goes elsewhere than that of the other worlds does so by itself.

        Args:
            worlds: Ids of the worlds; None for all.

        Raises:
            FieldNotFoundError: A world is not recorded.
        """
        self._session.begin_episode(worlds)
        self._mark_restarted()

    def reset(self, *, discard: bool = False) -> None:
        """Begin a new trajectory; a frame is due at once.

        Frames in memory are gone. In a store they stay, as earlier episodes.

        Args:
            discard: Cut from the store what was recorded since the last reset.

        Raises:
            RingOverrunError: Frames were lost, see `drain`.
        """
        self._session.check_open()
        self._ring.finish()
        self._session.reset(discard=discard)
        self._begin_anew()

    def flush(self) -> None:
        """Move every frame to the host, commit them, and wait until they are on disk.

        Raises:
            RingOverrunError: Frames were lost, see `drain`.
            WriteError: Writing has failed; what was committed stays.
        """
        self._session.check_open()
        try:
            self._ring.finish()
        finally:
            self._session.flush()

    def close(self) -> None:
        """Commit everything and give the store back; the second call does nothing.

        Raises:
            RingOverrunError: Frames were lost, see `drain`.
            WriteError: Writing has failed; what was committed stays.
        """
        if self._finalizer.detach():
            _block(self)
            _finish(self._ring, self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bind(self, mjw_data: mjw.Data, channels: dict[str, wp.array]) -> None:
        """Check what was handed over, before anything is launched."""
        if self._blocked:
            self._session.check_open()
        if channels.keys() != self._channels:
            raise InvalidArgumentError(
                f"With each step the channels {', '.join(sorted(self._channels)) or '(none)'} are handed over; "
                f"found {', '.join(channels) or '(none)'}."
            )
        if mjw_data.time is not self._bound_time:
            check_array(mjw_data.time, "time", self._time_shape, np.dtype(np.float32), self._device)
            self._clock.bind(mjw_data.time)
            self._bound_time = mjw_data.time
        for name in self._fields:
            self._gathers[name].bind(getattr(mjw_data, name))
        for name, array in channels.items():
            self._gathers[name].bind(array)

    def _begin_anew(self, origin: float | None = None) -> None:
        session = self._session
        self._clock.begin_anew(session.episode, has_frames=session.resumed, origin=origin)
        self._mark_restarted()

    def _mark_restarted(self) -> None:
        restarted = self._session.clock.restarted
        self._clock.mark(restarted)
        restarted[:] = False


def _finish(ring: Ring, session: Session) -> None:
    try:
        # In a forked child, the parent finishes.
        with contextlib.suppress(RecorderClosedError):
            ring.finish()
    finally:
        session.close()


def _block(recorder: WarpTrajectoryRecorder | None) -> None:
    """Let the next call find out what is wrong."""
    if recorder is not None:
        recorder._blocked = True


@functools.cache
def _tell_of_the_cpu() -> None:
    if not wp.is_cuda_available():
        logger.warning("Warp finds no CUDA device: the recorder runs on the CPU.")


def _check_model(mj_model: mujoco.MjModel) -> None:
    try:
        with warnings.catch_warnings(action="ignore"), wp.ScopedDevice("cpu"):
            mjw.put_model(mj_model)
    except (NotImplementedError, ValueError) as error:
        raise InvalidArgumentError(f"MuJoCo Warp cannot simulate this model: {error}") from error


def _check_fields(session: Session) -> None:
    held = {field.name for field in dataclasses.fields(mjw.Data)}
    missing = [variable.name for variable in session.schema.fields if variable.name not in held]
    if missing:
        raise FieldNotFoundError(
            f"MuJoCo Warp's Data has no {', '.join(missing)}: leave it out of fields, or hand it over as a channel."
        )
