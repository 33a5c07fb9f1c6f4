"""The PyTorch dataset: every window once an epoch, whatever the number of workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flytraj as ft

torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")


@pytest.mark.parametrize("n_workers", [0, 2])
def test_every_window_once_an_epoch(tmp_path: Path, n_workers: int) -> None:
    from torch.utils.data import DataLoader

    from flytraj.torch import WindowDataset

    values = np.arange(4 * 30, dtype=np.float32).reshape(4, 30, 1)
    ft.write_dataset(tmp_path / "a", None, qpos=values, time=np.arange(30) * 0.1)
    windows = ft.open_dataset(tmp_path / "a").traj.windows(5)
    dataset = WindowDataset(windows, 8, seed=3)
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=n_workers,
        multiprocessing_context="spawn" if n_workers else None,
    )
    epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        batches = [batch["qpos"] for batch in loader]
        assert all(isinstance(batch, torch.Tensor) and batch.shape[1:] == (5, 1) for batch in batches)
        epochs.append([int(window[0, 0]) for batch in batches for window in batch])
    expected = [world * 30 + start for world in range(4) for start in range(26)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == expected
    assert epochs[0] != epochs[1]
