"""validate: what is wrong is found, named and told; what is right is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import flytraj as ft
from flytraj.errors import DatasetNotFoundError, FormatError
from flytraj.store import shards
from flytraj.store.commit import commit
from flytraj.store.create import read_description
from flytraj.store.engine import Part, open_engine
from flytraj.store.folder_engine import FolderEngine
from flytraj.store.report import Problem, Report, merged
from tests.damage import MODEL, N_WORLDS, flip, leave_block, states, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.zarr", 0, 21)
    return tmp_path / "a.zarr"


def found(report: Report) -> list[tuple[Any, ...]]:
    return sorted(
        [(p.kind, p.array, p.worlds, p.frames) for p in report.problems], key=lambda p: (*p[:2], str(p[2:]))
    )


def test_nothing_is_wrong(path: Path) -> None:
    report = ft.validate(path)
    assert report.ok
    assert (report.n_worlds, report.n_frames, report.problems, report.actions) == (N_WORLDS, 21, (), ())
    assert str(report) == f"{path}: 3 worlds, 21 frames\n  No problem found."
    memory = MemoryStore()
    write(memory, 0, 21)
    assert ft.validate(memory).ok


def test_an_empty_dataset_is_fine(tmp_path: Path) -> None:
    ft.BatchTrajectoryRecorder(MODEL, 2, store=tmp_path / "a").close()
    assert ft.validate(tmp_path / "a").ok


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        ft.validate(tmp_path / "a")
    (tmp_path / "zarr.json").write_text('{"attributes": {"flytraj": {"format": 1}}}')
    with pytest.raises(FormatError, match="damaged"):
        ft.validate(tmp_path)


def test_lost_and_damaged_shards_are_named(tmp_path: Path) -> None:
    # A row of 16 KiB: 16 worlds a shard of 8 frames.
    rng = np.random.default_rng(0)
    ft.write_dataset(
        tmp_path / "a",
        None,
        qpos=np.zeros((40, 30, 1)),
        time=np.arange(30.0),
        channels={"big": rng.normal(size=(40, 30, 4096)).astype("float32")},
        block_frames=8,
    )
    big = tmp_path / "a" / "big"
    assert len(list(big.glob("c.*"))) == 3 * 4
    (big / "c.1.2.0").unlink()
    assert found(ft.validate(tmp_path / "a")) == [("missing", "big", (16, 32), (16, 24))]
    flip(big / "c.2.3.0", 5000)
    (big / "c.0.0.0").write_bytes(b"")
    report = ft.validate(tmp_path / "a")
    assert found(report) == [
        ("corrupt", "big", (0, 16), (0, 8)),
        ("corrupt", "big", (32, 40), (24, 30)),
        ("missing", "big", (16, 32), (16, 24)),
    ]
    assert "missing: big, worlds 16 to 31, frames 16 to 23: " in str(report)


def test_adjoining_damage_is_one_problem(path: Path) -> None:
    for block in (0, 1, 2):
        (path / "mocap_pos" / f"c.0.{block}.0.0").unlink()
    (path / "time" / "c.0").unlink()
    assert found(ft.validate(path)) == [
        ("missing", "mocap_pos", (0, 3), (0, 21)),
        ("missing", "time", None, (0, 21)),
    ]


def test_damage_is_narrowed_to_chunks(tmp_path: Path) -> None:
    write(tmp_path / "a", 0, 256, block_frames=256, compression="none")
    shard = tmp_path / "a" / "qpos" / "c.0.0.0"
    flip(shard, int(shard.stat().st_size * 0.4))
    (problem,) = ft.validate(tmp_path / "a").problems
    assert (problem.kind, problem.array, problem.worlds) == ("corrupt", "qpos", (0, 3))
    assert problem.frames is not None
    first, last = problem.frames
    assert (last - first, first % 64) == (64, 0)
    ds = ft.open_dataset(tmp_path / "a")
    others = np.r_[0:first, last:256]
    assert np.array_equal(ds["qpos"][:, others].values, states(0, 256)["qpos"][:, others])


def test_damaged_names_model_and_worlds(path: Path) -> None:
    (path / "model" / "layout" / "c.0").write_bytes(b"nothing")
    (path / "nq" / "c.0").unlink()
    flip(path / "world" / "c.0", 3)
    problems = {(p.kind, p.array): p for p in ft.validate(path).problems}
    assert set(problems) == {("corrupt", "model/layout"), ("corrupt", "nq"), ("corrupt", "world")}
    assert problems["corrupt", "world"].frames is None


def test_lengths_that_disagree(path: Path) -> None:
    array = zarr.open_array(path / "qpos")
    array.resize((3, 30, 13))
    (path / "mocap_pos" / "zarr.json").write_text("{")
    assert found(ft.validate(path)) == [
        ("length", "qpos", None, None),
        ("metadata", "mocap_pos", None, None),
    ]


def test_lengths_that_disagree_in_the_root(path: Path) -> None:
    root = json.loads((path / "zarr.json").read_text())
    root["consolidated_metadata"]["metadata"]["qpos"]["shape"][1] = 17
    (path / "zarr.json").write_text(json.dumps(root))
    report = ft.validate(path)
    assert report.n_frames == 17
    assert ("length", "", None, None) in found(report)
    assert "qpos 17" in report.problems[0].message
    # Seen from 17 frames, what follows is a tail.
    assert ("tail", "mocap_pos", None, (17, 24)) in found(report)


def test_files_of_a_dead_writer(path: Path) -> None:
    (path / "qpos" / "c.0.1.0_0123456789abcdef.__lock").write_bytes(b"half")
    (path / "zarr.json.partial").write_bytes(b"{")
    assert found(ft.validate(path)) == [("unfinished", "", None, None)] * 2


def test_frames_behind_the_last_one(path: Path) -> None:
    engine = open_engine(path)
    description = read_description(engine)
    commit(engine, description.with_frames(13))
    assert set(found(ft.validate(path))) == set(
        # Zeros are no values: all these frames are of episode 0.
        [("tail", name, None, (13, 16)) for name in description.schema.names if name != "episode"]
        + [("tail", name, None, (16, 24)) for name in description.schema.names]
        + [("tail", "time", None, (13, 16384))]
    )


def test_block_files(path: Path) -> None:
    leave_block(path, 2, 7)
    leave_block(path, 3, 4, name="block-1", rebooted=True)
    assert found(ft.validate(path)) == [("recoverable", "", None, (21, 23)), ("untrusted", "", None, None)]


@pytest.mark.parametrize("column", [3, 7], ids=["free joint", "ball joint"])
def test_quaternions_that_are_not_unit(tmp_path: Path, column: int) -> None:
    state = states(0, 40)
    state["qpos"][2, 17, column : column + 4] = 0
    state["qpos"][1, 30:33, column] *= 1.5
    state["qpos"][0, 5, 11:] = 100  # A hinge and a slide may have any value.
    ft.write_dataset(tmp_path / "a", MODEL, **state, block_frames=8)
    (problem,) = ft.validate(tmp_path / "a").problems
    assert (problem.kind, problem.array) == ("quaternion", "qpos")
    assert (problem.worlds, problem.frames) == ((1, 3), (17, 33))
    assert problem.message == (
        f"4 quaternions are not of unit length; the first: norm 0 in column {column}, world 2, frame 17"
    )


def test_mocap_quaternions_and_no_numbers(tmp_path: Path) -> None:
    state = states(0, 20)
    state["mocap_quat"] = state["mocap_quat"].copy()
    state["mocap_quat"][0, 4] = np.nan
    ft.write_dataset(tmp_path / "a", MODEL, **state, block_frames=8)
    assert found(ft.validate(tmp_path / "a")) == [("quaternion", "mocap_quat", (0, 1), (4, 5))]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_is_no_problem(tmp_path: Path, dtype: str) -> None:
    state = states(0, 600)
    state["qpos"][..., [0, 1, 2, 11, 12]] = 0
    ft.write_dataset(tmp_path / "a", MODEL, **(state | {"mocap_pos": 0 * state["mocap_pos"]}), dtype=dtype)
    assert ft.validate(tmp_path / "a").ok


def test_time_that_goes_back(tmp_path: Path) -> None:
    state = states(0, 40)
    state["time"] = np.broadcast_to(state["time"], (3, 40)).copy()
    state["time"][1, 24:] -= 0.1
    ft.write_dataset(tmp_path / "a", MODEL, **state, block_frames=8)
    assert ft.validate(tmp_path / "a").ok, "a new episode"
    ft.write_dataset(tmp_path / "b", MODEL, **state, episode=np.zeros((3, 40), int), block_frames=8)
    (problem,) = ft.validate(tmp_path / "b").problems
    assert (problem.kind, problem.array) == ("time", "sim_time")
    assert (problem.worlds, problem.frames) == ((1, 2), (24, 25))
    assert "0.184 s, then 0.092 s" in problem.message


def test_a_clock_that_goes_back(path: Path) -> None:
    engine = open_engine(path)
    description = read_description(engine)
    times = np.full(16384, np.nan)
    times[:21] = states(0, 21)["time"]
    times[9], times[15] = 0.0, np.nan
    engine.write([Part("time", description.documents["time"], (0,), times)])
    (problem,) = ft.validate(path).problems
    assert (problem.kind, problem.array, problem.worlds, problem.frames) == ("time", "time", None, (9, 17))


def test_what_cannot_be_read_now_is_not_called_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FolderEngine.read_array

    def failing(self: FolderEngine, name: str, document: Any, index: Any) -> Any:
        if name == "mocap_pos" and index[1].stop > 8 and index[1].start < 16:
            raise OSError(5, "Input/output error")
        return read(self, name, document, index)

    monkeypatch.setattr(FolderEngine, "read_array", failing)
    assert found(ft.validate(path)) == [("unreadable", "mocap_pos", (0, 3), (8, 16))]


def test_while_it_is_recorded_the_committed_frames_count(tmp_path: Path) -> None:
    with ft.BatchTrajectoryRecorder(MODEL, N_WORLDS, store=tmp_path / "a", block_frames=4) as recorder:
        state = states(0, 11)
        for frame in range(11):
            data = {name: values[:, frame] for name, values in state.items() if name != "time"}
            recorder.record_as_needed({"time": np.full(N_WORLDS, state["time"][frame]), **data})
        recorder.flush()
        recorder.record_as_needed({"time": np.full(N_WORLDS, 1.0), **data})
        report = ft.validate(tmp_path / "a")
        assert report.ok, str(report)
        assert report.n_frames == 11


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = np.zeros((300, 64, 160), "float32")
    ft.write_dataset(tmp_path / "a", None, qpos=big, time=np.arange(64.0), block_frames=32)
    monkeypatch.setattr(shards, "_READ_BYTES", 4 * 2**20)
    sizes = []
    read = FolderEngine.read_array

    def measured(self: FolderEngine, name: str, document: Any, index: Any) -> Any:
        values = read(self, name, document, index)
        sizes.append(values.nbytes)
        return values

    monkeypatch.setattr(FolderEngine, "read_array", measured)
    assert ft.validate(tmp_path / "a").ok
    assert sum(sizes) > big.nbytes
    assert max(sizes) <= 4 * 2**20


def test_problems_are_merged_where_they_adjoin() -> None:
    def lost(worlds: tuple[int, int], frames: tuple[int, int]) -> Problem:
        return Problem("missing", "qpos", worlds, frames, "")

    four = [lost((w, w + 2), (f, f + 4)) for f in (0, 4) for w in (0, 2)]
    assert merged(four) == [lost((0, 4), (0, 8))]
    assert merged([lost((0, 2), (0, 4)), lost((2, 4), (4, 8))]) == [
        lost((0, 2), (0, 4)),
        lost((2, 4), (4, 8)),
    ]
