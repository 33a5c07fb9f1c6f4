"""HDF5 in robomimic's layout: a group `data/demo_N` an episode, observations with gzip.

An episode is written when it is over: here one a world, at the end.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Frames
from benchmarks.peers import Reader

PACKAGES = ("h5py",)
SYNCS = False


def record(path: Path, frames: Frames) -> None:
    """Keep every frame until the end, then write a group an episode."""
    n_frames, n_worlds, _ = frames.shape
    trajectory = [states.copy() for states in frames]
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for world in range(n_worlds):
            demo = data.create_group(f"demo_{world}")
            states = np.array([frame[world] for frame in trajectory])
            demo.create_dataset("obs/qpos", data=states, compression="gzip")
            demo.attrs["num_samples"] = n_frames
        data.attrs["total"] = n_worlds * n_frames


def surviving_frames(path: Path, frames: Frames) -> int:
    """Open the file and read every episode."""
    n_frames, n_worlds, _ = frames.shape
    try:
        read = open_reader(path)
        values = read(slice(0, n_worlds), slice(None))
    except (OSError, KeyError):
        return 0
    return n_frames if np.array_equal(values.swapaxes(0, 1), frames.states) else 0


def open_reader(path: Path) -> Reader:
    """h5py's own slices, a dataset a world."""
    data = h5py.File(path, "r")["data"]
    n_worlds = len(data)

    def read(worlds: slice, frames: slice) -> NDArray[np.float32]:
        chosen = range(n_worlds)[worlds]
        return np.stack([data[f"demo_{world}/obs/qpos"][frames] for world in chosen])

    return read
