"""What `ds.traj` adds: episodes as views, own times, joints, windows, kinematics, summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import flytraj as ft
from flytraj import testing
from flytraj.errors import FieldNotFoundError, InvalidArgumentError, ModelMismatchError
from flytraj.kinematics import compute

MODEL = testing.tiny_model().compile()
N_WORLDS, N_FRAMES = 6, 40
# Worlds 1, 2 and 4 are reset once, world 2 twice.
RESETS = {1: [15], 2: [10, 30], 4: [39]}


def times_and_episodes() -> tuple[np.ndarray, np.ndarray]:
    time = np.zeros((N_WORLDS, N_FRAMES))
    episode = np.zeros((N_WORLDS, N_FRAMES), np.int32)
    for frame in range(1, N_FRAMES):
        for world in range(N_WORLDS):
            if frame in RESETS.get(world, []):
                episode[world, frame] = episode[world, frame - 1] + 1
            else:
                time[world, frame] = time[world, frame - 1] + 0.02
                episode[world, frame] = episode[world, frame - 1]
    return time, episode


TIME, EPISODE = times_and_episodes()


def states() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    quat = rng.normal(size=(N_WORLDS, N_FRAMES, 1, 4))
    return {
        "qpos": rng.normal(size=(N_WORLDS, N_FRAMES, MODEL.nq)).astype(np.float32),
        "mocap_pos": rng.normal(size=(N_WORLDS, N_FRAMES, 1, 3)).astype(np.float32),
        "mocap_quat": (quat / np.linalg.norm(quat, axis=-1, keepdims=True)).astype(np.float32),
    }


STATES = states()
IDS = [10, 11, 12, 13, 14, 15]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    path = tmp_path_factory.mktemp("views") / "a.zarr"
    ft.write_dataset(
        path,
        MODEL,
        time=TIME,
        world_ids=IDS,
        channels={"reward": np.arange(N_WORLDS * N_FRAMES).reshape(N_WORLDS, N_FRAMES)},
        block_frames=16,
        **STATES,
    )
    return ft.open_dataset(path)


def test_an_episode_as_a_view(ds: xr.Dataset) -> None:
    part = ds.traj.episode(12, 1)
    assert part.qpos.dims == ("frame", "nq")
    assert np.array_equal(part.qpos.values, STATES["qpos"][2, 10:30])
    assert np.array_equal(ds.traj.episode(12, -1).qpos.values, STATES["qpos"][2, 30:])
    assert np.array_equal(ds.isel(frame=slice(5, None)).traj.episode(11, 0).qpos, STATES["qpos"][1, 5:15])
    assert part.traj.trajectory().world_id == 12
    with pytest.raises(FieldNotFoundError, match=r"World 10 has no episode 1 in the view; it has \[0\]"):
        ds.traj.episode(10, 1)
    with pytest.raises(FieldNotFoundError, match="World 3"):
        ds.traj.episode(3, 0)


def test_one_time_on_each_worlds_own_clock(ds: xr.Dataset) -> None:
    part = ds.traj.sel_sim_time(0.1)
    assert np.array_equal(part.qpos.values, STATES["qpos"][:, 5:6])
    part = ds.traj.sel_sim_time(0.1, episode=1)
    assert np.array_equal(part.qpos.values[1, 0], STATES["qpos"][1, 20])
    assert np.array_equal(part.qpos.values[2, 0], STATES["qpos"][2, 15])
    assert np.isnan(part.qpos.values[[0, 3, 4, 5]]).all()
    assert np.isnan(part.sim_time.values[0, 0])


def test_a_stretch_on_each_worlds_own_clock(ds: xr.Dataset) -> None:
    part = ds.traj.sel_sim_time(slice(0.2, 0.4))
    assert part.sizes["frame"] == 11
    for world in range(N_WORLDS):
        for k, time in enumerate(np.arange(10, 21) * 0.02):
            frames = np.flatnonzero(np.abs(TIME[world] - time) < 0.01)
            got = part.qpos.values[world, k]
            assert (
                np.array_equal(got, STATES["qpos"][world, frames[0]]) if len(frames) else np.isnan(got).all()
            )
    assert part.reward.dtype.kind == "f"
    assert ds.traj.sel_sim_time(slice(7, 9)).sizes["frame"] == 0


def test_a_joint_by_name(ds: xr.Dataset) -> None:
    assert np.array_equal(ds.traj.joint("hip").values, STATES["qpos"][..., 11])
    assert np.array_equal(ds.traj.joint("root").values, STATES["qpos"][..., :7])
    assert ds.traj.joint("neck").nq.values.tolist() == ["neck/qw", "neck/qx", "neck/qy", "neck/qz"]
    with pytest.raises(FieldNotFoundError, match="there are root, neck, hip, shin"):
        ds.traj.joint("wing")


def valid_windows(length: int, stride: int) -> set[tuple[int, int]]:
    """World and start of every window within one episode, found slowly."""
    span = (length - 1) * stride + 1
    return {
        (world, start)
        for world in range(N_WORLDS)
        for start in range(N_FRAMES - span + 1)
        if len(set(EPISODE[world, start : start + span].tolist())) == 1
    }


def identify(windows: np.ndarray) -> list[tuple[int, int]]:
    """World and start of windows of `reward`, whose values count worlds and frames."""
    return [(int(first) // N_FRAMES, int(first) % N_FRAMES) for first in windows[:, 0]]


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (5, 1), (4, 3), (20, 1), (40, 1)])
def test_windows_are_uniform_over_all_valid_starts(ds: xr.Dataset, length: int, stride: int) -> None:
    expected = valid_windows(length, stride)
    windows = ds.traj.windows(length, fields=("reward", "qpos"), stride=stride)
    assert len(windows) == len(expected)
    drawn = ds.traj.sample_windows(60 * len(expected), length, fields="reward", rng=0, stride=stride)
    starts = identify(drawn)
    assert set(starts) == expected
    counts = np.array([starts.count(start) for start in expected]) if len(expected) < 50 else np.array([60])
    assert counts.min() > 20
    assert counts.max() < 130
    assert (np.diff(drawn, axis=1) == stride).all()


def test_windows_of_several_fields_belong_together_and_repeat(ds: xr.Dataset) -> None:
    sampled = ds.traj.sample_windows(50, 6, fields=("qpos", "reward"), rng=7)
    again = ds.traj.sample_windows(50, 6, fields=("qpos", "reward"), rng=np.random.default_rng(7))
    assert sampled["qpos"].shape == (50, 6, MODEL.nq)
    assert np.array_equal(sampled["reward"], again["reward"])
    for (world, start), window in zip(identify(sampled["reward"]), sampled["qpos"], strict=True):
        assert np.array_equal(window, STATES["qpos"][world, start : start + 6])
    assert len(set(identify(sampled["reward"]))) > 30


def test_windows_of_a_view_of_a_view(ds: xr.Dataset) -> None:
    view = ds.sel(world=[14, 12]).isel(frame=slice(2, 36)).isel(frame=slice(None, None, 2))
    sampled = view.traj.sample_windows(40, 3, fields=("reward", "qpos"), rng=1)
    for first, window in zip(sampled["reward"], sampled["qpos"], strict=True):
        world, start = int(first[0]) // N_FRAMES, int(first[0]) % N_FRAMES
        assert world in (4, 2)
        assert np.array_equal(window, STATES["qpos"][world, start : start + 6 : 2])
        assert len(set(EPISODE[world, start : start + 5].tolist())) == 1


def test_windows_know_which_chunks_their_frames_lie_in(ds: xr.Dataset) -> None:
    """Blocks have 16 frames, and so have chunks."""
    assert ds.traj.windows(2).rows.tolist() == [frame // 16 for frame in range(40)]
    part = ds.isel(frame=slice(5, 40, 3), world=[4, 0])
    assert part.traj.windows(2).rows.tolist() == [frame // 16 for frame in range(5, 40, 3)]
    assert set(ds.drop_vars("time").traj.windows(2).rows.tolist()) == {0}


def test_windows_default_to_qpos_and_refuse_what_is_not_there(ds: xr.Dataset) -> None:
    assert ds.traj.sample_windows(3, 2, rng=0).shape == (3, 2, MODEL.nq)
    with pytest.raises(InvalidArgumentError, match="has the 41 frames"):
        ds.traj.sample_windows(1, 41)
    with pytest.raises(InvalidArgumentError, match="length"):
        ds.traj.sample_windows(1, 0)
    with pytest.raises(FieldNotFoundError, match="'qvel'"):
        ds.traj.sample_windows(1, 2, fields="qvel")
    wrong: Any
    for wrong in (-1, 2.5):
        with pytest.raises(InvalidArgumentError, match="n must be a number of windows"):
            ds.traj.sample_windows(wrong, 2)
    assert ds.traj.sample_windows(0, 2).shape == (0, 2, MODEL.nq)


@pytest.mark.parametrize("seed", [None, 3])
def test_an_epoch_has_every_window_once(
    ds: xr.Dataset, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flytraj.windows._BATCH_POINTS", 200)
    windows = ds.traj.windows(5, fields="reward")
    rng = None if seed is None else np.random.default_rng(seed)
    batches = [batch["reward"] for batch in windows.epoch(7, rng)]
    assert max(map(len, batches)) == 7
    starts = [start for batch in batches for start in identify(batch)]
    assert sorted(starts) == sorted(valid_windows(5, 1))
    assert (starts == sorted(starts)) == (seed is None)


def test_workers_share_an_epoch(ds: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flytraj.windows._BATCH_POINTS", 200)
    windows = ds.traj.windows(5, fields="reward")
    starts = [
        start
        for worker in range(3)
        for batch in windows.epoch(4, np.random.default_rng(1), part=(worker, 3))
        for start in identify(batch["reward"])
    ]
    assert sorted(starts) == sorted(valid_windows(5, 1))


@pytest.mark.parametrize(
    "name", ["xpos", "xquat", "xmat", "site_xpos", "cam_xpos", "light_xdir", "ten_length", "subtree_com"]
)
def test_kinematics_are_mujocos_bit_for_bit(ds: xr.Dataset, name: str) -> None:
    computed = ds.traj.kinematics(name)
    data = mujoco.MjData(MODEL)
    for world, frame in ((0, 0), (3, 39), (5, 17)):
        data.qpos[:] = STATES["qpos"][world, frame]
        data.mocap_pos[:] = STATES["mocap_pos"][world, frame]
        data.mocap_quat[:] = STATES["mocap_quat"][world, frame]
        mujoco.mj_kinematics(MODEL, data)
        mujoco.mj_comPos(MODEL, data)
        mujoco.mj_camlight(MODEL, data)
        mujoco.mj_tendon(MODEL, data)
        assert np.array_equal(computed[name].isel(world=world, frame=frame).values, getattr(data, name))


def test_kinematics_are_lazy_labelled_and_sliceable(ds: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(mj_model: mujoco.MjModel, name: str, qpos: np.ndarray, *rest: Any) -> Any:
        calls.append(len(qpos))
        return compute(mj_model, name, qpos, *rest)

    monkeypatch.setattr("flytraj.view.compute", counted)
    computed = ds.traj.kinematics("xpos", "site_xpos")
    assert computed.xpos.dims == ("world", "frame", "nbody", "xyz")
    assert computed.site_xpos.nsite.values.tolist() == ["tip", "sole"]
    assert not calls
    height = computed.xpos.sel(world=12, nbody="head", xyz="z").isel(frame=slice(30, 10, -3))
    whole = computed.xpos.values
    assert calls == [N_WORLDS * N_FRAMES]
    assert np.array_equal(height.values, whole[2, 30:10:-3, 3, 2])
    assert calls == [N_WORLDS * N_FRAMES, 7]
    points = computed.xpos.isel(world=xr.Variable("p", [1, 4]), frame=xr.Variable("p", [0, 9]), nbody=[2, 3])
    assert np.array_equal(points.values, whole[[1, 4], [0, 9]][:, [2, 3]])
    assert np.array_equal(computed.sel(time=slice(0.1, 0.2)).xpos.values, whole[:, 5:11])


def test_kinematics_refuse_what_does_not_follow_from_positions(ds: xr.Dataset) -> None:
    with pytest.raises(FieldNotFoundError, match="'qfrc_actuator' does not follow"):
        ds.traj.kinematics("qfrc_actuator")
    with pytest.raises(ModelMismatchError):
        ds.traj.kinematics("xpos", mj_model=testing.pendulum().compile())


def test_the_summary_says_what_people_ask_first(ds: xr.Dataset) -> None:
    text, page = repr(ds.traj), ds.traj._repr_html_()
    for word in (
        "6 × 40",
        "0.000 to 0.780 s",
        "25 fps at 0.5",
        "10, 0.000 to 0.780 s",
        "qpos (13,) float32",
        "MJB embedded",
        "on disk",
    ):
        assert word in text
        assert word in page
    assert page.startswith("<table>")
    part = ds.isel(world=[0], frame=slice(5))
    assert "1 × 5 (of 6 × 40 in the dataset)" in repr(part.traj)


def test_a_dataset_of_something_else_says_so() -> None:
    with pytest.raises((InvalidArgumentError, ft.errors.FormatError)):
        repr(xr.Dataset({"a": ("x", [1.0])}).traj)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    worlds=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    data=st.data(),
)
def test_views_after_appends_equal_numpy(lengths: list[int], worlds: list[int], data: st.DataObject) -> None:
    frames = data.draw(st.slices(sum(lengths)))
    store = MemoryStore()
    rng = np.random.default_rng(sum(lengths))
    pieces = [rng.normal(size=(3, n, 2)) for n in lengths]
    for piece in pieces:
        time = np.arange(piece.shape[1]) * 0.1
        ft.write_dataset(store, None, qpos=piece, time=time, playback_speed=2.5, block_frames=4, mode="a")
    whole = np.concatenate(pieces, axis=1)
    view = ft.open_dataset(store).isel(world=worlds, frame=frames)
    assert np.array_equal(view.qpos.values, whole[worlds][:, frames])
    runs = np.repeat(np.arange(len(lengths)), lengths)
    assert np.array_equal(view.episode.values, np.tile(runs, (3, 1))[worlds][:, frames])


def test_a_recording_seen_while_it_goes_on(tmp_path: Path) -> None:
    data = mujoco.MjData(MODEL)
    with ft.TrajectoryRecorder(MODEL, store=tmp_path / "a", block_frames=4) as recorder:
        for step in range(80):
            mujoco.mj_step(MODEL, data)
            recorder.record_as_needed(data)
            if step == 40:
                recorder.flush()
                early = ft.open_dataset(tmp_path / "a")
                n_early = early.sizes["frame"]
    assert n_early == 11
    late = ft.open_dataset(tmp_path / "a")
    assert late.sizes["frame"] == 20
    assert np.array_equal(early.qpos.values, late.qpos.values[:, :11])
