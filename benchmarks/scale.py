"""Scale: many worlds, long recordings, wide and tiny ones; that nothing falls off a cliff."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import INTERVAL, OUTPUT_FPS, PLAYBACK_SPEED, make_model, smooth_states
from benchmarks.opening import import_lazy_parts
from benchmarks.process import Measured, disk_usage, warm_memory
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Settings, interleave, skip_reason

__all__ = ["measure", "run"]

_DISTINCT_FRAMES = 16


@dataclass(frozen=True)
class _Size:
    label: str
    n_worlds: int
    n_frames: int
    nq: int
    nmocap: int = 0

    def smaller(self) -> _Size:
        """For `--quick`."""
        return _Size(
            self.label,
            max(1, self.n_worlds // 256) if self.n_worlds > 256 else self.n_worlds,
            max(1, self.n_frames // 64) if self.n_frames > 64 else self.n_frames,
            self.nq if self.nq < 1000 else 500,
            self.nmocap,
        )


_SIZES = {
    "many-worlds": _Size("65,536 worlds, nq 30", 65_536, 64, 30),
    "many-frames": _Size("4 worlds, 1,000,000 frames", 4, 1_000_000, 30),
    "wide": _Size("nq 5000", 16, 256, 5000),
    "one-world": _Size("one world", 1, 16_384, 30),
    "one-frame": _Size("one frame", 256, 1, 30),
    "no-mocap": _Size("no mocap body", 256, 512, 30),
    "mocap": _Size("64 mocap bodies", 256, 512, 30, 64),
}


def run(settings: Settings) -> list[Table]:
    """Record each size once a round."""
    sizes = {name: size.smaller() if settings.quick else size for name, size in _SIZES.items()}
    cases = {
        name: Case(
            size.label,
            "scale:measure",
            arguments={
                "n_worlds": size.n_worlds,
                "n_frames": size.n_frames,
                "nq": size.nq,
                "nmocap": size.nmocap,
                "folder": str(settings.folder),
            },
        )
        for name, size in sizes.items()
    }
    outcomes = interleave(settings, cases, "scale")
    measured = {name: outcome for name, outcome in outcomes.items() if outcome.results}
    rows = []
    for name, o in measured.items():
        size = sizes[name]
        rows.append(
            [
                o.label,
                f"{size.n_worlds} × {size.n_frames}",
                f"{o.median('state_bytes') / 1e6:.1f}",
                f"{o.median('seconds'):.2f}",
                f"{o.median('state_bytes') / o.median('seconds') / 1e6:.0f}",
                f"{o.median('seconds') / size.n_frames * 1e6:.0f}",
                f"{o.median('peak_bytes') / 1e6:.0f}",
                f"{o.median('on_disk') / 1e6:.1f}",
                str(o.first("n_files")),
                f"{o.median('open_ms'):.1f}",
                f"{o.median('world_ms'):.1f}",
            ]
        )
    return [
        Table(
            "scale",
            "Recordings of all sizes",
            [
                "",
                "worlds × frames",
                "state, MB",
                "s",
                "MB/s",
                "µs a frame",
                "peak, MB",
                "on disk, MB",
                "files",
                "open, ms",
                "one world, ms",
            ],
            rows,
            [
                f"float32, lz4; frames cycle through {_DISTINCT_FRAMES} random ones. Creation and closing count. "
                f"Medians of {settings.rounds} rounds.",
                "Peak: growth of resident memory. Open: the first view. One world: all its frames of qpos.",
                *skip_reason(outcomes.values()),
            ],
            [
                Bars({o.label: o.median("peak_bytes") / 1e6 for o in measured.values()}, "peak memory, MB"),
                Bars({o.label: o.median("open_ms") for o in measured.values()}, "open, ms"),
            ],
        )
    ]


def measure(n_worlds: int, n_frames: int, nq: int, nmocap: int, folder: str) -> dict[str, Any]:
    """Record, open, and read one world, in this fresh process."""
    import flytraj as ft

    n_distinct = min(n_frames, _DISTINCT_FRAMES)
    source: list[dict[str, Any]] = [{"qpos": states} for states in smooth_states(n_distinct, n_worlds, nq)]
    if nmocap:
        positions = smooth_states(n_distinct, n_worlds, nmocap * 3).reshape(-1, n_worlds, nmocap, 3)
        upright = np.zeros((n_worlds, nmocap, 4), np.float32)
        upright[..., 0] = 1
        for arrays, mocap_pos in zip(source, positions, strict=True):
            arrays |= {"mocap_pos": mocap_pos, "mocap_quat": upright}
    model = make_model(nq, nmocap)
    import_lazy_parts()
    warm_memory(2**28)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "recording"
        with Measured() as measured:
            with ft.BatchTrajectoryRecorder(
                model,
                n_worlds,
                playback_speed=PLAYBACK_SPEED,
                output_fps=OUTPUT_FPS,
                store=path,
            ) as recorder:
                for i in range(n_frames):
                    recorder.record_as_needed({"time": i * INTERVAL, **source[i % n_distinct]})
        on_disk, n_files = disk_usage(path)
        began = time.perf_counter()
        view = ft.open_dataset(path)
        opened = time.perf_counter()
        values = view["qpos"].isel(world=n_worlds // 2).values
        read = time.perf_counter()
        expected = source[(n_frames - 1) % n_distinct]["qpos"][n_worlds // 2]
        if view.sizes["frame"] != n_frames or not np.array_equal(values[-1], expected):
            raise ValueError(f"{view.sizes['frame']} of {n_frames} frames were recorded, or other values.")
    per_frame = sum(array.nbytes for array in source[0].values())
    return {
        **measured.as_dict(),
        "state_bytes": per_frame * n_frames,
        "on_disk": on_disk,
        "n_files": n_files,
        "open_ms": (opened - began) * 1e3,
        "world_ms": (read - opened) * 1e3,
    }
