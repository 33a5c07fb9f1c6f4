"""Recording: how fast each peer takes the frames of many worlds, until all is closed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.data import Frames, smooth_states
from benchmarks.peers import PEERS
from benchmarks.process import Measured, disk_usage, warm_memory
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Outcome, Settings, interleave, skip_reason

__all__ = ["measure", "run"]

_COLUMNS = (
    "",
    "MB/s of state",
    "× flytraj",
    "CPU s",
    "peak memory, MB",
    "on disk, MB",
    "ratio",
    "files",
    "synced",
    "versions",
)


def run(settings: Settings) -> list[Table]:
    """Measure all peers on the same frames."""
    n_frames, n_worlds, nq = (64, 128, 72) if settings.quick else (512, 2048, 72)
    cases = {
        name: Case(
            peer.label,
            "recording:measure",
            settings.python(needs_flygym=peer.needs_flygym),
            {
                "peer": name,
                "n_frames": n_frames,
                "n_worlds": n_worlds,
                "nq": nq,
                "folder": str(settings.folder),
            },
        )
        for name, peer in PEERS.items()
    }
    outcomes = interleave(settings, cases, "recording")
    measured = {name: outcome for name, outcome in outcomes.items() if outcome.results}
    speed = {name: o.first("state_bytes") / o.median("seconds") / 1e6 for name, o in measured.items()}
    others = [result["others"] for outcome in measured.values() for result in outcome.results]
    return [
        Table(
            "recording",
            f"Recording {n_worlds} worlds × {n_frames} frames × {nq} float32",
            _COLUMNS,
            [_row(name, outcome, speed) for name, outcome in measured.items()],
            [
                "From the first frame until everything is closed; a fresh process each, after a warm-up; medians of "
                f"{settings.rounds} rounds, all peers in each.",
                "Synced: whether what was written is on the disk then, and not only with the operating system.",
                "Peak memory is the growth of resident memory, mapped files included.",
                f"Other processes took up to {max(others, default=0):.0%} of the CPUs meanwhile.",
                *_differences(measured),
                *skip_reason(outcomes.values()),
            ],
            [Bars({measured[name].label: value for name, value in speed.items()}, "MB/s of state")],
        )
    ]


def measure(peer: str, n_frames: int, n_worlds: int, nq: int, folder: str) -> dict[str, Any]:
    """Record once, in this fresh process, after a warm-up with a quarter of the frames."""
    chosen = PEERS[peer]
    module = chosen.load()
    frames = Frames(smooth_states(n_frames, n_worlds, nq))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        module.record(Path(scratch) / "warm-up", frames.first(max(2, n_frames // 4)), **chosen.options)
        shutil.rmtree(Path(scratch) / "warm-up", ignore_errors=True)
        warm_memory(4 * frames.states.nbytes)
        path = Path(scratch) / "recording"
        with Measured() as measured:
            module.record(path, frames, **chosen.options)
        on_disk, n_files = disk_usage(path)
        complete = module.surviving_frames(path, frames, **chosen.options) == n_frames
    return {
        **measured.as_dict(),
        "on_disk": on_disk,
        "n_files": n_files,
        "state_bytes": frames.states.nbytes,
        "checksum": frames.checksum(),
        "complete": complete,
        "versions": chosen.versions(),
        "syncs": module.SYNCS,
    }


def _row(name: str, outcome: Outcome, speed: dict[str, float]) -> list[str]:
    ratio = f"{speed[name] / speed['flytraj']:.2f}" if "flytraj" in speed else "–"
    return [
        outcome.label,
        f"{speed[name]:.0f}",
        ratio,
        f"{outcome.median('cpu_seconds'):.2f}",
        f"{outcome.median('peak_bytes') / 1e6:.0f}",
        f"{outcome.median('on_disk') / 1e6:.0f}",
        f"{outcome.first('state_bytes') / outcome.median('on_disk'):.2f}",
        str(outcome.first("n_files")),
        "yes" if outcome.first("syncs") else "no",
        outcome.first("versions"),
    ]


def _differences(measured: dict[str, Outcome]) -> list[str]:
    """Notes on peers that recorded other bytes, or did not read back what they recorded."""
    results = [(o.label, result) for o in measured.values() for result in o.results]
    if len({result["checksum"] for _, result in results}) > 1:
        return ["The peers did not record the same bytes: the comparison is void."]
    return [f"{label}: read back other values." for label, result in results if not result["complete"]]
