"""Reading: one world, a box, a moment, everything, and random windows, of what each peer recorded."""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Frames, smooth_states
from benchmarks.peers import Peer
from benchmarks.process import run_fresh, warm_memory
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Outcome, Settings, interleave, skip_reason

__all__ = ["measure", "prepare", "run"]

PEERS = {
    "flytraj": Peer("flytraj, lz4", "flytraj_recorder"),
    "flytraj-worlds": Peer("flytraj, repacked by world, lz4", "flytraj_recorder", {"repacked": "by-world"}),
    "tensorstore": Peer("TensorStore, flytraj's layout", "tensorstore_blocks"),
    "tensorstore-fine": Peer("TensorStore, chunks of 1 world", "tensorstore_blocks", {"layout": "fine"}),
    "tensorstore-worlds": Peer("TensorStore, a chunk a world", "tensorstore_blocks", {"layout": "by-world"}),
    "zarr": Peer("zarr-python, sharded", "zarr_python"),
    "robomimic": Peer("h5py, robomimic's layout, gzip", "hdf5_robomimic"),
    "memmap": Peer("np.memmap, frame by frame", "np_memmap"),
    "memmap-worlds": Peer("np.memmap, world by world", "np_memmap", {"order": "worlds"}),
}
_BOX = 64
_WINDOW = 32
_COLUMNS = {
    "world": "one world, all frames, ms",
    "box": f"{_BOX} worlds × {_BOX} frames, ms",
    "moment": "one frame, all worlds, ms",
    "everything": "everything, MB/s",
    "windows": f"windows of {_WINDOW} frames, 1/s",
    "one_call": "windows in one call, 1/s",
}


def run(settings: Settings) -> list[Table]:
    """Write the same frames with every peer, then read them in rounds."""
    sizes: dict[str, Any] = {"n_frames": 128, "n_worlds": 128, "nq": 72} if settings.quick else _full_sizes()
    n_windows = 256 if settings.quick else 4096
    for name in PEERS:
        run_fresh("reading:prepare", peer=name, folder=str(settings.folder), **sizes)
    cases = {
        name: Case(
            peer.label,
            "reading:measure",
            arguments={"peer": name, "folder": str(settings.folder), "n_windows": n_windows, **sizes},
        )
        for name, peer in PEERS.items()
    }
    outcomes = interleave(settings, cases, "reading")
    measured = {name: outcome for name, outcome in outcomes.items() if outcome.results}
    notes = [
        "From the page cache, a fresh process each; medians of the reads in a process, and of "
        f"{settings.rounds} rounds.",
        f"Windows: {n_windows} random windows of {_WINDOW} frames of one world; in one call only flytraj reads "
        "them, opening counted.",
        *skip_reason(outcomes.values()),
    ]
    if len({outcome.first("checksum") for outcome in measured.values()}) > 1:
        notes.append("The peers did not read the same values: the comparison is void.")
    return [
        Table(
            "reading",
            "Reading {n_worlds} worlds × {n_frames} frames × {nq} float32".format(**sizes),
            ["", *_COLUMNS.values()],
            [[o.label, *(_shown(o, key) for key in _COLUMNS)] for o in measured.values()],
            notes,
            [Bars(_values(measured, key), heading) for key, heading in _COLUMNS.items() if key != "one_call"],
        )
    ]


def prepare(peer: str, n_frames: int, n_worlds: int, nq: int, folder: str) -> None:
    """Write the dataset that a peer reads, and see that it reads what was written."""
    chosen = PEERS[peer]
    module = chosen.load()
    frames = Frames(smooth_states(n_frames, n_worlds, nq))
    path = Path(folder) / f"reading-{peer}"
    module.record(path, frames, **chosen.options)
    values = module.open_reader(path, **chosen.options)(slice(0, 3), slice(0, None))
    if not np.array_equal(values, frames.states[:, :3].swapaxes(0, 1)):
        raise ValueError(f"{chosen.label} reads other values than it wrote.")


def measure(peer: str, n_frames: int, n_worlds: int, nq: int, folder: str, n_windows: int) -> dict[str, Any]:
    """Read in every pattern, in this fresh process; the same places for every peer."""
    chosen = PEERS[peer]
    path = Path(folder) / f"reading-{peer}"
    module = chosen.load()
    read = module.open_reader(path, **chosen.options)
    rng = np.random.default_rng(1)
    read(slice(0, 1), slice(0, 1))
    warm_memory(4 * 4 * n_frames * n_worlds * nq)
    checksum = 0

    def box(worlds: int, frames: int) -> tuple[slice, slice]:
        world, frame = (int(rng.integers(0, size + 1)) for size in (n_worlds - worlds, n_frames - frames))
        return slice(world, world + worlds), slice(frame, frame + frames)

    def timed(boxes: list[tuple[slice, slice]]) -> list[float]:
        nonlocal checksum
        seconds = []
        for worlds, frames in boxes:
            began = time.perf_counter()
            values = read(worlds, frames)
            seconds.append(time.perf_counter() - began)
            checksum = zlib.crc32(np.ascontiguousarray(values).data, checksum)
        return seconds

    results: dict[str, Any] = {
        "world": statistics.median(timed([box(1, n_frames) for _ in range(32)])) * 1e3,
        "box": statistics.median(timed([box(_BOX, _BOX) for _ in range(32)])) * 1e3,
        "moment": statistics.median(timed([box(n_worlds, 1) for _ in range(16)])) * 1e3,
    }
    nbytes = n_frames * n_worlds * nq * 4
    results["everything"] = nbytes / statistics.median(timed([box(n_worlds, n_frames)] * 3)) / 1e6
    windows = [box(1, _WINDOW) for _ in range(n_windows)]
    results["windows"] = n_windows / sum(timed(windows))
    results["checksum"] = checksum
    if hasattr(module, "sample_windows"):
        began = time.perf_counter()
        sampled = module.sample_windows(path, n_windows, _WINDOW)
        results["one_call"] = len(sampled) / (time.perf_counter() - began)
    return results


def _full_sizes() -> dict[str, Any]:
    return {"n_frames": 512, "n_worlds": 2048, "nq": 72}


def _shown(outcome: Outcome, key: str) -> str:
    if key not in outcome.results[0]:
        return "–"
    value = outcome.median(key)
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _values(measured: Mapping[str, Outcome], key: str) -> dict[str, float]:
    return {o.label: o.median(key) for o in measured.values() if key in o.results[0]}
