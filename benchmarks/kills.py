"""Kills recordings at random moments and looks at what is left.

`python -m benchmarks.kills --kills 200 --seed 0`

Processes record, flush, cut, close, append and repair, and are killed (SIGKILL) in the middle of it. After each
kill the dataset is opened by another process: every committed frame must be what was recorded, none that `flush`
had committed may be missing, and once it is opened to append, none but the one that was being copied. What was
recorded is noted in memory that the killed process shared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import flytraj as ft
from flytraj.errors import DatasetNotFoundError, FormatError
from flytraj.store import create, folder_engine, repair, validate, writer  # noqa: F401  (loaded before forks)
from flytraj.testing import tiny_model

N_WORLDS, NQ = 3, 13
PHASES = ("opening", "recording", "flush", "cut", "closing", "repair")
MODEL = tiny_model().compile()
N, FLUSHED, CUT_TO, COPYING, SERIAL, PHASE, READY, HEAD = range(8)


class Journal:
    """What was done, in memory that outlives the process that does it."""

    def __init__(self) -> None:
        self.words = np.frombuffer(mmap.mmap(-1, 2**22), np.int64)
        self.words[CUT_TO] = -1
        self.serials = self.words[HEAD:]

    def __getitem__(self, word: int) -> int:
        return int(self.words[word])

    def __setitem__(self, word: int, value: int) -> None:
        self.words[word] = value

    def settle(self, n_frames: int) -> None:
        """Go on from what was found."""
        self[N] = self[FLUSHED] = n_frames
        self[CUT_TO], self[COPYING] = -1, 0


def frame(serial: int) -> dict[str, NDArray[Any]]:
    """The state recorded as `serial`, different in each world and coordinate."""
    world, column = np.ogrid[:N_WORLDS, :NQ]
    qpos = ((serial * 31 + world * 7 + column * 3) % 1009) / 7.0
    turn = np.array([[np.cos(serial), np.sin(serial), 0, 0]])
    qpos[:, 3:7] = qpos[:, 7:11] = turn
    return {
        "time": np.full(N_WORLDS, serial * 0.002),
        "qpos": qpos,
        "mocap_pos": qpos[:, np.newaxis, :3],
        "mocap_quat": np.broadcast_to(turn, (N_WORLDS, 1, 4)),
    }


def recorder(path: Path, **options: Any) -> ft.BatchTrajectoryRecorder:
    """A recorder that finds every frame due."""
    channels = {"serial": ((), "int64")}
    return ft.BatchTrajectoryRecorder(
        MODEL, N_WORLDS, store=path, mode="a", playback_speed=0.05, channels=channels, **options
    )


def record_one(rec: ft.BatchTrajectoryRecorder, journal: Journal) -> None:
    """Record one frame and note it before and after."""
    serial, n = journal[SERIAL], journal[N]
    journal.serials[n] = serial
    journal[COPYING] = 1
    due = rec.record_as_needed(frame(serial), serial=np.full(N_WORLDS, serial))
    assert due
    journal[N] = n + 1
    journal[COPYING] = 0
    journal[SERIAL] = serial + 1


def record_on(path: Path, journal: Journal, rng: random.Random) -> None:
    """Record, flush, cut, close and open again, until killed."""
    while True:
        journal[PHASE] = 0
        rec = recorder(path, block_frames=rng.choice([4, 16]), flush_interval=rng.choice([None, 0.002, 0.03]))
        start = journal[N]
        journal[PHASE] = 1
        for _ in range(rng.randrange(5, 200)):
            record_one(rec, journal)
            chance = rng.random()
            if chance < 0.04:
                journal[PHASE] = 2
                rec.flush()
                journal[FLUSHED] = journal[N]
            elif chance < 0.06:
                rec.reset()
                start = journal[N]
            elif chance < 0.09:
                journal[PHASE] = 3
                journal[CUT_TO] = start
                rec.reset(discard=True)
                journal.settle(start)
            journal[PHASE] = 1
            if rng.random() < 0.05:
                time.sleep(rng.random() * 0.01)
        journal[PHASE] = 4
        rec.close()
        journal[FLUSHED] = journal[N]


def repair_on(path: Path, journal: Journal, rng: random.Random) -> None:
    """Repair, until killed; between repairs a little is recorded."""
    while True:
        journal[PHASE] = 5
        with contextlib.suppress(DatasetNotFoundError, FormatError):
            ft.repair(path)
        journal[PHASE] = 1
        with recorder(path, block_frames=4) as rec:
            for _ in range(rng.randrange(1, 9)):
                record_one(rec, journal)
        journal[FLUSHED] = journal[N]


def look(path: Path, journal: Journal, *, plain: bool) -> int:
    """Check every committed frame; their number."""
    try:
        ds = ft.open_dataset(path)
    except (DatasetNotFoundError, FormatError):
        assert journal[FLUSHED] == 0, "the dataset does not open"
        return 0
    n = ds.sizes["frame"]
    cut = journal[CUT_TO]
    least = journal[FLUSHED] if cut < 0 else min(cut, journal[FLUSHED])
    most = journal[N] + journal[COPYING]
    assert least <= n <= most, f"{n} frames are committed; between {least} and {most} should be"
    check_frames(ds, journal, n)
    if plain:
        check_frames(xr.open_zarr(path, consolidated=True, decode_times=False), journal, n)
    return n


def check_frames(ds: xr.Dataset, journal: Journal, n: int) -> None:
    """Check a view against the formula, bit for bit."""
    serials = journal.serials[:n]
    assert ds.sizes["frame"] == n
    assert np.array_equal(ds["serial"].values, np.broadcast_to(serials, (N_WORLDS, n))), "wrong frames"
    expected = [frame(int(serial)) for serial in serials]
    for name in ("qpos", "mocap_pos", "mocap_quat"):
        values = ds[name].values
        for i, state in enumerate(expected):
            assert values[:, i].tobytes() == np.ascontiguousarray(state[name]).tobytes(), (
                f"{name} of frame {i}"
            )
    if n:
        assert np.array_equal(ds["sim_time"].values[0], np.array([state["time"][0] for state in expected]))
        assert (np.diff(ds["time"].values) >= 0).all(), "the recording's clock goes back"


def append(path: Path, journal: Journal, *, by_repair: bool) -> None:
    """Recover, check that nothing but the frame in the making is missing, and go on."""
    copying, n, cut = journal[COPYING], journal[N], journal[CUT_TO]
    if by_repair:
        with contextlib.suppress(DatasetNotFoundError, FormatError):
            ft.repair(path)
    with recorder(path, block_frames=4) as rec:
        found = n_committed(path)
        allowed = {n, n + copying} if cut < 0 else {n, cut}
        assert found in allowed, f"{found} frames after recovery; {sorted(allowed)} were recorded"
        journal.settle(found)
        journal[SERIAL] += 1
        for _ in range(5):
            record_one(rec, journal)
    journal[FLUSHED] = journal[N]
    assert look(path, journal, plain=False) == journal[N]


def n_committed(path: Path) -> int:
    """Committed frames, by the root document."""
    root = path / "zarr.json"
    return int(json.loads(root.read_bytes())["attributes"]["flytraj"]["n_frames"]) if root.exists() else 0


def finish(path: Path) -> None:
    """Nothing may be wrong with a dataset in the end, once it is repaired."""
    report = ft.repair(path)
    assert report.ok, str(report)
    report = ft.validate(path)
    assert report.ok, str(report)


def in_child(task: Callable[[], object]) -> int:
    """Run something in a forked process; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        warnings.simplefilter("ignore")
        task()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def must_succeed(task: Callable[[], object], what: str) -> None:
    """Run something in a forked process that must end well."""
    _, status = os.waitpid(in_child(task), 0)
    if status:
        raise SystemExit(f"{what}: failed with status {status}")


def kill_after(task: Callable[[], object], journal: Journal, seconds: float) -> str:
    """Run something and kill it; the phase it was in."""
    journal[READY] = 0

    def run() -> None:
        journal[READY] = 1
        task()

    pid = in_child(run)
    while not journal[READY]:
        time.sleep(0.0005)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"the process ended by itself, with status {status}")
    return PHASES[journal[PHASE]]


def one_dataset(path: Path, rng: random.Random, n_kills: int, tally: Counter[str]) -> None:
    """Kill what works on one dataset several times, and check it after each."""
    journal = Journal()
    for number in range(n_kills):
        work = repair_on if number and rng.random() < 0.35 else record_on
        seconds = rng.random() * rng.choice([0.1, 0.3, 0.6])
        phase = kill_after(partial(work, path, journal, random.Random(rng.random())), journal, seconds)
        tally[f"killed while {phase}"] += 1
        must_succeed(partial(look, path, journal, plain=rng.random() < 0.2), f"after a kill while {phase}")
        tally["datasets opened"] += 1
        before, copying, cut = journal[N], journal[COPYING], journal[CUT_TO]
        must_succeed(
            partial(append, path, journal, by_repair=rng.random() < 0.5),
            f"recovery after a kill while {phase}",
        )
        found = journal[N] - 5
        tally["appended to"] += 1
        tally["frame being copied was lost"] += int(bool(copying) and cut < 0 and found == before)
        tally["frames found"] += found
    must_succeed(partial(finish, path), "the last repair")


def main() -> None:
    """Run the kills and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    tally: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="flytraj-kills-"))
    began, left = time.perf_counter(), arguments.kills
    while left:
        n_kills = min(left, rng.randrange(2, 6))
        one_dataset(folder / f"{left}.zarr", rng, n_kills, tally)
        left -= n_kills
    shutil.rmtree(folder)
    for what, count in sorted(tally.items()):
        print(f"{count:8d}  {what}")
    print(f"{time.perf_counter() - began:8.0f}  seconds")


if __name__ == "__main__":
    main()
