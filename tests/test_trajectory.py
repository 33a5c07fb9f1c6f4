"""`RecordedTrajectory` and its file, against flygym's documented format and against damaged files."""

from __future__ import annotations

import io
import os
import resource
import zipfile
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flytraj import RecordedTrajectory, as_trajectory_list, check_trajectories_match_model
from flytraj.errors import (
    DatasetNotFoundError,
    InvalidArgumentError,
    ModelMismatchError,
    TrajectoryFileError,
    WriteError,
)


def make(n_frames: int = 5, nq: int = 3, nmocap: int = 0, **changes: Any) -> RecordedTrajectory:
    rng = np.random.default_rng(0)
    arguments: dict[str, Any] = {
        "time": np.arange(n_frames) * 0.008,
        "qpos": rng.normal(size=(n_frames, nq)),
        "output_fps": 25,
        "playback_speed": 0.2,
        "world_id": 7,
    }
    if nmocap:
        arguments["mocap_pos"] = rng.normal(size=(n_frames, nmocap, 3))
        arguments["mocap_quat"] = rng.normal(size=(n_frames, nmocap, 4))
    return RecordedTrajectory(**{**arguments, **changes})


def write_archive(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def as_arrays(trajectory: RecordedTrajectory) -> dict[str, Any]:
    names = ("time", "qpos", "output_fps", "playback_speed", "world_id")
    return {name: np.asarray(getattr(trajectory, name)) for name in names}


def test_the_file_has_the_documented_keys_and_no_more(tmp_path: Path) -> None:
    make().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as data:
        assert sorted(data) == ["output_fps", "playback_speed", "qpos", "time", "world_id"]
        assert (int(data["output_fps"]), float(data["playback_speed"]), int(data["world_id"])) == (25, 0.2, 7)
    make(nmocap=2).save(tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz", allow_pickle=False) as data:
        assert {"mocap_pos", "mocap_quat"} < set(data)
    assert zipfile.ZipFile(tmp_path / "b.npz").infolist()[0].compress_type == zipfile.ZIP_DEFLATED


@given(
    qpos=hnp.arrays(
        st.sampled_from([np.float32, np.float64]), hnp.array_shapes(min_dims=2, max_dims=2, min_side=0)
    ),
    nmocap=st.integers(0, 3),
    fps=st.sampled_from([25, 29.97, 60]),
)
def test_what_is_saved_is_loaded_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, qpos: Any, nmocap: int, fps: float
) -> None:
    n_frames = len(qpos)
    mocap: dict[str, Any] = {}
    if nmocap:
        mocap = {"mocap_pos": np.ones((n_frames, nmocap, 3)), "mocap_quat": np.ones((n_frames, nmocap, 4))}
    saved = RecordedTrajectory(np.arange(n_frames) * 0.1, qpos, fps, 0.5, 3, **mocap)
    path = tmp_path_factory.mktemp("npz") / "t.npz"
    saved.save(path)
    loaded = RecordedTrajectory.from_file(path)
    assert loaded.qpos.dtype == qpos.dtype
    assert loaded.qpos.tobytes() == qpos.tobytes()
    assert np.array_equal(loaded.time, saved.time)
    assert (loaded.output_fps, loaded.playback_speed, loaded.world_id) == (fps, 0.5, 3)
    assert type(loaded.output_fps) is type(fps)
    assert (loaded.mocap_pos is None) == (nmocap == 0)
    if nmocap:
        assert np.array_equal(np.asarray(loaded.mocap_quat), mocap["mocap_quat"])


def test_npz_is_added_and_found_again(tmp_path: Path) -> None:
    make().save(tmp_path / "deep" / "run.1")
    assert (tmp_path / "deep" / "run.1.npz").is_file()
    assert RecordedTrajectory.from_file(tmp_path / "deep" / "run.1").n_frames == 5


def test_a_file_that_numpy_wrote_uncompressed_and_fortran_ordered_is_read(tmp_path: Path) -> None:
    arrays = as_arrays(make()) | {"qpos": np.asfortranarray(make().qpos)}
    np.savez(tmp_path / "a.npz", **arrays)
    assert np.array_equal(RecordedTrajectory.from_file(tmp_path / "a.npz").qpos, make().qpos)


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make().save(tmp_path / "a.npz")

    def interrupted(file: io.BufferedWriter, **_: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(n_frames=9).save(tmp_path / "a.npz")
    assert RecordedTrajectory.from_file(tmp_path / "a.npz").n_frames == 5
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nothing\.npz"):
        RecordedTrajectory.from_file(tmp_path / "nothing.npz")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(TrajectoryFileError, match=r"a\.npz"):
        RecordedTrajectory.from_file(path)


@pytest.mark.parametrize("key", ["time", "qpos", "output_fps", "playback_speed", "world_id"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    arrays = as_arrays(make())
    del arrays[key]
    path = write_archive(tmp_path / "a.npz", **arrays)
    with pytest.raises(TrajectoryFileError, match=rf"a\.npz.*'{key}'"):
        RecordedTrajectory.from_file(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qpos": np.zeros((4, 3))}, r"qpos must be \(n_frames=5, nq\), found \(4, 3\)"),
        ({"time": np.zeros((5, 1))}, r"time must be \(n_frames,\), found \(5, 1\)"),
        ({"output_fps": np.zeros(2)}, "'output_fps': one number"),
        ({"mocap_pos": np.zeros((5, 1, 3))}, "mocap_quat"),
        ({"mocap_pos": np.zeros((5, 1, 3)), "mocap_quat": np.zeros((5, 2, 4))}, r"\(5, 2, 4\)"),
        ({"output_fps": np.array(0)}, "output_fps must be a positive"),
    ],
)
def test_arrays_that_do_not_fit_are_named_with_their_shapes(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_archive(tmp_path / "a.npz", **(as_arrays(make()) | changes))
    with pytest.raises(TrajectoryFileError, match=message):
        RecordedTrajectory.from_file(path)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


def test_nothing_pickled_is_loaded(tmp_path: Path) -> None:
    arrays = as_arrays(make()) | {"qpos": np.array([[Bomb()]], dtype=object)}
    path = write_archive(tmp_path / "a.npz", **arrays)
    with pytest.raises(TrajectoryFileError, match="'qpos'"):
        RecordedTrajectory.from_file(path)


def test_a_header_that_claims_more_than_the_file_holds_allocates_nothing(tmp_path: Path) -> None:
    good = write_archive(tmp_path / "good.npz", **as_arrays(make()))
    bad = tmp_path / "bad.npz"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename == "qpos.npy":
                data = data.replace(b"(5, 3), }      ", b"(500000000, 3)}")
            target.writestr(info.filename, data)
    with pytest.raises(TrajectoryFileError, match="12000000000 bytes"):
        RecordedTrajectory.from_file(bad)


def test_arrays_that_do_not_fit_make_no_trajectory() -> None:
    with pytest.raises(InvalidArgumentError, match="qpos must be"):
        make(qpos=np.zeros(5))


def test_as_trajectory_list() -> None:
    one = make()
    assert as_trajectory_list(one) == [one]
    assert as_trajectory_list((one, one)) == [one, one]
    with pytest.raises(InvalidArgumentError, match="No trajectories"):
        as_trajectory_list([])
    with pytest.raises(InvalidArgumentError, match="str"):
        as_trajectory_list("run.npz")  # type: ignore[arg-type]


def test_the_documented_check_against_a_model() -> None:
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body mocap='true'/><body><joint type='ball'/><geom size='1'/></body></worldbody></mujoco>"
    )
    check_trajectories_match_model(model, [make(nq=4, nmocap=1)])
    with pytest.raises(
        ModelMismatchError, match=r"world 7 has nq=3 and nmocap=1, the model nq=4 and nmocap=1"
    ):
        check_trajectories_match_model(model, [make(nq=3, nmocap=1)])
    with pytest.raises(ValueError, match="nmocap=0"):
        check_trajectories_match_model(model, [make(nq=4)])


def test_read_shares_memory_and_keeps_what_is_not_frames() -> None:
    trajectory = make(nmocap=1)
    part = trajectory.read(1, 3)
    assert np.shares_memory(part.qpos, trajectory.qpos)
    assert (part.n_frames, part.world_id, part.nq, part.nmocap) == (2, 7, 3, 1)
    assert np.array_equal(part.time, trajectory.time[1:3])


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    old, new = make(20), make(4000)
    old.save(tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content), limits[1]))
    try:
        with pytest.raises(WriteError, match=r"The file .*a\.npz cannot be written: File too large"):
            new.save(tmp_path / "a.npz")
        with pytest.raises(
            WriteError, match=r"The file .*b\.npz cannot be written: (Not a directory|File exists)"
        ):
            old.save(tmp_path / "a.npz" / "b.npz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == content
