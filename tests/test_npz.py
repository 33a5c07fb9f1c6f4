"""Datasets and the documented `.npz` files, both ways; and arrays into datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flytraj as ft
from flytraj import testing
from flytraj.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidArgumentError,
    ModelMismatchError,
    TrajectoryFileError,
)

MODEL = testing.tiny_model().compile()


def trajectory(seed: int, n_frames: int = 9, **changes: Any) -> ft.RecordedTrajectory:
    rng = np.random.default_rng(seed)
    arguments: dict[str, Any] = {
        "time": 0.002 + np.arange(n_frames) * 0.008 + seed,
        "qpos": rng.normal(size=(n_frames, MODEL.nq)),
        "output_fps": 25,
        "playback_speed": 0.2,
        "world_id": seed,
        "mocap_pos": rng.normal(size=(n_frames, 1, 3)),
        "mocap_quat": rng.normal(size=(n_frames, 1, 4)),
    }
    return ft.RecordedTrajectory(**(arguments | changes))


def assert_same(a: ft.RecordedTrajectory, b: ft.RecordedTrajectory) -> None:
    for name in ("time", "qpos", "mocap_pos", "mocap_quat"):
        assert getattr(a, name).dtype == getattr(b, name).dtype, name
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
    for name in ("output_fps", "playback_speed", "world_id"):
        assert getattr(a, name) == getattr(b, name), name


def save_all(folder: Path, trajectories: list[ft.RecordedTrajectory]) -> list[Path]:
    paths = []
    for i, one in enumerate(trajectories):
        one.save(folder / f"{i}.npz")
        paths.append(folder / f"{i}.npz")
    return paths


def test_files_to_a_dataset_and_back_bit_for_bit(tmp_path: Path) -> None:
    originals = [trajectory(world) for world in (12, 3, 7)]
    paths = save_all(tmp_path / "in", originals)
    ft.import_npz(paths, tmp_path / "a.zarr", mj_model=MODEL)
    ds = ft.open_dataset(tmp_path / "a.zarr")
    assert ds.world.values.tolist() == [12, 3, 7]
    assert ds.nq.values[0] == "root/x"
    for original, read in zip(originals, ds.traj.trajectories(), strict=True):
        assert_same(original, read)
    written = ft.export_npz(ds, tmp_path / "out")
    assert [path.name for path in written] == ["world000012.npz", "world000003.npz", "world000007.npz"]
    for original, path in zip(originals, written, strict=True):
        assert_same(original, ft.RecordedTrajectory.from_file(path))
        with np.load(path, allow_pickle=False) as data:
            assert set(data) == {
                "time", "qpos", "output_fps", "playback_speed", "world_id", "mocap_pos", "mocap_quat",
            }  # fmt: skip


def test_a_folder_and_a_single_file_and_no_model(tmp_path: Path) -> None:
    save_all(tmp_path / "in", [trajectory(0), trajectory(1)])
    ft.import_npz(tmp_path / "in", tmp_path / "a.zarr")
    ds = ft.open_dataset(tmp_path / "a.zarr")
    assert ds.sizes["world"] == 2
    assert "nq" not in ds.coords
    ds.traj.check_model(MODEL)
    with pytest.raises(ModelMismatchError, match="nq=13"):
        ds.traj.check_model(testing.pendulum().compile())
    ft.import_npz(str(tmp_path / "in" / "1.npz"), tmp_path / "b.zarr")
    assert ft.open_dataset(tmp_path / "b.zarr").world.values.tolist() == [1]


def test_worlds_that_all_call_themselves_0_are_numbered(tmp_path: Path) -> None:
    paths = save_all(tmp_path, [trajectory(5, world_id=0), trajectory(6, world_id=0)])
    ft.import_npz(paths, tmp_path / "a.zarr")
    assert ft.open_dataset(tmp_path / "a.zarr").world.values.tolist() == [0, 1]


def test_export_of_a_view_writes_that_view(tmp_path: Path) -> None:
    ft.import_npz(save_all(tmp_path / "in", [trajectory(w) for w in range(4)]), tmp_path / "a.zarr")
    view = ft.open_dataset(tmp_path / "a.zarr").sel(world=[2]).isel(frame=slice(2, 5))
    (path,) = view.traj.to_npz(tmp_path / "out")
    assert_same(trajectory(2).read(2, 5), ft.RecordedTrajectory.from_file(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_frames": 8}, "n_frames=8"),
        ({"output_fps": 30}, "output_fps=30"),
        ({"playback_speed": 1.0}, "playback_speed=1.0"),
        ({"mocap_pos": None, "mocap_quat": None}, "nmocap=0"),
    ],
)
def test_files_that_do_not_fit_together_are_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    paths = save_all(tmp_path / "in", [trajectory(0), trajectory(1, **changes)])
    with pytest.raises(TrajectoryFileError, match=rf"1\.npz has {message}"):
        ft.import_npz(paths, tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


def test_import_says_what_is_missing_or_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"gone\.npz"):
        ft.import_npz(tmp_path / "gone.npz", tmp_path / "a.zarr")
    with pytest.raises(DatasetNotFoundError, match=r"no \.npz file"):
        ft.import_npz(tmp_path, tmp_path / "a.zarr")
    with pytest.raises(InvalidArgumentError, match="No files"):
        ft.import_npz([], tmp_path / "a.zarr")
    paths = save_all(tmp_path, [trajectory(0)])
    with pytest.raises(ModelMismatchError, match="nq=13"):
        ft.import_npz(paths, tmp_path / "a.zarr", mj_model=testing.pendulum().compile())
    ft.import_npz(paths, tmp_path / "a.zarr")
    with pytest.raises(DatasetExistsError):
        ft.import_npz(paths, tmp_path / "a.zarr")


@settings(max_examples=40, deadline=None)
@given(
    n_worlds=st.integers(1, 5),
    pieces=st.lists(st.integers(0, 11), min_size=1, max_size=4),
    block_frames=st.sampled_from([1, 2, 4, 8]),
    nmocap=st.integers(0, 2),
)
def test_appending_piece_by_piece_gives_the_whole(
    tmp_path_factory: pytest.TempPathFactory, n_worlds: int, pieces: list[int], block_frames: int, nmocap: int
) -> None:
    path = tmp_path_factory.mktemp("append") / "a.zarr"
    rng = np.random.default_rng(sum(pieces))
    whole = rng.normal(size=(n_worlds, sum(pieces), 4)).astype(np.float32)
    mocap = rng.normal(size=(n_worlds, sum(pieces), nmocap, 7)).astype(np.float32)
    start = 0
    for number, n_frames in enumerate(pieces):
        part = slice(start, start + n_frames)
        state: dict[str, Any] = {"qpos": whole[:, part]}
        if nmocap:
            state |= {"mocap_pos": mocap[:, part, :, :3], "mocap_quat": mocap[:, part, :, 3:]}
        ft.write_dataset(
            path, None, time=np.arange(n_frames) * 0.1, playback_speed=2.5, mode="a",
            block_frames=block_frames, **state,
        )  # fmt: skip
        start += n_frames
        assert ft.open_dataset(path).sizes["frame"] == start, number
    ds = ft.open_dataset(path)
    assert np.array_equal(ds.qpos.values, whole)
    if nmocap:
        assert np.array_equal(ds.mocap_quat.values, mocap[..., 3:])
    runs = [i for i, n in enumerate(n for n in pieces if n) for _ in range([n for n in pieces if n][i])]
    assert ds.episode.values.tolist() == [runs] * n_worlds
    assert (np.diff(ds.time.values) > 0).all()


def test_write_dataset_with_fields_channels_and_episodes(tmp_path: Path) -> None:
    n_worlds, n_frames = 3, 7
    mocap: dict[str, Any] = {"mocap_pos": np.zeros((3, 7, 1, 3)), "mocap_quat": np.zeros((3, 7, 1, 4))}
    ft.write_dataset(
        tmp_path / "a",
        MODEL,
        qpos=np.zeros((n_worlds, n_frames, MODEL.nq)),
        time=np.arange(n_frames) * 0.02,
        fields={"ctrl": np.arange(42.0).reshape(3, 7, 2)},
        channels={"reward": np.arange(21, dtype=np.float32).reshape(3, 7)},
        episode=np.tile([4, 4, 4, 5, 5, 5, 6], (3, 1)),
        world_ids=[10, 20, 30],
        output_fps=50,
        **mocap,
    )
    ds = ft.open_dataset(tmp_path / "a")
    assert ds.sel(world=20, nu="shin").ctrl.values.tolist() == [15, 17, 19, 21, 23, 25, 27]
    assert ds.sel(world=30).reward.values.tolist() == list(range(14, 21))
    assert ds.reward.dtype == np.float32
    assert ds.episode.values[2].tolist() == [4, 4, 4, 5, 5, 5, 6]
    assert ds.attrs["playback_speed"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qpos": np.zeros((3, 13))}, r"qpos must be \(n_worlds, n_frames, nq\), found \(3, 13\)"),
        ({"qpos": np.zeros((3, 7, 12))}, "nq=12, the model 13"),
        ({"time": np.zeros(6)}, r"time must have shape \(7,\) or \(3, 7\), found \(6,\)"),
        ({"mocap_pos": None}, "go together"),
        ({"mocap_pos": None, "mocap_quat": None}, "The model needs mocap_pos"),
        ({"mocap_quat": np.zeros((3, 7, 1, 3))}, r"mocap_quat must have shape \(3, 7, 1, 4\)"),
        ({"channels": {"reward": np.zeros((2, 7))}}, r"reward must have shape \(3, 7\)"),
        ({"episode": np.zeros((3, 6))}, "episode must have shape"),
        ({"world_ids": [1, 1, 2]}, "3 different integers"),
        ({"time": np.zeros(7)}, "give playback_speed"),
        ({"qpos": np.full((3, 7, 13), "a")}, "qpos must be an array of numbers, found <U1"),
        ({"qpos": np.zeros((3, 7, 13), complex)}, "qpos must be an array of numbers, found complex128"),
        ({"qpos": [[[0.0] * 13] * 7, [[0.0] * 13]]}, "qpos must be an array of numbers: .*inhomogeneous"),
        ({"time": ["now"] * 7}, "time must be an array of numbers"),
        ({"episode": np.full((3, 7), None)}, "episode must be an array of numbers, found object"),
        ({"channels": {"reward": np.full((3, 7), None)}}, "reward must be an array of numbers, found object"),
        ({"dtype": "int32"}, "dtype must hold floating-point numbers of at most 8 bytes, not int32"),
    ],
)
def test_write_dataset_names_what_does_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "qpos": np.zeros((3, 7, 13)),
        "time": np.arange(7) * 0.1,
        "mocap_pos": np.zeros((3, 7, 1, 3)),
        "mocap_quat": np.zeros((3, 7, 1, 4)),
    }
    with pytest.raises(InvalidArgumentError, match=message):
        ft.write_dataset(tmp_path / "a", MODEL, **(arguments | changes))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("int64", "float64"),
        ("bool", "float64"),
        ("longdouble", "float64"),
        ("float32", "float32"),
        ("f2", "f2"),
    ],
)
def test_write_dataset_stores_coordinates_as_floating_point_numbers(
    tmp_path: Path, given: str, stored: str
) -> None:
    qpos = np.arange(6).reshape(2, 3, 1).astype(given)
    ft.write_dataset(tmp_path / "a", testing.pendulum().compile(), qpos=qpos, time=np.arange(3) * 0.1)
    ds = ft.open_dataset(tmp_path / "a")
    assert ds.qpos.dtype == stored
    assert np.array_equal(ds.qpos.values, qpos)


def test_only_views_are_exported(tmp_path: Path) -> None:
    for other in ("a.zarr", 3, None):
        with pytest.raises(InvalidArgumentError, match=r"A view of a dataset.* was expected, found"):
            ft.export_npz(other, tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
