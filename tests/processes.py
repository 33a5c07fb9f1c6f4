"""Scripts that run in processes of their own, and what they share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ROOT", "in_memory", "run_script", "start_script"]

ROOT = Path(__file__).parent.parent

_PRELUDE = """
import os, signal, sys, time
import numpy as np
import flytraj as ft
from tests.damage import MODEL, N_WORLDS, states

path = sys.argv[1]

def frame(i):
    state = {name: values[:, 0] for name, values in states(i, i + 1).items() if name != "time"}
    return {"time": np.full(N_WORLDS, i * 0.008), **state}

def recorder(where=path, **options):
    options = {"mode": "a", "block_frames": 8, "playback_speed": 0.2, **options}
    return ft.BatchTrajectoryRecorder(MODEL, N_WORLDS, store=where, **options)

def record(rec, first, last):
    for i in range(first, last):
        assert rec.record_as_needed(frame(i))

def say(*words):
    print(*words, flush=True)
"""


def start_script(
    script: str, *arguments: object, before: tuple[str, ...] = (), **options: Any
) -> subprocess.Popen[str]:
    """Start a script; `path`, `recorder`, `record`, `frame` and `say` are there."""
    command = [*before, sys.executable, "-c", _PRELUDE + script, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run_script(
    script: str, *arguments: object, before: tuple[str, ...] = (), code: int = 0, **options: Any
) -> str:
    """Run a script to its end; what it printed."""
    process = start_script(script, *arguments, before=before, **options)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, f"ended with {process.returncode}\n{output}\n{errors}"
    return output


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder where fsync costs nothing, if there is such: for what is about processes, not disks."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)
