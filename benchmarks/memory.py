"""Memory: how much a recording takes at its peak, by the number of frames."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.data import INTERVAL, OUTPUT_FPS, PLAYBACK_SPEED, make_model, smooth_states
from benchmarks.process import Measured
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Settings, interleave

__all__ = ["measure", "run"]

_NQ = 72
_DISTINCT_FRAMES = 32


def run(settings: Settings) -> list[Table]:
    """Record few and many frames of the same worlds."""
    n_worlds, lengths = 2048, ((128, 256) if settings.quick else (512, 4096))
    cases = {
        str(n): Case(
            f"flytraj, {n} frames",
            "memory:measure",
            arguments={"n_frames": n, "n_worlds": n_worlds, "folder": str(settings.folder)},
        )
        for n in lengths
    }
    outcomes = [o for o in interleave(settings, cases, "memory").values() if o.results]
    return [
        Table(
            "memory",
            f"Peak memory of recording {n_worlds} worlds × {_NQ} float32, MB",
            ["", "peak", "state"],
            [
                [o.label, f"{o.median('peak_bytes') / 1e6:.1f}", f"{o.median('state_bytes') / 1e6:.0f}"]
                for o in outcomes
            ],
            [
                "Growth of resident memory at its peak, the mapped block files included; "
                f"medians of {settings.rounds} rounds."
            ],
            [Bars({o.label: o.median("peak_bytes") / 1e6 for o in outcomes}, "MB")],
        )
    ]


def measure(n_frames: int, n_worlds: int, folder: str) -> dict[str, Any]:
    """Record frames that take no memory of their own: the same few, again and again."""
    import flytraj as ft

    states = smooth_states(_DISTINCT_FRAMES, n_worlds, _NQ)
    model = make_model(_NQ)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, Measured() as measured:
        with ft.BatchTrajectoryRecorder(
            model,
            n_worlds,
            playback_speed=PLAYBACK_SPEED,
            output_fps=OUTPUT_FPS,
            store=Path(scratch) / "recording",
        ) as recorder:
            for i in range(n_frames):
                recorder.record_as_needed({"time": i * INTERVAL, "qpos": states[i % _DISTINCT_FRAMES]})
    return {**measured.as_dict(), "state_bytes": n_frames * states[0].nbytes}
