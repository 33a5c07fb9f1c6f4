"""Windows of a view as a PyTorch dataset. Importing this module loads torch (extra `torch`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flytraj.errors import MissingDependencyError
from flytraj.windows import Windows

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise MissingDependencyError("flytraj.torch needs PyTorch: pip install 'flytraj[torch]'.") from error

__all__ = ["WindowDataset"]


class WindowDataset(IterableDataset[dict[str, torch.Tensor]]):  # type: ignore[misc]
    """Goes through all windows of a view once an epoch, in batches, shared among a DataLoader's workers.

    Use it with `DataLoader(dataset, batch_size=None)`: it makes the batches itself, each read at once. With
    workers, prefer `multiprocessing_context="spawn"`: the store's threads do not survive a fork for sure.

    Args:
        windows: The windows, from `ds.traj.windows(length, fields=…)`.
        batch_size: Windows of a batch.
        seed: Seed of the shuffling; None keeps the order of worlds and frames.
    """

    def __init__(self, windows: Windows, batch_size: int, *, seed: int | None = 0) -> None:
        super().__init__()
        self._windows = windows
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew; call it before each epoch, as for torch's own distributed samplers."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        worker = get_worker_info()
        part = (0, 1) if worker is None else (worker.id, worker.num_workers)
        rng = None if self._seed is None else np.random.default_rng((self._seed, self._epoch))
        for batch in self._windows.epoch(self._batch_size, rng, part=part):
            yield {name: torch.from_numpy(values) for name, values in batch.items()}
