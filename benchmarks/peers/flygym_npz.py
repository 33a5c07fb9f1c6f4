"""flygym's recorder of many worlds, and its `save`: one compressed `.npz` a world."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flygym.recording import RecordedTrajectory
from flygym.warp.recording import WarpTrajectoryRecorder
from numpy.typing import NDArray

from benchmarks.data import INTERVAL, OUTPUT_FPS, PLAYBACK_SPEED, Frames, make_model

PACKAGES = ("flygym", "mujoco")
SYNCS = False


class _HostArray:
    """Gives its array as a Warp array on the CPU does: without a copy."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def numpy(self) -> NDArray[Any]:
        return self._array


def record(path: Path, frames: Frames) -> None:
    """Record every frame, then save every trajectory."""
    _, n_worlds, nq = frames.shape
    recorder = WarpTrajectoryRecorder(
        make_model(nq), n_worlds, playback_speed=PLAYBACK_SPEED, output_fps=OUTPUT_FPS
    )
    time = np.zeros(n_worlds, np.float32)
    for i, states in enumerate(frames):
        time[:] = i * INTERVAL
        recorder.record_as_needed(SimpleNamespace(time=_HostArray(time), qpos=_HostArray(states)))
    for trajectory in recorder.trajectories:
        trajectory.save(path / f"world{trajectory.world_id:05d}.npz")


def surviving_frames(path: Path, frames: Frames) -> int:
    """Read every file."""
    n_frames, n_worlds, _ = frames.shape
    files = sorted(path.glob("*.npz"))
    if len(files) < n_worlds:
        return 0
    values = np.stack([RecordedTrajectory.from_file(file).qpos for file in files])
    return n_frames if np.array_equal(values.swapaxes(0, 1), frames.states) else 0
