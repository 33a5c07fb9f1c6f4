"""Memory of a recording does not grow with its length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="peak memory is read with the resource module")

N_WORLDS, NQ, BLOCK_FRAMES = 512, 64, 16
BLOCK_MIB = N_WORLDS * (NQ * 4 + 12) * BLOCK_FRAMES / 2**20

RECORD = f"""
import resource, sys
import mujoco, numpy as np, flytraj as ft
joints = "".join("<body><joint axis='0 0 1'/><geom size='1'/></body>" for _ in range({NQ}))
model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{{joints}}</worldbody></mujoco>")
qpos = np.random.default_rng(0).normal(size=({N_WORLDS}, {NQ})).astype(np.float32)
with ft.BatchTrajectoryRecorder(
    model, {N_WORLDS}, playback_speed=1.0, output_fps=50, store=sys.argv[1], block_frames={BLOCK_FRAMES}
) as recorder:
    for frame in range(int(sys.argv[2])):
        assert recorder.record_as_needed({{"time": frame * 0.02, "qpos": qpos}})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_mib(store: Path, n_frames: int) -> float:
    """Peak resident memory of a process that records `n_frames`."""
    command = [sys.executable, "-c", RECORD, str(store), str(n_frames)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(shown) / (2**20 if sys.platform == "darwin" else 2**10)


def test_peak_memory_does_not_grow_with_the_number_of_frames(tmp_path: Path) -> None:
    short = peak_mib(tmp_path / "short", 10 * BLOCK_FRAMES)
    long = peak_mib(tmp_path / "long", 100 * BLOCK_FRAMES)
    # 90 blocks more, 184 MiB of state; the allocator's noise is allowed for.
    assert 90 * BLOCK_MIB > 180
    assert long - short < 3 * BLOCK_MIB + 8
