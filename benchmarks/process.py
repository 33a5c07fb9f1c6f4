"""Fresh processes for measuring in, and what is measured of one.

`python -m benchmarks.process MODULE:FUNCTION JSON` calls the function with the JSON's arguments and prints what it
returns, as JSON, on its last line.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Failed", "Measured", "cpu_times", "disk_usage", "run_fresh", "warm_memory"]

_ROOT = Path(__file__).resolve().parent.parent
_WARM_BYTES = 2**30
_TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A measured process ended badly."""

    def __init__(self, message: str, returncode: int) -> None:
        super().__init__(message)
        self.returncode = returncode


def run_fresh(function: str, *, python: str = sys.executable, **arguments: Any) -> dict[str, Any]:
    """Call `module:function` of this package in a fresh process, from the repository's root.

    Raises:
        Failed: It ended with an error, or was killed.
    """
    command = [python, "-m", "benchmarks.process", function, json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"{function} ended with {done.returncode}: {last[0]}", done.returncode)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def warm_memory(n_bytes: int = _WARM_BYTES) -> None:
    """Touch memory, 1 GiB at most, and let it go; let the disk finish.

    On a virtual machine, memory touched for the first time can be several times slower; which peer comes first
    must not matter.
    """
    size = min(n_bytes, _WARM_BYTES)
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1
    os.sync()


class Measured:
    """Measures the wall time, and the growth of resident memory at its peak, of a `with` block.

    Attributes:
        seconds: Wall time.
        cpu_seconds: CPU time of all of this process's threads.
        peak_bytes: Growth of resident memory at its peak; mapped files that are resident count.
        others: Share of all CPUs that other processes took meanwhile.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    others: float

    def __enter__(self) -> Self:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._resident = _status_bytes("VmRSS")
        self._busy, self._total = cpu_times()
        self._cpu = time.process_time()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu
        busy, total = cpu_times()
        self.others = max(0.0, busy - self._busy - self.cpu_seconds) / max(0.01, total - self._total)
        self.peak_bytes = max(0, _status_bytes("VmHWM") - self._resident)

    def as_dict(self) -> dict[str, float]:
        """The attributes, for a result."""
        return {name: getattr(self, name) for name in ("seconds", "cpu_seconds", "peak_bytes", "others")}


def cpu_times() -> tuple[float, float]:
    """CPU seconds since the machine's start, of all its CPUs: busy, and all together."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / _TICKS, sum(ticks) / _TICKS


def disk_usage(path: Path) -> tuple[int, int]:
    """Bytes on disk and number of files of a file or a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files), len(files)


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}.")


def main() -> None:
    """Do what the command line says."""
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(f"benchmarks.{module}"), function)(**json.loads(sys.argv[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
