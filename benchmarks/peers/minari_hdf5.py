"""Minari: episode buffers, made a dataset when all episodes are over."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Frames

PACKAGES = ("minari", "h5py")
SYNCS = False

_DATASET = "benchmark/states-v0"


def record(path: Path, frames: Frames) -> None:
    """Keep every frame until the end; an episode has an observation more than steps."""
    minari = _import_minari(path)
    from gymnasium.spaces import Box

    _, n_worlds, nq = frames.shape
    kept = [states.copy() for states in frames]
    n_steps = len(kept) - 1
    none = np.zeros((n_steps, 0), np.float32)
    nothing, never = np.zeros(n_steps, np.float32), np.zeros(n_steps, bool)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=world,
            observations=np.stack([states[world] for states in kept]),
            actions=none,
            rewards=nothing,
            terminations=never,
            truncations=never,
        )
        for world in range(n_worlds)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            _DATASET,
            buffers,
            observation_space=Box(-np.inf, np.inf, (nq,), np.float32),
            action_space=Box(-1, 1, (0,), np.float32),
            data_format="hdf5",
        )


def surviving_frames(path: Path, frames: Frames) -> int:
    """Load the dataset and read every episode."""
    minari = _import_minari(path)
    try:
        dataset = minari.load_dataset(_DATASET)
        values = np.stack([episode.observations for episode in dataset.iterate_episodes()])
    except (OSError, KeyError, ValueError):
        return 0
    return frames.shape[0] if np.array_equal(values.swapaxes(0, 1), frames.states) else 0


def _import_minari(path: Path) -> Any:
    """Minari, with its datasets below `path`."""
    os.environ["MINARI_DATASETS_PATH"] = str(path)
    path.mkdir(exist_ok=True)
    import minari

    return minari
