"""repair: to the longest whole stretch, with a backup; killed at any step, it can be run again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import flytraj as ft
from flytraj.errors import DatasetLockedError, DatasetNotFoundError, WriteError
from flytraj.store.commit import commit
from flytraj.store.create import read_description
from flytraj.store.engine import open_engine
from flytraj.store.folder_engine import FolderEngine
from tests.damage import MODEL, N_WORLDS, assert_holds, flip, leave_block, n_committed, states, tree, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.zarr", 0, 21)
    return tmp_path / "a.zarr"


def assert_goes_on(path: Path, n_frames: int) -> None:
    write(path, n_frames, n_frames + 9)
    assert_holds(path, n_frames + 9)
    report = ft.validate(path)
    assert report.ok, str(report)


def assert_nothing_comes_back(path: Path) -> None:
    """Let plain zarr make every array longer: what appears must be fill values."""
    for array in (
        zarr.open_array(path / name) for name in ("qpos", "mocap_pos", "mocap_quat", "sim_time", "time")
    ):
        axis = 0 if array.ndim == 1 else 1
        n = array.shape[axis]
        longer = list(array.shape)
        longer[axis] = n + 40
        array.resize(tuple(longer))
        tail = np.asarray(array[n:] if axis == 0 else array[:, n:])
        assert np.isnan(tail).all(), array.path


def test_what_is_whole_is_left_alone(path: Path) -> None:
    before = tree(path)
    report = ft.repair(path)
    assert report.ok
    assert report.actions == ()
    assert tree(path) == before


def lose_a_shard(path: Path) -> None:
    (path / "mocap_pos" / "c.0.1.0.0").unlink()


def flip_a_bit(path: Path) -> None:
    flip(path / "qpos" / "c.0.1.0", 40)


def cut_a_shard(path: Path) -> None:
    shard = path / "sim_time" / "c.0.1"
    shard.write_bytes(shard.read_bytes()[:-9])


def harm_several(path: Path) -> None:
    (path / "mocap_pos" / "c.0.2.0.0").unlink()
    flip(path / "episode" / "c.0.1", 2)
    (path / "qpos" / "c.0.1.0").write_bytes(b"")


DAMAGE = [lose_a_shard, flip_a_bit, cut_a_shard, harm_several]


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_longest_whole_stretch_stays(path: Path, damage: Callable[[Path], None]) -> None:
    whole = tree(path)
    damage(path)
    harmed = tree(path)
    report = ft.repair(path)
    assert report.ok, str(report)
    assert report.n_frames == 8
    assert "Cut from 21 to 8 frames" in str(report)
    assert_holds(path, 8)
    (aside,) = (path / ".flytraj").iterdir()
    kept = tree(aside)
    assert kept == {name: harmed[name] for name in kept}
    assert harmed.keys() - tree(path).keys() <= kept.keys()
    assert json.loads(kept["zarr.json"])["attributes"]["flytraj"]["n_frames"] == 21
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    assert_nothing_comes_back(copy)
    assert_goes_on(path, 8)
    # Copied over the dataset as it was repaired, what is kept undoes the cut.
    shutil.copytree(aside, path, dirs_exist_ok=True)
    for name in whole:
        if whole[name] != harmed.get(name):
            (path / name).write_bytes(whole[name])
    assert_holds(path, 21)


def test_a_cut_within_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, 0, 200, block_frames=256, compression="none")
    shard = path / "qpos" / "c.0.0.0"
    flip(shard, int(shard.stat().st_size * 0.4))
    assert ft.repair(path).ok
    n_frames = n_committed(path)
    assert n_frames in (64, 128)
    assert_holds(path, n_frames)
    assert_goes_on(path, n_frames)
    assert_nothing_comes_back(path)


def test_damage_from_the_start_leaves_nothing(path: Path) -> None:
    (path / "time" / "c.0").unlink()
    assert ft.repair(path).ok
    assert_holds(path, 0)
    assert_nothing_comes_back(path)


def test_tails_are_cleared_and_kept(path: Path) -> None:
    engine = open_engine(path)
    commit(engine, read_description(engine).with_frames(13))
    report = ft.repair(path)
    assert report.ok, str(report)
    assert_holds(path, 13)
    (aside,) = (path / ".flytraj").iterdir()
    assert {"qpos/c.0.1.0", "qpos/c.0.2.0", "time/c.0"} <= set(tree(aside))
    assert not (path / "qpos" / "c.0.2.0").exists()
    assert_nothing_comes_back(path)


def test_block_files_are_recovered(path: Path) -> None:
    leave_block(path, 2, 8)
    leave_block(path, 3, 3, name="block-1")
    report = ft.repair(path)
    assert report.ok
    assert "Recovered 6 frames" in str(report)
    assert_holds(path, 27)
    assert not list((path / ".flytraj").glob("block-*"))
    assert_goes_on(path, 27)


def test_a_block_file_makes_up_for_a_damaged_shard(path: Path) -> None:
    leave_block(path, 2, 7)
    flip(path / "qpos" / "c.0.2.0", 40)
    report = ft.repair(path)
    assert report.ok
    assert_holds(path, 23)


def test_a_block_file_that_does_not_go_on_is_set_aside(path: Path) -> None:
    leave_block(path, 2, 7)
    leave_block(path, 3, 4, name="block-1", rebooted=True)
    lose_a_shard(path)
    report = ft.repair(path)
    assert report.ok
    assert_holds(path, 8)
    assert {file.name for file in path.glob(".flytraj/aside-*/block-*")} == {"block-0", "block-1"}
    assert str(report).count("Set aside") == 2


def test_lengths_are_made_to_agree(path: Path) -> None:
    root = json.loads((path / "zarr.json").read_text())
    root["consolidated_metadata"]["metadata"]["qpos"]["shape"][1] = 17
    (path / "zarr.json").write_text(json.dumps(root))
    (path / "mocap_pos" / "zarr.json").write_text("{")
    report = ft.repair(path)
    assert report.ok, str(report)
    assert_holds(path, 17)
    assert_nothing_comes_back(path)


def test_files_of_a_dead_writer_are_removed(path: Path) -> None:
    before = tree(path)
    (path / "qpos" / "c.0.1.0_0123456789abcdef.__lock").write_bytes(b"half")
    (path / "zarr.json.partial").write_bytes(b"{")
    report = ft.repair(path)
    assert report.ok
    assert tree(path) == before


def test_values_are_reported_and_left_alone(tmp_path: Path) -> None:
    state = states(0, 20)
    state["qpos"][2, 11, 3:7] = 0
    ft.write_dataset(tmp_path / "a", MODEL, **state, block_frames=8)
    before = tree(tmp_path / "a")
    report = ft.repair(tmp_path / "a")
    assert [(p.kind, p.worlds, p.frames) for p in report.problems] == [("quaternion", (2, 3), (11, 12))]
    assert report.actions == ()
    assert tree(tmp_path / "a") == before


def test_other_stores(path: Path) -> None:
    store = MemoryStore()
    write(store, 0, 21)
    engine = open_engine(store)
    engine.delete(["mocap_pos/c.0.1.0.0"])
    report = ft.repair(store)
    assert report.ok, str(report)
    assert_holds(store, 8)
    assert any(
        key.startswith(".flytraj/aside-") and key.endswith("qpos/c.0.2.0") for key in engine.all_keys()
    )


def test_what_must_not_be_repaired(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetNotFoundError):
        ft.repair(path / "elsewhere")
    assert not (path / "elsewhere").exists()
    with ft.BatchTrajectoryRecorder(MODEL, N_WORLDS, store=path, mode="a", playback_speed=0.2) as recorder:
        with pytest.raises(DatasetLockedError):
            ft.repair(path)
        recorder.close()
    before = tree(path)

    def failing(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FolderEngine, "read_array", failing)
    with pytest.raises(WriteError, match="Nothing was repaired"):
        ft.repair(path)
    monkeypatch.undo()
    assert tree(path) == before


class Killed(BaseException):
    """Stands for the end of the process."""


def die_at(monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool) -> list[str]:
    """Let everything end at the `step`-th change of the dataset, before or after it is made."""
    done: list[str] = []
    dead = False

    def dying(name: str) -> Callable[..., Any]:
        method = getattr(FolderEngine, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal dead
            if dead:
                raise Killed
            done.append(name)
            dead = len(done) > step
            if dead and not after:
                raise Killed
            result = method(*args, **kwargs)
            if dead:
                raise Killed
            return result

        return call

    for name in ("replace", "begin_write", "delete", "keep"):
        monkeypatch.setattr(FolderEngine, name, dying(name))
    return done


@pytest.mark.filterwarnings("ignore::flytraj.dataset.RecoverableFramesWarning")
@pytest.mark.parametrize("after", [False, True], ids=["before the change", "after it"])
def test_killed_at_every_step_it_can_be_run_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    harm_several(path)
    leave_block(path, 2, 7)
    (path / "zarr.json.partial").write_bytes(b"{")
    step = 0
    while True:
        copy = path.with_name(f"copy-{step}")
        shutil.copytree(path, copy)
        with monkeypatch.context() as patch:
            done = die_at(patch, step, after=after)
            try:
                ft.repair(copy)
            except Killed:
                pass
            else:
                break
        assert n_committed(copy) in (8, 21)
        assert np.array_equal(ft.open_dataset(copy)["mocap_quat"][:, :8], states(0, 8)["mocap_quat"])
        report = ft.repair(copy)
        assert report.ok, str(report)
        assert_holds(copy, 8)
        kept = {file.name: file.read_bytes() for file in copy.glob(".flytraj/aside-*/mocap_quat/*")}
        assert kept == {
            name: (path / "mocap_quat" / name).read_bytes() for name in ("c.0.1.0.0", "c.0.2.0.0")
        }
        shutil.rmtree(copy)
        step += 1
    assert step == len(done)
    assert step > 10
