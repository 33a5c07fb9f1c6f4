"""Nothing committed is lost: kills, exits, interrupts, forks, two writers, readers beside a writer."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import xarray as xr

import flytraj as ft
from flytraj.dataset import RecoverableFramesWarning
from flytraj.errors import (
    DatasetExistsError,
    DatasetLockedError,
    DatasetNotFoundError,
    FormatError,
    WriteError,
)
from flytraj.store import lock
from flytraj.store.commit import read_frames
from flytraj.store.description import Description
from flytraj.store.engine import SCRATCH
from flytraj.store.folder_engine import FolderEngine
from flytraj.store.recover import FramesSetAsideWarning
from tests.damage import MODEL, N_WORLDS, assert_holds, leave_block, n_committed, states, write
from tests.processes import ROOT, in_memory, run_script, start_script
from tests.test_repair import Killed, die_at

__all__ = ["in_memory"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.zarr"


def recorder(path: Path, **options: Any) -> ft.BatchTrajectoryRecorder:
    options = {"mode": "a", "block_frames": 8, "playback_speed": 0.2, **options}
    return ft.BatchTrajectoryRecorder(MODEL, N_WORLDS, store=path, **options)


def record(rec: ft.BatchTrajectoryRecorder, first: int, last: int) -> None:
    state = states(first, last)
    for i in range(last - first):
        frame = {name: values[:, i] for name, values in state.items() if name != "time"}
        assert rec.record_as_needed({"time": np.full(N_WORLDS, state["time"][i]), **frame})


def leftovers(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.name.startswith("."))


# Kills


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "benchmarks" / "kills.py").exists(), reason="without the benchmarks")
def test_random_kills(in_memory: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.kills", "--kills", "15", "--seed", "3"]
    environment = {**os.environ, "TMPDIR": str(in_memory)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "15  appended to" in done.stdout


def test_a_killed_recording_is_recovered(path: Path) -> None:
    process = start_script(
        "rec = recorder(); record(rec, 0, 16); rec.flush(); record(rec, 16, 21); say('there'); time.sleep(60)",
        path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.kill()
    process.communicate()
    with pytest.warns(RecoverableFramesWarning, match="left 5 more frames"):
        assert ft.open_dataset(path).sizes["frame"] == 16
    with recorder(path) as rec:
        assert_holds(path, 21)
        record(rec, 21, 25)
    assert_holds(path, 25)
    assert leftovers(path) == []
    assert ft.validate(path).ok


# Block files


def test_blocks_in_a_row_are_recovered(path: Path) -> None:
    write(path, 0, 5)
    leave_block(path, 1, 8, name="block-2")
    leave_block(path, 2, 3, name="block-0")
    leave_block(path, 0, 8, name="block-1")
    recorder(path).close()
    assert_holds(path, 19)
    assert leftovers(path) == []


@pytest.mark.parametrize("harm", ["gap", "reboot", "other schema", "cut", "count"])
def test_block_files_that_cannot_be_used_are_set_aside(path: Path, harm: str) -> None:
    write(path, 0, 5)
    file = leave_block(path, 2 if harm == "gap" else 0, 8, rebooted=harm == "reboot")
    data = np.fromfile(file, np.int64)
    if harm == "other schema":
        data[9] += 1
    elif harm == "cut":
        data = data[:600]
    elif harm == "count":
        data[2] = 9
    data.tofile(file)
    with pytest.warns(FramesSetAsideWarning, match="set aside"):
        recorder(path).close()
    assert_holds(path, 5)
    (aside,) = path.glob(f"{SCRATCH}/aside-*/block-0")
    assert aside.read_bytes() == data.tobytes()
    write(path, 5, 9)
    assert_holds(path, 9)


def test_block_files_with_nothing_new_go_without_a_word(path: Path) -> None:
    write(path, 0, 13)
    leave_block(path, 0, 8, rebooted=True)
    leave_block(path, 1, 5, name="block-1")
    leave_block(path, 2, 0, name="block-2")
    (path / SCRATCH / "block-3").write_bytes(b"")
    recorder(path).close()
    assert_holds(path, 13)
    assert leftovers(path) == []


def test_a_dead_writers_half_files_do_no_harm(path: Path) -> None:
    """A file under TensorStore's old name for one being written was continued, and not cut."""
    write(path, 0, 12)
    for name in ("c.0.1.0.__lock", "c.0.1.0_00.__lock"):
        (path / "qpos" / name).write_bytes(b"z" * 10**6)
    write(path, 12, 14)
    assert_holds(path, 14)
    assert ft.repair(path).ok


# Steps of making and cutting


@pytest.mark.parametrize("mode", ["w-", "w", "a"])
@pytest.mark.parametrize("after", [False, True], ids=["before the change", "after it"])
def test_killed_at_every_step_of_making_a_dataset(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, after: bool
) -> None:
    step = 0
    while True:
        path = in_memory / f"{step}"
        if mode == "w":
            write(path, 0, 9)
        with monkeypatch.context() as patch:
            die_at(patch, step, after=after)
            try:
                recorder(path, mode=mode).close()
            except Killed:
                pass
            else:
                break
        # What was there, what was to be made, or something that the same call makes in the next run.
        try:
            assert ft.open_dataset(path).sizes["frame"] in ((0, 9) if mode == "w" else (0,))
            made = True
        except (DatasetNotFoundError, FormatError):
            made = False
        if mode == "w-" and made:
            with pytest.raises(DatasetExistsError):
                recorder(path, mode=mode)
        else:
            with recorder(path, mode=mode) as rec:
                record(rec, 0, 10)
            assert_holds(path, 10)
        step += 1
    assert step > 5


@pytest.mark.filterwarnings("ignore::flytraj.dataset.RecoverableFramesWarning")
@pytest.mark.parametrize("after", [False, True], ids=["before the change", "after it"])
@pytest.mark.parametrize("kept", [0, 5, 8, 16])
def test_killed_at_every_step_of_cutting(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch, kept: int, after: bool
) -> None:
    step = 0
    while True:
        path = in_memory / f"{step}"
        rec = recorder(path, flush_interval=None)
        record(rec, 0, kept)
        rec.reset()
        record(rec, kept, 21)
        rec.flush()
        with monkeypatch.context() as patch:
            done = die_at(patch, step, after=after)
            try:
                rec.reset(discard=True)
            except WriteError:
                with pytest.raises(WriteError):
                    rec.close()
            else:
                rec.close()
                assert_holds(path, kept)
                break
        n_frames = n_committed(path)
        assert n_frames in (kept, 21)
        with recorder(path) as rec:
            assert n_committed(path) == n_frames
            record(rec, n_frames, 24)
        assert_holds(path, 24)
        report = ft.repair(path)
        assert report.ok, str(report)
        assert_holds(path, 24)
        step += 1
    assert step == len(done)


# Ends of processes


def test_an_interpreter_that_ends_commits(tmp_path: Path) -> None:
    run_script(
        """
recs = [recorder(), recorder("file://" + path + "-2")]
for rec in recs:
    record(rec, 0, 13)
raise SystemExit(7)
""",
        tmp_path / "a",
        code=7,
    )
    for name in ("a", "a-2"):
        assert_holds(tmp_path / name, 13)
        assert leftovers(tmp_path / name) == []


def test_ctrl_c(path: Path) -> None:
    process = start_script(
        """
with recorder() as rec:
    record(rec, 0, 13)
    say("there")
    time.sleep(60)
""",
        path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert_holds(path, 13)
    assert leftovers(path) == []


def test_an_exception_inside_with(path: Path) -> None:
    def work() -> None:
        with recorder(path) as rec:
            record(rec, 0, 13)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert_holds(path, 13)


class Interrupt(BaseException):
    """An interrupt that strikes anywhere."""


def test_interrupts_anywhere(in_memory: Path) -> None:
    """No frame is lost, doubled or torn by interrupts between any two steps of recording."""
    path = in_memory / "a.zarr"
    rng = random.Random(5)
    struck = 0
    armed = False

    def strike(signum: int, frame: FrameType | None) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupt

    rec = ft.BatchTrajectoryRecorder(
        MODEL, 2, store=path, block_frames=4, playback_speed=0.2, channels={"serial": ((), "int64")}
    )
    returned, maybe = [], set()
    before = signal.signal(signal.SIGALRM, strike)
    try:
        for serial in range(600):
            state = {"time": np.full(2, serial * 0.008), "qpos": np.full((2, 13), serial)}
            state |= {"mocap_pos": np.zeros((2, 1, 3)), "mocap_quat": np.zeros((2, 1, 4))}
            if rng.random() < 0.5:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + rng.random() * 2e-4)
            try:
                armed = True
                if rng.random() < 0.02:
                    rec.flush()
                rec.record_as_needed(state, serial=np.full(2, serial))
                armed = False
                returned.append(serial)
            except Interrupt:
                maybe.add(serial)
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    rec.close()
    ds = ft.open_dataset(path)
    serials = ds["serial"].values
    assert struck > 60
    assert np.array_equal(serials[0], serials[1])
    assert (np.diff(serials[0]) > 0).all()
    assert set(returned) <= set(serials[0].tolist()) <= set(returned) | maybe
    assert np.array_equal(ds["qpos"].values, np.broadcast_to(serials[..., np.newaxis], ds["qpos"].shape))


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    output = run_script(
        """
import warnings
warnings.simplefilter("ignore")
from flytraj.errors import RecorderClosedError
rec = recorder()
record(rec, 0, 13)
pid = os.fork()
if pid == 0:
    for call in (lambda: record(rec, 13, 14), rec.flush, lambda: rec.trajectories, lambda: rec.reset(discard=True)):
        try:
            call()
        except RecorderClosedError:
            say("refused")
    rec.close()
    # TensorStore ends a process that was forked while it worked: what was committed is readable all the same,
    say(ft.open_dataset(path).qpos[:, :8].values.tobytes() == states(0, 8)["qpos"].tobytes())
    # and the child may record to a store of its own.
    with recorder(path + "-child") as own:
        record(own, 0, 13)
    # As multiprocessing ends its children: TensorStore's own handler at exit may wait for ever in one.
    os._exit(0)
say(os.waitpid(pid, 0)[1])
record(rec, 13, 14)
rec.close()
""",
        tmp_path / "a",
    )
    assert output.split() == ["refused"] * 4 + ["True", "0"]
    assert_holds(tmp_path / "a", 14)
    assert_holds(tmp_path / "a-child", 13)


def test_a_recorder_that_is_dropped_commits(path: Path) -> None:
    rec = recorder(path)
    record(rec, 0, 13)
    del rec
    gc.collect()
    assert_holds(path, 13)


def test_a_recorder_collected_by_its_own_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs in any thread, also in the middle of a commit."""
    replace = FolderEngine.replace
    (collected, go) = threading.Event(), threading.Event()

    def collecting(self: FolderEngine, key: str, data: bytes, *, durable: bool = True) -> None:
        if threading.current_thread().name == "flytraj-writer" and not collected.is_set():
            go.wait(10)
            gc.collect()
            collected.set()
        replace(self, key, data, durable=durable)

    monkeypatch.setattr(FolderEngine, "replace", collecting)
    rec = recorder(path)
    record(rec, 0, 13)
    cycle: list[Any] = [rec]
    cycle.append(cycle)
    del rec, cycle
    go.set()
    assert collected.wait(10)
    deadline = time.monotonic() + 20
    while (path / ".flytraj-lock").exists():
        assert time.monotonic() < deadline, "the writer hangs"
        time.sleep(0.01)
    assert_holds(path, 13)
    assert leftovers(path) == []


def test_a_claim_that_is_dropped_leaves_nothing(path: Path) -> None:
    rec = recorder(path)
    del rec
    gc.collect()
    assert not path.exists()
    recorder(path).close()


# Locks


def test_two_writers(path: Path, tmp_path: Path) -> None:
    with recorder(path) as rec:
        record(rec, 0, 3)
        (tmp_path / "link").symlink_to(path)
        for name in (path, tmp_path / "link"):
            with pytest.raises(DatasetLockedError, match="Another recorder"):
                recorder(name)
        output = run_script(
            """
try:
    recorder()
except ft.errors.DatasetLockedError as error:
    say(error)
""",
            path,
        )
        assert "Another recorder is writing" in output
        record(rec, 3, 13)
    assert_holds(path, 13)
    recorder(path).close()


def test_a_killed_writer_leaves_no_lock(path: Path) -> None:
    process = start_script(
        "rec = recorder(); record(rec, 0, 8); rec.flush(); say('there'); time.sleep(60)", path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    with pytest.raises(DatasetLockedError):
        recorder(path)
    process.kill()
    process.communicate()
    recorder(path).close()
    assert leftovers(path) == []


def test_a_lock_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, who held the lock may have removed it and another made it anew."""
    really = lock._lock
    removed: list[bool] = []

    def late(file: int, *, shared: bool = False) -> None:
        if not removed:
            (tmp_path / lock.LOCK_FILE).unlink()
            removed.append(True)
        really(file, shared=shared)

    monkeypatch.setattr(lock, "_lock", late)
    one = lock.FolderLock(tmp_path)
    assert not one.acquire()
    assert not lock.is_locked(tmp_path)
    assert one.acquire()
    assert lock.is_locked(tmp_path)
    one.release()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(file: int, *, shared: bool = False) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock, "_lock", unknown)
    with pytest.warns(RuntimeWarning, match="knows no locks"):
        rec = recorder(path)
    record(rec, 0, 3)
    with pytest.raises(DatasetLockedError):
        recorder(path)
    rec.close()
    assert_holds(path, 3)


def test_a_store_is_given_back_after_an_error(path: Path) -> None:
    write(path, 0, 3)
    for _ in range(2):
        with pytest.raises(DatasetExistsError):
            recorder(path, mode="w-")
    recorder(path).close()
    assert_holds(path, 3)


# Readers


def test_readers_beside_a_writer(path: Path) -> None:
    """Whatever the moment, a reader finds a whole committed state, and later ones find more."""
    process = start_script(
        """
with recorder(flush_interval=0.003) as rec:
    say("there")
    for i in range(100_000):
        record(rec, i, i + 1)
        if os.path.exists(path + "-stop"):
            break
        time.sleep(0.0005)
""",
        path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    seen = [0]
    view = None
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        try:
            ds = ft.open_dataset(path)
        except (DatasetNotFoundError, FormatError):
            assert seen == [0]
            continue
        n_frames = ds.sizes["frame"]
        part = slice(max(0, n_frames - 12), n_frames)
        assert np.array_equal(ds["qpos"][:, part].values, states(0, n_frames)["qpos"][:, part])
        if len(seen) % 5 == 0:
            plain = xr.open_zarr(path, consolidated=True, decode_times=False)
            assert plain.sizes["frame"] >= n_frames
            assert set(plain["sim_time"].dims) == {"world", "frame"}
        if view is None and n_frames > 20:
            view = ds
        if view is not None:
            # A view that is kept shows what it was opened on.
            assert np.array_equal(view["mocap_pos"].values, states(0, view.sizes["frame"])["mocap_pos"])
        seen.append(n_frames)
    Path(f"{path}-stop").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
    assert_holds(path, ft.open_dataset(path).sizes["frame"])


# Power loss


def test_data_is_there_before_the_root_names_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = FolderEngine.replace
    counts = []

    def looking(self: FolderEngine, key: str, data: bytes, *, durable: bool = True) -> None:
        if key == "zarr.json":
            assert durable
            new = Description.from_json(data, "it")
            counts.append(new.n_frames)
            times, arrays = read_frames(FolderEngine(path), new, 0, new.n_frames)
            expected = states(0, new.n_frames)
            assert len(times) == new.n_frames
            assert (np.diff(times) > 0).all()
            assert np.array_equal(arrays["sim_time"][1], expected["time"])
            assert np.array_equal(arrays["qpos"], expected["qpos"])
        replace(self, key, data, durable=durable)

    monkeypatch.setattr(FolderEngine, "replace", looking)
    with recorder(path) as rec:
        record(rec, 0, 3)
        rec.flush()
        record(rec, 3, 13)
        rec.flush()
        rec.reset()
        record(rec, 13, 30)
        rec.reset(discard=True)
        record(rec, 13, 18)
    assert counts[:4] == [0, 3, 8, 13]
    assert counts[-3:] == [13, 16, 18]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_what_a_commit_names_is_on_the_disk_before_it(tmp_path: Path) -> None:
    """Follow every system call: data, then names in folders (new folders too), then the root document.

    A flush at each block's end leaves no later block on its way while one is committed.
    """
    path, trace = tmp_path / "new" / "a.zarr", tmp_path / "trace"
    writes = "write,writev,pwrite64,pwritev,pwritev2"
    calls = f"openat,mkdir,mkdirat,rename,renameat,renameat2,{writes},fsync,fdatasync"
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("strace may not trace here")
    run_script(
        "rec = recorder(); begin = 0\n"
        "for end in (8, 13, 16, 21): record(rec, begin, end); rec.flush(); begin = end\n"
        "rec.reset(); record(rec, 21, 24); rec.flush(); record(rec, 24, 30); rec.reset(discard=True); rec.close()",
        path,
        before=("strace", "-f", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(trace)),
    )
    commits = follow(trace.read_text().splitlines(), path)
    assert commits >= 6
    assert_holds(path, 21)


def follow(lines: list[str], dataset: Path) -> int:
    """Check the order of a trace's calls; the number of commits."""
    root = str(dataset / "zarr.json")
    data: set[str] = set()
    names: dict[str, set[str]] = {}
    commits = 0
    for call, paths, file in completed(lines):
        made = call.startswith("mkdir") or (call == "openat" and paths[1:] == ["O_CREAT"])
        if made:
            names.setdefault(os.path.dirname(paths[0]), set()).add(paths[0])
        elif "write" in call:
            data.add(file)
        elif "sync" in call:
            data.discard(file)
            names.pop(file, None)
        elif call.startswith("rename"):
            old, new = paths
            assert not commits or old not in data or new.endswith("/zarr.json"), f"{new} is not durable"
            if new == root:
                commits += 1
                assert old not in data
                check_durable(data, names, dataset, first=commits == 1)
            if old in data:
                data.add(new)
            data.discard(old)
            for group in names.values():
                group.discard(old)
            names.setdefault(os.path.dirname(new), set()).add(new)
    assert root not in names.get(str(dataset), ()), "the last commit's name was not made durable"
    return commits


def completed(lines: list[str]) -> Iterator[tuple[str, list[str], str]]:
    """Calls that succeeded, in the order they ended: name, paths (and whether a file was made), open file."""
    begun: dict[str, str] = {}
    for line in lines:
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            call = begun.pop(thread) + resumed[1]
        if re.search(r"= \d+", call):
            name, file = call.split("(")[0], re.search(r"\(\d+<([^>]*)>", call)
            paths = re.findall(r'"([^"]*)"', call)
            if name == "openat" and "O_CREAT" in call:
                paths.append("O_CREAT")
            yield name, paths, file[1] if file else ""


def check_durable(data: set[str], names: dict[str, set[str]], dataset: Path, *, first: bool) -> None:
    """Before the root is renamed, nothing of the dataset waits for the disk."""

    def matters(name: str) -> bool:
        inside = name.startswith(f"{dataset}/") or str(dataset).startswith(name)
        is_own_document = name.endswith(("/zarr.json", "/zarr.json.partial")) and not first
        is_root = name in (f"{dataset}/zarr.json", f"{dataset}/zarr.json.partial")
        passing = f"/{SCRATCH}" in name
        return inside and not (passing or is_own_document or is_root)

    assert not {name for name in data if matters(name)}
    assert not {name for group in names.values() for name in group if matters(name)}


def test_flush_interval_bounds_what_a_power_loss_costs(path: Path) -> None:
    with recorder(path, flush_interval=0.05) as rec:
        record(rec, 0, 3)
        deadline = time.monotonic() + 10
        while not (path / "zarr.json").exists() or n_committed(path) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_holds(path, 3)
        record(rec, 3, 10)
    assert_holds(path, 10)
    assert rec.stats.frames == 10
