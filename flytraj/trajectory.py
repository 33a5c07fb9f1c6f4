"""The trajectory of one world, and its `.npz` file."""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, Self

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import (
    DatasetNotFoundError,
    InvalidArgumentError,
    ModelMismatchError,
    TrajectoryFileError,
    WriteError,
)

__all__ = ["Clip", "RecordedTrajectory", "as_trajectory_list", "check_trajectories_match_model"]

_REQUIRED_KEYS = ("time", "qpos", "output_fps", "playback_speed", "world_id")
_MOCAP_KEYS = ("mocap_pos", "mocap_quat")


class Clip(Protocol):
    """One world's frames, read a stretch at a time: what a renderer takes.

    A `RecordedTrajectory` is one that lies in memory; the clips of a view read the dataset.
    """

    @property
    def world_id(self) -> int:
        """Index of the parallel world."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""

    @property
    def nq(self) -> int:
        """Number of generalized coordinates."""

    @property
    def nmocap(self) -> int:
        """Number of mocap bodies."""

    @property
    def output_fps(self) -> float:
        """Frames per second of the video."""

    def read(self, start: int, stop: int) -> RecordedTrajectory:
        """Frames `start` to `stop` (exclusive)."""

    def episodes(self, start: int, stop: int) -> NDArray[Any]:
        """`(stop - start,)` which of the world's runs each of these frames belongs to, from 0."""


@dataclass(eq=False)
class RecordedTrajectory:
    """Kinematic trajectory of one world, sampled at the frame rate of the video.

    Attributes:
        time: `(n_frames,)` simulation time of each frame, in seconds.
        qpos: `(n_frames, nq)` generalized coordinates.
        output_fps: Frames per second of the video; may be fractional.
        playback_speed: Speed of the video relative to real time.
        world_id: Index of the parallel world; 0 for a simulation of one world.
        mocap_pos: `(n_frames, nmocap, 3)` positions of the mocap bodies, or None without mocap bodies.
        mocap_quat: `(n_frames, nmocap, 4)` their orientations, w first, or None.

    Raises:
        InvalidArgumentError: The arrays do not fit together.
    """

    time: NDArray[Any]
    qpos: NDArray[Any]
    output_fps: float
    playback_speed: float
    world_id: int = 0
    mocap_pos: NDArray[Any] | None = None
    mocap_quat: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self.time = np.asarray(self.time)
        self.qpos = np.asarray(self.qpos)
        for name in _MOCAP_KEYS:
            if getattr(self, name) is not None:
                setattr(self, name, np.asarray(getattr(self, name)))
        problem = _shape_problem(self.time, self.qpos, self.mocap_pos, self.mocap_quat) or _number_problem(
            self.output_fps, self.playback_speed
        )
        if problem:
            raise InvalidArgumentError(f"These arrays make no trajectory: {problem}.")

    @property
    def n_frames(self) -> int:
        """Number of recorded frames."""
        return int(self.qpos.shape[0])

    @property
    def nq(self) -> int:
        """Number of generalized coordinates."""
        return int(self.qpos.shape[1])

    @property
    def nmocap(self) -> int:
        """Number of mocap bodies."""
        return 0 if self.mocap_pos is None else int(self.mocap_pos.shape[1])

    def read(self, start: int, stop: int) -> RecordedTrajectory:
        """Frames `start` to `stop` (exclusive) as a trajectory that shares this one's memory."""
        part = slice(start, stop)
        return RecordedTrajectory(
            time=self.time[part],
            qpos=self.qpos[part],
            output_fps=self.output_fps,
            playback_speed=self.playback_speed,
            world_id=self.world_id,
            mocap_pos=None if self.mocap_pos is None else self.mocap_pos[part],
            mocap_quat=None if self.mocap_quat is None else self.mocap_quat[part],
        )

    def episodes(self, start: int, stop: int) -> NDArray[Any]:
        """`(stop - start,)` how often the time went back before each of these frames: numbers of its runs."""
        return np.cumsum(np.diff(self.time, prepend=self.time[:1]) < 0)[start:stop]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a compressed `.npz` file, replaced whole or not at all.

        The keys are `time`, `qpos`, `output_fps`, `playback_speed`, `world_id` and, with mocap bodies,
        `mocap_pos` and `mocap_quat`: the file format of `flygym.recording`. As with `numpy.savez`, `.npz` is
        added to a path that does not end in it. Missing folders are made.

        Args:
            path: Where to save.

        Raises:
            WriteError: The file cannot be written.
        """
        path = _with_npz(Path(path))
        arrays: dict[str, Any] = {key: getattr(self, key) for key in _REQUIRED_KEYS}
        if self.mocap_pos is not None:
            arrays |= {key: getattr(self, key) for key in _MOCAP_KEYS}
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                np.savez_compressed(file, **arrays)
            unfinished.replace(path)
        except OSError as error:
            raise WriteError(f"The file {path} cannot be written: {error.strerror or error}.") from error
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Load a trajectory from a file written by `save`, here or in flygym.

        Args:
            path: The file; `.npz` may be left off.

        Raises:
            DatasetNotFoundError: There is no such file.
            TrajectoryFileError: The file is no such archive, lacks a key, or its arrays do not fit together.
                Pickled objects are never loaded.
        """
        path = Path(path)
        if not path.is_file():
            if not _with_npz(path).is_file():
                raise DatasetNotFoundError(f"No trajectory file at {path}.")
            path = _with_npz(path)
        arrays = _read_archive(path)
        for key in _REQUIRED_KEYS:
            if key not in arrays:
                raise TrajectoryFileError(
                    f"{path} lacks the key {key!r}: a trajectory file has "
                    f"{', '.join(_REQUIRED_KEYS)}; found {', '.join(sorted(arrays)) or 'none'}."
                )
        if ("mocap_pos" in arrays) != ("mocap_quat" in arrays):
            raise TrajectoryFileError(f"{path} has only one of mocap_pos and mocap_quat; both go together.")
        try:
            return cls(
                time=arrays["time"],
                qpos=arrays["qpos"],
                output_fps=_as_fps(_scalar(path, arrays, "output_fps")),
                playback_speed=_scalar(path, arrays, "playback_speed"),
                world_id=int(_scalar(path, arrays, "world_id")),
                mocap_pos=arrays.get("mocap_pos"),
                mocap_quat=arrays.get("mocap_quat"),
            )
        except InvalidArgumentError as error:
            raise TrajectoryFileError(f"{path}: {error}") from error


def as_trajectory_list(
    trajectories: RecordedTrajectory | Iterable[RecordedTrajectory],
) -> list[RecordedTrajectory]:
    """Put a single trajectory in a list. Those of flygym's class become ones of this class.

    Raises:
        InvalidArgumentError: There is no trajectory, or something in the list is none.
    """
    alone: Any = [trajectories] if hasattr(trajectories, "n_frames") else trajectories
    result = [as_trajectory(item) for item in alone]
    if not result:
        raise InvalidArgumentError("No trajectories given: at least one is needed.")
    return result


def as_trajectory(item: Any) -> RecordedTrajectory:
    """A trajectory as one of this class: itself, or flygym's with the same arrays.

    Raises:
        InvalidArgumentError: It is no trajectory.
    """
    if isinstance(item, RecordedTrajectory):
        return item
    names = [field.name for field in fields(RecordedTrajectory)]
    if not all(hasattr(item, name) for name in names):
        raise InvalidArgumentError(
            f"A RecordedTrajectory or a view of a dataset was expected, found {type(item).__name__}."
        )
    return RecordedTrajectory(**{name: getattr(item, name) for name in names})


def check_trajectories_match_model(
    mj_model: mujoco.MjModel, trajectories: Iterable[RecordedTrajectory]
) -> None:
    """Check that trajectories have the model's number of coordinates and of mocap bodies.

    Raises:
        ModelMismatchError: One has not.
    """
    for trajectory in trajectories:
        check_sizes(mj_model, as_trajectory(trajectory))


def check_sizes(mj_model: mujoco.MjModel, clip: Clip) -> None:
    """Check that one world's frames have the model's number of coordinates and of mocap bodies.

    Raises:
        ModelMismatchError: They have not.
    """
    if clip.nq != mj_model.nq or clip.nmocap != mj_model.nmocap:
        raise ModelMismatchError(
            f"The trajectory of world {clip.world_id} has nq={clip.nq} and nmocap={clip.nmocap}, the model "
            f"nq={mj_model.nq} and nmocap={mj_model.nmocap}: it was recorded with another model, or a view leaves "
            "coordinates out."
        )


def _with_npz(path: Path) -> Path:
    return path if path.name.endswith(".npz") else path.with_name(path.name + ".npz")


def _as_fps(value: float) -> float:
    return int(value) if value == int(value) else value


def _shape_problem(
    time: NDArray[Any], qpos: NDArray[Any], mocap_pos: NDArray[Any] | None, mocap_quat: NDArray[Any] | None
) -> str | None:
    if time.ndim != 1:
        return f"time must be (n_frames,), found {time.shape}"
    if qpos.ndim != 2 or len(qpos) != len(time):
        return f"qpos must be (n_frames={len(time)}, nq), found {qpos.shape}"
    if (mocap_pos is None) != (mocap_quat is None):
        return "mocap_pos and mocap_quat go together, only one was given"
    if mocap_pos is not None and mocap_quat is not None:
        if mocap_pos.ndim != 3 or mocap_pos.shape[::2] != (len(time), 3):
            return f"mocap_pos must be (n_frames={len(time)}, nmocap, 3), found {mocap_pos.shape}"
        if mocap_quat.shape != (*mocap_pos.shape[:2], 4):
            return f"mocap_quat must be {(*mocap_pos.shape[:2], 4)}, found {mocap_quat.shape}"
    for name, array in (
        ("time", time),
        ("qpos", qpos),
        ("mocap_pos", mocap_pos),
        ("mocap_quat", mocap_quat),
    ):
        if array is not None and array.dtype.kind not in "fiu":
            return f"{name} must hold numbers, found {array.dtype}"
    return None


def _number_problem(output_fps: float, playback_speed: float) -> str | None:
    for name, value in (("output_fps", output_fps), ("playback_speed", playback_speed)):
        if not (math.isfinite(value) and value > 0):
            return f"{name} must be a positive finite number, found {value!r}"
    return None


def _read_archive(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = {f"{key}.npy" for key in (*_REQUIRED_KEYS, *_MOCAP_KEYS)}
            members = [info for info in archive.infolist() if info.filename in wanted]
            return {info.filename[:-4]: _read_member(path, archive, info) for info in members}
    except TrajectoryFileError:
        raise
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, zlib.error) as error:
        raise TrajectoryFileError(f"{path} is no trajectory archive (.npz): {error}.") from error


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    key = info.filename[:-4]
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise TrajectoryFileError(f"{path}, key {key!r}: unknown .npy version {version}.")
        shape, fortran_order, dtype = read_header(file)
        if dtype.kind not in "fiu":
            raise TrajectoryFileError(
                f"{path}, key {key!r}: numbers were expected, found {dtype} (nothing pickled is loaded)."
            )
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes != info.file_size - file.tell():
            raise TrajectoryFileError(
                f"{path}, key {key!r}: shape {shape} of {dtype} takes {n_bytes} bytes, "
                f"the archive says {info.file_size - file.tell()}."
            )
        data = bytearray(file.read())
    array = np.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _scalar(path: Path, arrays: Mapping[str, NDArray[Any]], key: str) -> float:
    if arrays[key].size != 1:
        raise TrajectoryFileError(
            f"{path}, key {key!r}: one number was expected, found an array of shape {arrays[key].shape}."
        )
    value: float = arrays[key].item()
    return value
