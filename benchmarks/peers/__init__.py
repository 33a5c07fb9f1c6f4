"""Flytraj and its peers: each a module of its own, used as its documentation says.

A peer's module has `PACKAGES` (whose versions are reported), `SYNCS` (whether what it wrote is on the disk, and not
only with the operating system, when it is done), `record(path, frames, **options)`, which records frames as they
come, and `surviving_frames(path, frames, **options)`: how many frames of all worlds are read back, bit for bit, by
its own reader. Peers that can be read in part also have `open_reader(path, **options)`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Frames

__all__ = ["PEERS", "Peer", "PeerModule", "Reader", "count_equal"]

Reader = Callable[[slice, slice], NDArray[Any]]
"""Reads a box of worlds and frames: `(n_worlds, n_frames, nq)`."""


class PeerModule(Protocol):
    """What a peer's module has."""

    PACKAGES: tuple[str, ...]
    SYNCS: bool

    def record(self, path: Path, frames: Frames, **options: Any) -> None:
        """Record all frames to `path`, which does not exist yet."""

    def surviving_frames(self, path: Path, frames: Frames, **options: Any) -> int:
        """Frames that can be read back."""

    def open_reader(self, path: Path, **options: Any) -> Reader:
        """Open what was recorded."""


@dataclass(frozen=True)
class Peer:
    """One row of a table.

    Attributes:
        label: What it is called there.
        module: Name of its module in this package.
        options: Arguments to its functions.
    """

    label: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_flygym(self) -> bool:
        """Whether it runs in flygym's Python."""
        return self.module == "flygym_npz"

    def load(self) -> PeerModule:
        """Import its module, and with it its packages."""
        return cast(PeerModule, importlib.import_module(f"benchmarks.peers.{self.module}"))

    def versions(self) -> str:
        """Its packages with their versions, as installed here."""
        packages = self.load().PACKAGES
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages) or "–"


PEERS = {
    "flytraj": Peer("flytraj, lz4", "flytraj_recorder"),
    "flytraj-zstd": Peer("flytraj, zstd", "flytraj_recorder", {"compression": "zstd"}),
    "flytraj-none": Peer("flytraj, uncompressed", "flytraj_recorder", {"compression": "none"}),
    "tensorstore": Peer("TensorStore, same blocks and codec", "tensorstore_blocks"),
    "tensorstore-ahead": Peer(
        "TensorStore, the same, two blocks in flight", "tensorstore_blocks", {"in_flight": 2}
    ),
    "zarr": Peer("zarr-python, sharded, lz4", "zarr_python"),
    "memmap": Peer("np.memmap, frame by frame", "np_memmap"),
    "plain": Peer("plain file, blocks transposed", "plain_file"),
    "mcap": Peer("MCAP, lz4", "mcap_lz4"),
    "parquet": Peer("Parquet, LeRobot's layout", "lerobot_parquet"),
    "robomimic": Peer("HDF5 gzip, robomimic's layout", "hdf5_robomimic"),
    "isaaclab": Peer("HDF5 gzip, Isaac Lab's layout", "hdf5_isaaclab"),
    "minari": Peer("Minari, HDF5", "minari_hdf5"),
    "flygym": Peer("flygym, one .npz a world", "flygym_npz"),
}


def count_equal(values: NDArray[Any], frames: Frames) -> int:
    """How many frames from the first on are what was recorded; `values` is `(n_frames, n_worlds, nq)`."""
    n_frames = min(len(values), len(frames.states))
    equal = (values[:n_frames] == frames.states[:n_frames]).all(axis=(1, 2))
    return n_frames if equal.all() else int(np.argmin(equal))
