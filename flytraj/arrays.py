"""Datasets from arrays that lie in memory: `write_dataset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from flytraj.clock import FrameClock
from flytraj.errors import InvalidArgumentError
from flytraj.recording.options import Options, StorageDict
from flytraj.recording.session import Session
from flytraj.schema import Schema, as_numbers
from flytraj.sources import source_dtype

__all__ = ["write_dataset"]


def write_dataset(
    store: Any,
    mj_model: mujoco.MjModel | None,
    *,
    qpos: ArrayLike,
    time: ArrayLike,
    mocap_pos: ArrayLike | None = None,
    mocap_quat: ArrayLike | None = None,
    fields: Mapping[str, ArrayLike] | None = None,
    channels: Mapping[str, ArrayLike] | None = None,
    episode: ArrayLike | None = None,
    world_ids: ArrayLike | None = None,
    output_fps: float = 25,
    playback_speed: float | None = None,
    **options: Unpack[StorageDict],
) -> None:
    """Write arrays of many worlds and frames as a dataset.

    Args:
        store: Path or Zarr store.
        mj_model: The model; None where there is none, for a dataset without names and fingerprint.
        qpos: `(n_worlds, n_frames, nq)`.
        time: Simulation time in seconds, `(n_frames,)` or `(n_worlds, n_frames)`.
        mocap_pos: `(n_worlds, n_frames, nmocap, 3)`, where the model has mocap bodies.
        mocap_quat: `(n_worlds, n_frames, nmocap, 4)`, likewise.
        fields: Further MjData fields by MuJoCo's name, `(n_worlds, n_frames, …)`.
        channels: The user's own arrays, `(n_worlds, n_frames, …)`.
        episode: Number of each frame's episode, `(n_worlds, n_frames)`; None begins one where time goes back.
        world_ids: `(n_worlds,)` ids of the worlds; None counts from 0.
        output_fps: Frames per second of a video.
        playback_speed: Speed of a video relative to real time; None gives every frame of the arrays its place:
            the median time between frames times `output_fps`.
        **options: See `flytraj.recording.options.Options`.

    Raises:
        InvalidArgumentError: The arrays do not fit together or do not fit the model.
        DatasetExistsError: There is something at `store` already, and `mode` is `"w-"`.
    """
    state = _state(qpos, mocap_pos, mocap_quat)
    n_worlds, n_frames, nq = state["qpos"].shape
    if mj_model is not None and nq != mj_model.nq:
        raise InvalidArgumentError(f"qpos has nq={nq}, the model {mj_model.nq}.")
    own = {name: as_numbers(name, values) for name, values in (channels or {}).items()}
    state |= {name: as_numbers(name, values) for name, values in (fields or {}).items()}
    sim_time = _sim_time(time, n_worlds, n_frames)
    if playback_speed is None:
        # Times are sums of steps: what rounding adds is no speed.
        playback_speed = float(f"{_spacing(sim_time) * output_fps:.9g}")
    checked = Options(
        fields=tuple(fields or ()),
        channels={name: (values.shape[2:], values.dtype) for name, values in own.items()},
        **options,
    )
    timestep = playback_speed / output_fps if mj_model is None else mj_model.opt.timestep
    clock = FrameClock(playback_speed, output_fps, timestep, sampling=checked.sampling)
    nmocap = state["mocap_pos"].shape[2] if "mocap_pos" in state else 0
    session = Session(
        mj_model,
        n_worlds,
        None,
        clock,
        store,
        checked,
        source="arrays",
        world_ids=world_ids,
        sizes=(nq, nmocap),
    )
    arrays = {**state, **own}
    try:
        _check_shapes(session.schema, arrays, n_worlds, n_frames)
        numbers = None if episode is None else _episodes(episode, n_worlds, n_frames)
    except BaseException:
        session.abandon()
        raise
    try:
        session.start(source_dtype(state))
        _write(session, sim_time, numbers, arrays)
    finally:
        session.close()


def _state(
    qpos: ArrayLike, mocap_pos: ArrayLike | None, mocap_quat: ArrayLike | None
) -> dict[str, NDArray[Any]]:
    state = {"qpos": as_numbers("qpos", qpos)}
    if state["qpos"].ndim != 3:
        raise InvalidArgumentError(f"qpos must be (n_worlds, n_frames, nq), found {state['qpos'].shape}.")
    if (mocap_pos is None) != (mocap_quat is None):
        raise InvalidArgumentError("mocap_pos and mocap_quat go together, only one was given.")
    if mocap_pos is not None and mocap_quat is not None:
        state |= {
            "mocap_pos": as_numbers("mocap_pos", mocap_pos),
            "mocap_quat": as_numbers("mocap_quat", mocap_quat),
        }
    return state


def _sim_time(time: ArrayLike, n_worlds: int, n_frames: int) -> NDArray[np.float64]:
    sim_time = as_numbers("time", time).astype(np.float64, copy=False)
    if sim_time.shape not in ((n_frames,), (n_worlds, n_frames)):
        raise InvalidArgumentError(
            f"time must have shape {(n_frames,)} or {(n_worlds, n_frames)}, found {sim_time.shape}."
        )
    return np.broadcast_to(sim_time, (n_worlds, n_frames))


def _spacing(sim_time: NDArray[np.float64]) -> float:
    steps = np.diff(sim_time, axis=1)
    forward = steps[steps > 0]
    if not len(forward):
        raise InvalidArgumentError(
            "The time between frames is not to be had from the arrays: give playback_speed."
        )
    return float(np.median(forward))


def _check_shapes(schema: Schema, arrays: Mapping[str, NDArray[Any]], n_worlds: int, n_frames: int) -> None:
    for variable in schema.variables:
        if variable.name in ("sim_time", "episode"):
            continue
        if variable.name not in arrays:
            raise InvalidArgumentError(
                f"The model needs {variable.name}, an array of shape {(n_worlds, n_frames, *variable.shape)}."
            )
        expected = (n_worlds, n_frames, *variable.shape)
        if arrays[variable.name].shape != expected:
            raise InvalidArgumentError(
                f"{variable.name} must have shape {expected}, found {arrays[variable.name].shape}."
            )
    for name in arrays.keys() - set(schema.names):
        raise InvalidArgumentError(f"The model has no {name}: leave it out.")


def _episodes(episode: ArrayLike, n_worlds: int, n_frames: int) -> NDArray[np.int32]:
    numbers = as_numbers("episode", episode).astype(np.int32, copy=False)
    if numbers.shape != (n_worlds, n_frames):
        raise InvalidArgumentError(f"episode must have shape {(n_worlds, n_frames)}, found {numbers.shape}.")
    return numbers


def _write(
    session: Session,
    sim_time: NDArray[np.float64],
    episode: NDArray[np.int32] | None,
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    n_frames = sim_time.shape[1]
    recording_time, numbers = _follow(session, sim_time)
    if episode is not None:
        numbers = episode
    every: dict[str, NDArray[Any]] = {"sim_time": sim_time, "episode": numbers, **arrays}
    step = 1024
    for first in range(0, n_frames, step):
        part = slice(first, min(n_frames, first + step))
        session.extend(recording_time[part], {k: v[:, part].swapaxes(0, 1) for k, v in every.items()})


def _follow(session: Session, sim_time: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The recording's clock and the episodes, as a recorder that saw these times would have them."""
    clock, episode = session.clock, session.episode
    recording_time = np.empty(sim_time.shape[1])
    numbers = np.empty(sim_time.shape, np.int32)
    for frame, times in enumerate(np.ascontiguousarray(sim_time.T)):
        clock.tick(times)
        if frame or session.resumed:
            episode += clock.restarted
        clock.restarted[:] = False
        recording_time[frame] = clock.time
        numbers[:, frame] = episode
    return recording_time, numbers
