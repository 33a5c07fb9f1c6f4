"""Trajectory files: what one writes, the other reads."""

from __future__ import annotations

from pathlib import Path

import flygym
import numpy as np
import pytest

import flytraj as ft
from tests.peers.fly import recorded, same

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("tethered", [False, True])
def test_each_reads_the_files_of_the_other(tmp_path: Path, tethered: bool) -> None:
    theirs = recorded(tethered=tethered).trajectory
    theirs.save(tmp_path / "theirs.npz")
    ours = ft.RecordedTrajectory.from_file(tmp_path / "theirs.npz")
    assert same(ours, theirs)
    ours.save(tmp_path / "ours.npz")
    assert same(flygym.RecordedTrajectory.from_file(tmp_path / "ours.npz"), theirs)
    with np.load(tmp_path / "theirs.npz") as a, np.load(tmp_path / "ours.npz") as b:
        assert {key: (a[key].shape, a[key].dtype) for key in a} == {
            key: (b[key].shape, b[key].dtype) for key in b
        }


@pytest.mark.parametrize("tethered", [False, True])
def test_a_dataset_from_files_and_back(tmp_path: Path, tethered: bool) -> None:
    mj_model, theirs = recorded(tethered=tethered)
    theirs.save(tmp_path / "theirs.npz")
    ft.import_npz(tmp_path / "theirs.npz", tmp_path / "run.zarr", mj_model=mj_model)
    dataset = ft.open_dataset(tmp_path / "run.zarr")
    assert same(dataset.traj.trajectory(), theirs)
    (file,) = ft.export_npz(dataset, tmp_path / "exported")
    assert same(flygym.RecordedTrajectory.from_file(file), theirs)


def test_difference_a_fractional_frame_rate_stays(tmp_path: Path) -> None:
    theirs = recorded().trajectory
    ours = ft.RecordedTrajectory(theirs.time, theirs.qpos, output_fps=29.97, playback_speed=0.05)
    ours.save(tmp_path / "run.npz")
    assert ft.RecordedTrajectory.from_file(tmp_path / "run.npz").output_fps == 29.97
    assert flygym.RecordedTrajectory.from_file(tmp_path / "run.npz").output_fps == 29


def test_difference_a_path_without_npz_is_found_again(tmp_path: Path) -> None:
    """Both save to `run.npz`."""
    theirs = recorded().trajectory
    theirs.save(tmp_path / "run")
    assert same(ft.RecordedTrajectory.from_file(tmp_path / "run"), theirs)
    with pytest.raises(FileNotFoundError):
        flygym.RecordedTrajectory.from_file(tmp_path / "run")
