"""Survival: what each peer still has when its process is killed half way."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

from benchmarks.data import Frames, smooth_states
from benchmarks.peers import PEERS
from benchmarks.process import Failed, run_fresh
from benchmarks.report import Bars, Table
from benchmarks.rounds import Settings

__all__ = ["count", "record_and_die", "run"]


def run(settings: Settings) -> list[Table]:
    """Kill each peer once: what survives is a matter of its design, not of chance."""
    sizes = {"n_frames": 100, "n_worlds": 128, "nq": 72} if settings.quick else _full_sizes()
    kill_after = sizes["n_frames"] * 11 // 20
    rows, skipped, survived = [], [], {}
    for name, peer in PEERS.items():
        python = settings.python(needs_flygym=peer.needs_flygym)
        if python is None:
            skipped.append(f"{peer.label}: skipped, no Python with flygym was given.")
            continue
        path = settings.folder / f"survival-{name}"
        arguments: dict[str, Any] = {"peer": name, "path": str(path), "kill_after": kill_after, **sizes}
        try:
            run_fresh("survival:record_and_die", python=python, **arguments)
        except Failed as failure:
            if failure.returncode != -signal.SIGKILL:
                skipped.append(f"{peer.label}: skipped, {failure}.")
                continue
        n_survived = run_fresh("survival:count", python=python, **arguments)["n_frames"]
        survived[peer.label] = n_survived
        rows.append([peer.label, str(kill_after), str(n_survived), str(kill_after - n_survived)])
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
    return [
        Table(
            "survival",
            f"Killed after {kill_after} of {sizes['n_frames']} frames of {sizes['n_worlds']} worlds",
            ["", "frames taken", "frames read back", "frames lost"],
            rows,
            [
                "SIGKILL between two frames, at full speed; read back: frames of all worlds, bit for bit, from the "
                "first on, by the peer's own reader; flytraj's are recovered by opening to append.",
                "np.memmap has its full length from the start: which of its zeros are data, it does not say.",
                *skipped,
            ],
            [Bars(survived, f"frames read back, of {kill_after}")],
        )
    ]


def record_and_die(
    peer: str, path: str, kill_after: int, n_frames: int, n_worlds: int, nq: int
) -> dict[str, Any]:
    """Record, and be killed on the way."""
    frames = Frames(smooth_states(n_frames, n_worlds, nq), kill_after)
    PEERS[peer].load().record(Path(path), frames, **PEERS[peer].options)
    raise AssertionError("The process outlived its kill.")


def count(peer: str, path: str, kill_after: int, n_frames: int, n_worlds: int, nq: int) -> dict[str, int]:
    """Frames that can be read back."""
    frames = Frames(smooth_states(n_frames, n_worlds, nq)[:kill_after])
    module = PEERS[peer].load()
    return {"n_frames": module.surviving_frames(Path(path), frames, **PEERS[peer].options)}


def _full_sizes() -> dict[str, int]:
    return {"n_frames": 512, "n_worlds": 2048, "nq": 72}
