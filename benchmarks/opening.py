"""Opening: the time until a dataset's names, sizes and times can be asked for, by the number of its frames."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Frames, smooth_states
from benchmarks.peers import PEERS
from benchmarks.process import run_fresh, warm_memory
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Settings, interleave

__all__ = ["import_lazy_parts", "measure", "prepare", "run"]

_READABLE = ("flytraj", "tensorstore", "zarr", "robomimic", "memmap")
_N_WORLDS, _NQ = 16, 72
_REPEATS = 20


def run(settings: Settings) -> list[Table]:
    """Write few and many frames, then open them in fresh processes."""
    lengths = (64, 640) if settings.quick else (512, 51_200)
    cases = {}
    for peer in _READABLE:
        for n_frames in lengths:
            arguments: dict[str, Any] = {"peer": peer, "n_frames": n_frames, "folder": str(settings.folder)}
            run_fresh("opening:prepare", **arguments)
            cases[f"{peer} {n_frames}"] = Case(PEERS[peer].label, "opening:measure", arguments=arguments)
    outcomes = interleave(settings, cases, "opening")

    def cell(peer: str, n_frames: int, key: str) -> float:
        return outcomes[f"{peer} {n_frames}"].median(key)

    return [
        Table(
            "opening",
            f"Opening {_N_WORLDS} worlds of {lengths[0]} and of {lengths[1]} frames, ms",
            ["", *(f"{n} frames, {which}" for which in ("first", "again") for n in lengths)],
            [
                [
                    PEERS[peer].label,
                    *(f"{cell(peer, n, key):.2f}" for key in ("first_ms", "again_ms") for n in lengths),
                ]
                for peer in _READABLE
            ],
            [
                "After imports, in fresh processes; first: the first in its process; again: the median of "
                f"{_REPEATS} more. Medians of {settings.rounds} rounds.",
                "flytraj opens all arrays, labels and coordinates as a view, the others a single array.",
            ],
            [
                Bars({PEERS[peer].label: cell(peer, n, "first_ms") for peer in _READABLE}, f"ms, {n} frames")
                for n in lengths
            ],
        )
    ]


def prepare(peer: str, n_frames: int, folder: str) -> None:
    """Write a dataset."""
    frames = Frames(smooth_states(n_frames, _N_WORLDS, _NQ))
    PEERS[peer].load().record(_path(peer, n_frames, folder), frames, **PEERS[peer].options)


def measure(peer: str, n_frames: int, folder: str) -> dict[str, Any]:
    """Open in this fresh process, after everything is imported."""
    module = PEERS[peer].load()
    import_lazy_parts()
    path = _path(peer, n_frames, folder)
    warm_memory(2**26)
    seconds = []
    for _ in range(1 + _REPEATS):
        began = time.perf_counter()
        module.open_reader(path)
        seconds.append(time.perf_counter() - began)
    return {"first_ms": seconds[0] * 1e3, "again_ms": statistics.median(seconds[1:]) * 1e3}


def import_lazy_parts() -> None:
    """What flytraj, and xarray and pandas (dask, pyarrow), import on first use: not what is measured here."""
    import xarray as xr

    import flytraj

    _ = flytraj.open_dataset
    xr.Variable("x", np.array(["a"], object))


def _path(peer: str, n_frames: int, folder: str) -> Path:
    return Path(folder) / f"opening-{peer}-{n_frames}"
