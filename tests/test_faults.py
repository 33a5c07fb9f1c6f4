"""Every write, rename, fsync and replacement made to fail in turn; and disks that are full or closed."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import flytraj as ft
from flytraj.errors import WriteError
from flytraj.store import folder_engine, writer
from flytraj.store.folder_engine import FolderEngine
from tests.damage import MODEL, N_WORLDS, assert_holds, n_committed, states
from tests.processes import in_memory, run_script

__all__ = ["in_memory"]

N_FRAMES = 26
ERRORS = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EACCES, "Permission denied"),
    OSError(errno.EIO, "Input/output error"),
]
pytestmark = pytest.mark.filterwarnings("ignore::flytraj.dataset.RecoverableFramesWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.zarr"


def recorder(path: Path, **options: Any) -> ft.BatchTrajectoryRecorder:
    options = {"mode": "a", "block_frames": 4, "playback_speed": 0.2, "flush_interval": None, **options}
    return ft.BatchTrajectoryRecorder(MODEL, N_WORLDS, store=path, **options)


def frame(state: dict[str, Any], i: int) -> dict[str, Any]:
    return {
        name: np.full(N_WORLDS, values[i]) if name == "time" else values[:, i]
        for name, values in state.items()
    }


def record_until_it_fails(rec: ft.BatchTrajectoryRecorder) -> int:
    """Record and flush; how many frames were taken."""
    state = states(0, N_FRAMES)
    n = 0
    try:
        for i in range(N_FRAMES):
            assert rec.record_as_needed(frame(state, i))
            n = i + 1
            if i in (5, 18):
                rec.flush()
    except WriteError:
        pass
    return n


def check_said(error: pytest.ExceptionInfo[WriteError], path: Path) -> None:
    """The message says how many frames a reader finds."""
    said = re.search(r"(\d+) frames are committed in ", str(error.value))
    assert said, str(error.value)
    assert int(said[1]) == n_committed(path)


def check_after(path: Path, n_taken: int) -> None:
    """The fault is gone: what is committed is right, the rest is recovered, and recording goes on."""
    assert_holds(path, n_committed(path))
    with recorder(path) as rec:
        found = n_committed(path)
        # The frame whose call raised may have been taken before the block was handed over.
        assert n_taken <= found <= n_taken + 1
        state = states(found, N_FRAMES + 3)
        for i in range(N_FRAMES + 3 - found):
            assert rec.record_as_needed(frame(state, i))
    assert_holds(path, N_FRAMES + 3)
    report = ft.repair(path)
    assert report.ok, str(report)


class Faults:
    """Lets the `at`-th call of some functions fail, and all later ones if it lasts."""

    def __init__(self, at: int, error: BaseException, *, lasts: bool = False, after: bool = False) -> None:
        self.at, self.error, self.lasts, self.after = at, error, lasts, after
        self.calls = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number = self.calls
            self.calls += 1
            fails = number == self.at or (self.lasts and number > self.at)
            if fails and not self.after:
                raise self.error
            result = function(*args, **kwargs)
            if fails:
                raise self.error
            return result

        return call


def raised(call: Callable[[], object]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None


def every_step(
    monkeypatch: pytest.MonkeyPatch, folder: Path, places: list[tuple[Any, str]], **how: bool
) -> int:
    """Let each call at some places fail in turn, in a recording each; the number of recordings that failed."""
    step = 0
    while True:
        path = folder / str(step)
        rec = recorder(path)
        rec.flush()
        with monkeypatch.context() as patch:
            faults = Faults(step, ERRORS[step % 3], **how)
            for owner, name in places:
                patch.setattr(owner, name, faults.wrap(getattr(owner, name)))
            n_taken = record_until_it_fails(rec)
            if faults.calls > step:
                with pytest.raises(WriteError) as error:
                    rec.close()
        if faults.calls <= step:
            rec.close()
            assert_holds(path, N_FRAMES)
            return step
        check_said(error, path)
        check_after(path, n_taken)
        shutil.rmtree(path)
        step += 1


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("after", [False, True], ids=["not done", "done"])
def test_every_operation_of_the_store_fails_in_turn(
    monkeypatch: pytest.MonkeyPatch, in_memory: Path, lasts: bool, after: bool
) -> None:
    places = [(FolderEngine, name) for name in ("replace", "begin_write", "read_array")]
    assert every_step(monkeypatch, in_memory, places, lasts=lasts, after=after) > 20


@pytest.mark.parametrize(
    "places",
    [
        [(os, "fsync")],
        [(Path, "replace")],
        [(Path, "open"), (Path, "mkdir")],
        [(folder_engine, "_sync")],
    ],
    ids=["fsync", "rename", "open", "fsync of folders"],
)
def test_every_call_of_the_system_fails_in_turn(
    monkeypatch: pytest.MonkeyPatch, in_memory: Path, places: list[tuple[Any, str]]
) -> None:
    assert every_step(monkeypatch, in_memory, places) >= 6


@pytest.mark.parametrize("mode", ["w-", "w"])
def test_making_a_dataset_fails_at_every_step(
    monkeypatch: pytest.MonkeyPatch, in_memory: Path, mode: Any
) -> None:
    step = 0
    while True:
        path = in_memory / str(step)
        if mode == "w":
            recorder(path).close()
        rec = recorder(path, mode=mode)
        with monkeypatch.context() as patch:
            faults = Faults(step, ERRORS[step % 3])
            for name in ("replace", "begin_write", "delete", "sync", "write_labels"):
                patch.setattr(FolderEngine, name, faults.wrap(getattr(FolderEngine, name)))
            error = raised(rec.flush)
        if error is None:
            break
        assert error.args == ERRORS[step % 3].args
        rec.close()
        assert_holds(path, 0)
        with recorder(path) as again:
            again.record_as_needed(frame(states(0, 1), 0))
        assert_holds(path, 1)
        step += 1
    rec.close()
    assert step > 10


def test_the_first_error_comes_with_the_next_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rec = recorder(path)
    rec.flush()

    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug in the worker")

    monkeypatch.setattr(writer, "begin_frames", failing)
    n_taken = record_until_it_fails(rec)
    assert n_taken in range(4, 14)
    for call in (lambda: rec.record_as_needed({"time": np.full(N_WORLDS, 9.0)}), rec.flush, rec.close):
        with pytest.raises(WriteError, match="a bug in the worker") as error:
            call()
        check_said(error, path)
    rec.close()
    monkeypatch.undo()
    check_after(path, n_taken)


def test_a_call_with_no_frame_due_tells_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mujoco.MjData(MODEL)
    rec = ft.TrajectoryRecorder(MODEL, store=path, flush_interval=0.02, playback_speed=100)
    assert rec.record_as_needed(data)
    full = Faults(0, ERRORS[0], lasts=True)
    monkeypatch.setattr(FolderEngine, "replace", full.wrap(FolderEngine.replace))
    deadline = time.monotonic() + 20

    def step_until_it_fails() -> None:
        while time.monotonic() < deadline:
            data.time += 1e-4
            assert not rec.record_as_needed(data)
            time.sleep(0.001)

    with pytest.raises(WriteError, match="No space left"):
        step_until_it_fails()
    with pytest.raises(WriteError):
        rec.close()


def test_a_limit_on_the_size_of_files(path: Path) -> None:
    """TensorStore itself meets the error, in the middle of a shard."""
    rec = recorder(path)
    rec.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, limits[1]))
    try:
        n_taken = record_until_it_fails(rec)
        assert n_taken < N_FRAMES
        with pytest.raises(WriteError, match="File too large"):
            rec.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(WriteError) as error:
        rec.close()
    check_said(error, path)
    check_after(path, n_taken)
    assert not list(path.rglob("*.__lock"))
    assert not list(path.rglob("*.partial"))


FULL = """
import subprocess
from flytraj.errors import WriteError
rec = recorder(block_frames=64, flush_interval=None, compression="none")
for i in range(10_000):
    try:
        rec.record_as_needed(frame(i))
    except WriteError as error:
        say(error)
        break
try:
    rec.close()
except WriteError as error:
    say(error)
    said = int(str(error).split(" frames are committed")[0].split()[-1])
n = ft.open_dataset(path).sizes["frame"]
assert n == said > 0, (n, said)
subprocess.run(["mount", "-o", "remount,size=64m", os.path.dirname(path)], check=True)
with recorder() as rec:
    found = ft.open_dataset(path).sizes["frame"]
    assert found in (i, i + 1), (found, i)
    record(rec, found, found + 9)
ds = ft.open_dataset(path)
assert ds.qpos.values.tobytes() == states(0, found + 9)["qpos"].tobytes()
say("mended")
"""


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    before = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-Urm")
    mounted = (*before, "sh", "-c", f'mount -t tmpfs -o size=2m tmpfs {disk} && exec "$@"', "sh")
    try:
        possible = subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("no small disk may be mounted here")
    output = run_script(FULL, disk / "a.zarr", before=mounted)
    assert output.count("No space left on device") >= 2
    assert output.endswith("mended\n")


CLOSED = """
from flytraj.errors import WriteError
folder = os.path.dirname(path)
os.chmod(folder, 0o555)
try:
    recorder()
except WriteError as error:
    say(error)
os.chmod(folder, 0o755)
rec = recorder(flush_interval=None)
record(rec, 0, 13)
rec.flush()
folders = [path, *(os.path.join(path, name) for name in os.listdir(path))]
folders = [folder for folder in folders if os.path.isdir(folder)]
for folder in folders:
    os.chmod(folder, 0o555)
try:
    record(rec, 13, 200)
except WriteError as error:
    say(error)
try:
    rec.close()
except WriteError as error:
    say(error)
assert ft.open_dataset(path).sizes["frame"] >= 13
for folder in folders:
    os.chmod(folder, 0o755)
with recorder() as rec:
    found = ft.open_dataset(path).sizes["frame"]
    assert found >= 16  # the block whose writing failed was full, however soon that was noticed
    record(rec, found, found + 9)
assert ft.open_dataset(path).qpos.values.tobytes() == states(0, found + 9)["qpos"].tobytes()
say("mended")
"""


def test_permission_that_is_lost(in_memory: Path) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:
        # The permissions of files count for root too, without these capabilities.
        before = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
        if shutil.which("setpriv") is None:
            pytest.skip("root has every permission, and setpriv is not installed")
    output = run_script(CLOSED, in_memory / "a.zarr", before=before)
    assert output.count("Permission denied") >= 3, output
    assert output.endswith("mended\n")


TRACED = """
import subprocess
from flytraj.errors import WriteError
call, failure, when = sys.argv[2:]
rec = recorder(flush_interval=None, block_frames=4)
record(rec, 0, 5)
rec.flush()
only = ["-P", path + "/qpos"] if call == "openat" else []
inject = ["-e", f"trace={call}", *only, "-e", f"inject={call}:error={failure}:when={when}"]
tracer = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(os.getpid()), *inject], stderr=subprocess.PIPE)
assert b"attached" in tracer.stderr.readline()
n = 5
try:
    for n in range(5, 400):
        record(rec, n, n + 1)
except WriteError as error:
    say("failed", error)
try:
    rec.close()
except WriteError as error:
    say("again", error)
tracer.terminate()
tracer.communicate()
with recorder() as rec:
    found = ft.open_dataset(path).sizes["frame"]
    assert found in (n, n + 1), (found, n)
    record(rec, found, found + 9)
ds = ft.open_dataset(path)
assert ds.qpos.values.tobytes() == states(0, found + 9)["qpos"].tobytes()
say("mended")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("call", "failure", "when"),
    [
        ("fsync", "EIO", "3"),
        ("rename", "ENOSPC", "4+"),
        ("writev", "ENOSPC", "2+"),
        ("openat", "EACCES", "3+"),
    ],
)
def test_calls_that_fail_in_tensorstore(in_memory: Path, call: str, failure: str, when: str) -> None:
    """The kernel itself refuses; `when` counts in each thread by itself, once the recording has begun."""
    if subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    output = run_script(TRACED, in_memory / "a.zarr", call, failure, when)
    assert output.startswith("failed"), output
    assert "\nagain" in output
    assert output.endswith("mended\n")
