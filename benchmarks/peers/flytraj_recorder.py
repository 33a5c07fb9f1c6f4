"""flytraj's recorder."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import flytraj as ft
from benchmarks.data import INTERVAL, OUTPUT_FPS, PLAYBACK_SPEED, Frames, make_model
from benchmarks.peers import Reader, count_equal

PACKAGES = ("flytraj", "tensorstore", "mujoco")
SYNCS = True


def record(
    path: Path,
    frames: Frames,
    *,
    compression: Literal["lz4", "zstd", "none"] = "lz4",
    repacked: Literal["by-world", "by-time"] | None = None,
) -> None:
    """Record through the public recorder, from a mapping of arrays; repack what was recorded, if asked to."""
    recorded = path if repacked is None else path.with_name(f"{path.name}-recorded")
    with _recorder(recorded, frames, compression=compression) as recorder:
        for i, states in enumerate(frames):
            recorder.record_as_needed({"time": i * INTERVAL, "qpos": states})
    if repacked is not None:
        ft.repack(recorded, path, layout=repacked, compression=compression)
        shutil.rmtree(recorded)


def surviving_frames(path: Path, frames: Frames, *, compression: str = "lz4") -> int:
    """Open to append, which recovers, then read."""
    with _recorder(path, frames, compression=compression, mode="a"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = ft.open_dataset(path)["qpos"].values
    return count_equal(values.swapaxes(0, 1), frames)


def open_reader(path: Path, **options: Any) -> Reader:
    """A view, indexed by xarray."""
    del options
    qpos = ft.open_dataset(path)["qpos"]

    def read(worlds: slice, frames: slice) -> NDArray[np.float32]:
        values: NDArray[np.float32] = qpos.isel(world=worlds, frame=frames).values
        return values

    return read


def sample_windows(path: Path, n_windows: int, length: int) -> NDArray[np.float32]:
    """Random windows in one call, `(n_windows, length, nq)`."""
    windows: NDArray[np.float32] = ft.open_dataset(path).traj.sample_windows(n_windows, length, rng=0)
    return windows


def _recorder(path: Path, frames: Frames, **options: Any) -> ft.BatchTrajectoryRecorder:
    _, n_worlds, nq = frames.shape
    return ft.BatchTrajectoryRecorder(
        make_model(nq),
        n_worlds,
        playback_speed=PLAYBACK_SPEED,
        output_fps=OUTPUT_FPS,
        store=path,
        dtype=frames.states.dtype,
        **options,
    )
