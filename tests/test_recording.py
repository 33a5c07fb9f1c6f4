"""Recorders on real MuJoCo: every source, resets, channels, appending, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import flytraj as ft
from flytraj import testing
from flytraj.errors import (
    DatasetExistsError,
    DatasetLockedError,
    FieldNotFoundError,
    FormatError,
    InvalidArgumentError,
    ModelMismatchError,
    NothingRecordedError,
    RecorderClosedError,
)

batch = pytest.importorskip("mujoco.batch", reason="mujoco.batch comes with MuJoCo 4")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return testing.tiny_model().compile()


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "run.zarr" if request.param == "folder" else None


def move_mocap(data: Any, step: int) -> None:
    data.mocap_pos[..., 0] = np.sin(step / 50)
    data.mocap_quat[:] = [np.cos(step / 100), np.sin(step / 100), 0, 0]


def test_one_world_is_recorded_bit_for_bit(model: mujoco.MjModel, store: Path | None) -> None:
    data = mujoco.MjData(model)
    expected = []
    with ft.TrajectoryRecorder(model, playback_speed=0.5, output_fps=25, store=store) as recorder:
        for step in range(200):
            move_mocap(data, step)
            mujoco.mj_step(model, data)
            due = step % 10 == 0
            assert recorder.record_as_needed(data) == due
            if due:
                expected.append((data.time, data.qpos.copy(), data.mocap_pos.copy(), data.mocap_quat.copy()))
        trajectory = recorder.trajectory
    time, qpos, mocap_pos, mocap_quat = (np.array(values) for values in zip(*expected, strict=True))
    assert np.array_equal(trajectory.time, time)
    assert np.array_equal(trajectory.qpos, qpos)
    assert trajectory.mocap_pos is not None
    assert np.array_equal(trajectory.mocap_pos, mocap_pos)
    assert trajectory.mocap_quat is not None
    assert np.array_equal(trajectory.mocap_quat, mocap_quat)
    assert (trajectory.output_fps, trajectory.playback_speed, trajectory.world_id) == (25, 0.5, 0)
    assert trajectory.qpos.dtype == np.float64


def simulate(model: mujoco.MjModel, kind: str, n_worlds: int, n_steps: int) -> Any:
    """Yield what each kind of source hands over, step by step, and qpos and time as plain arrays."""
    many = batch.Batch(model, n_worlds)
    rng = np.random.default_rng(3)
    many.bind("qvel")[:] = rng.normal(size=(n_worlds, model.nv))
    lists = [mujoco.MjData(model) for _ in range(n_worlds)]
    for step in range(n_steps):
        if step in (40, 70):
            many.reset(ids=[0, step // 20])
        many.bind("mocap_pos")[..., 0] = np.sin(step / 50)
        many.step()
        qpos, time = many.bind("qpos"), many.bind("time")
        if kind == "batch":
            yield many, qpos, time
        elif kind == "list":
            for i, data in enumerate(lists):
                data.qpos[:], data.time = qpos[i], time[i]
                data.mocap_pos[:] = many.bind("mocap_pos")[i]
                data.mocap_quat[:] = many.bind("mocap_quat")[i]
            yield lists, qpos, time
        else:
            yield (
                {
                    "time": time.copy(),
                    "qpos": qpos.copy(),
                    "mocap_pos": many.bind("mocap_pos").copy(),
                    "mocap_quat": many.bind("mocap_quat").copy(),
                },
                qpos,
                time,
            )


@pytest.mark.parametrize("kind", ["batch", "list", "mapping"])
@pytest.mark.parametrize("worlds", [None, [4, 1]])
def test_many_worlds_from_every_source(
    model: mujoco.MjModel, store: Path | None, kind: str, worlds: list[int] | None
) -> None:
    chosen = worlds or list(range(5))
    qpos, times = [], []
    with ft.BatchTrajectoryRecorder(
        model, 5, worlds=worlds, playback_speed=1.0, output_fps=100, store=store, block_frames=4
    ) as recorder:
        assert recorder.world_ids == chosen
        for step, (data, live_qpos, live_time) in enumerate(simulate(model, kind, 5, 101)):
            assert recorder.record_as_needed(data) == (step % 5 == 0)
            if step % 5 == 0:
                qpos.append(live_qpos[chosen].copy())
                times.append(live_time[chosen].copy())
        trajectories = recorder.trajectories
    assert [t.world_id for t in trajectories] == chosen
    for i, trajectory in enumerate(trajectories):
        assert np.array_equal(trajectory.qpos, np.array(qpos)[:, i])
        assert np.array_equal(trajectory.time, np.array(times)[:, i])
    if store is not None:
        ds = ft.open_dataset(store)
        assert np.array_equal(ds.qpos.values, np.array(qpos).swapaxes(0, 1))
        np.testing.assert_allclose(ds.time.values, 0.002 + np.arange(21) * 0.01, atol=1e-12)


def test_a_reset_of_some_worlds_disturbs_no_other(model: mujoco.MjModel, tmp_path: Path) -> None:
    with ft.BatchTrajectoryRecorder(
        model, 5, playback_speed=1.0, output_fps=100, store=tmp_path / "a.zarr"
    ) as recorder:
        recorded = [recorder.record_as_needed(data) for data, _, _ in simulate(model, "batch", 5, 101)]
    assert sum(recorded) == 21
    ds = ft.open_dataset(tmp_path / "a.zarr")
    # World 0 was reset at steps 40 and 70, world 2 at 40, world 3 at 70; frames are every fifth step.
    expected = np.zeros((5, 21), int)
    expected[0, 8:] += 1
    expected[0, 14:] += 1
    expected[2, 8:] += 1
    expected[3, 14:] += 1
    assert np.array_equal(ds.episode.values, expected)
    np.testing.assert_allclose(ds.sim_time.values[0, 8:14], 0.002 + np.arange(6) * 0.01, atol=1e-12)
    assert (np.diff(ds.time.values) > 0).all()
    table = ds.traj.episodes()
    assert table[table.world == 0][["episode", "first_frame", "last_frame"]].to_numpy().tolist() == [
        [0, 0, 7],
        [1, 8, 13],
        [2, 14, 20],
    ]
    np.testing.assert_allclose(table[table.world == 0].duration, [0.07, 0.05, 0.06], atol=1e-12)
    assert len(table) == 5 + 2 + 1 + 1


def test_a_reset_between_frames_is_seen(model: mujoco.MjModel) -> None:
    data = {"time": np.zeros(2), "qpos": np.zeros((2, model.nq)), **rest_mocap(model, 2)}
    recorder = ft.BatchTrajectoryRecorder(model, 2, playback_speed=1.0, output_fps=10)
    steps = [0, 0.05, 0.1, 0.15, 0.2]
    others = [0, 0.05, 0.0, 0.05, 0.1]  # reset between frames 0 and 1
    for own, other in zip(steps, others, strict=True):
        data["time"] = np.array([own, other])
        recorder.record_as_needed(data)
    assert [t.time.tolist() for t in recorder.trajectories] == [[0, 0.1, 0.2], [0, 0.0, 0.1]]
    assert recorder._session.episode.tolist() == [0, 1]


def rest_mocap(model: mujoco.MjModel, n_worlds: int) -> dict[str, Any]:
    quat = np.zeros((n_worlds, model.nmocap, 4))
    quat[..., 0] = 1
    return {"mocap_pos": np.zeros((n_worlds, model.nmocap, 3)), "mocap_quat": quat}


def arrays(model: mujoco.MjModel, n_worlds: int, time: float, dtype: Any = np.float64) -> dict[str, Any]:
    values = {"qpos": np.full((n_worlds, model.nq), time), **rest_mocap(model, n_worlds)}
    return {"time": time, **{name: value.astype(dtype) for name, value in values.items()}}


def test_a_mapping_keeps_its_dtype_and_dtype_overrides_it(model: mujoco.MjModel, tmp_path: Path) -> None:
    for name, dtype, expected in (
        ("a", None, "float32"),
        ("b", "float64", "float64"),
        ("c", "f2", "float16"),
    ):
        with ft.BatchTrajectoryRecorder(model, 2, store=tmp_path / name, dtype=dtype) as recorder:
            recorder.record_as_needed(arrays(model, 2, 0.5, np.float32))
        ds = ft.open_dataset(tmp_path / name)
        assert (ds.qpos.dtype, ds.mocap_pos.dtype, ds.sim_time.dtype) == (expected, expected, "float64")
        assert (ds.qpos.values == 0.5).all()


def test_fields_and_channels(model: mujoco.MjModel, store: Path | None) -> None:
    many = batch.Batch(model, 3)
    many.bind("xpos")
    seen = []
    with ft.BatchTrajectoryRecorder(
        model,
        3,
        worlds=[0, 2],
        store=store,
        fields=("qvel", "ctrl", "xpos", "sensordata"),
        channels={"reward": ((), "float32"), "done": ((), bool), "force": ((2, 3), "float64")},
    ) as recorder:
        many.bind("sensordata")
        for step in range(9):
            many.bind("ctrl")[:] = step
            many.step()
            recorder.record_as_needed(
                many,
                reward=np.arange(3) + step,
                done=np.array([False, True, True]),
                force=np.full((3, 2, 3), step),
            )
            seen.append({name: many.bind(name)[[0, 2]].copy() for name in ("qvel", "xpos", "sensordata")})
    if store is None:
        return
    ds = ft.open_dataset(store)
    for name in ("qvel", "xpos", "sensordata"):
        expected = np.stack([seen[0][name], seen[4][name], seen[8][name]], axis=1)
        assert np.array_equal(ds[name].values, expected), name
    assert ds.reward.values.tolist() == [[0, 4, 8], [2, 6, 10]]
    assert ds.done.values.tolist() == [[False] * 3, [True] * 3]
    assert ds.force.values[:, :, 1, 2].tolist() == [[0, 4, 8], [0, 4, 8]]
    assert ds.ctrl.dims == ("world", "frame", "nu")
    assert ds.xpos.sel(nbody="head", xyz="z").shape == (2, 3)


def test_a_derived_field_of_a_batch_must_be_bound_before_the_step(model: mujoco.MjModel) -> None:
    many = batch.Batch(model, 1)
    recorder = ft.BatchTrajectoryRecorder(model, 1, fields=("xpos",))
    many.step()
    with pytest.raises(InvalidArgumentError, match=r"batch.bind\('xpos'\)"):
        recorder.record_as_needed(many)
    many.bind("xpos")
    many.step()
    assert recorder.record_as_needed(many)


def test_the_clock_counts_steps_between_frames_when_one_world_is_reset(
    model: mujoco.MjModel, tmp_path: Path
) -> None:
    recorders: dict[str, ft.BatchTrajectoryRecorder] = {
        "one": ft.TrajectoryRecorder(model, playback_speed=1.0, output_fps=50, store=tmp_path / "one"),
        "many": ft.BatchTrajectoryRecorder(
            model, 1, playback_speed=1.0, output_fps=50, store=tmp_path / "many"
        ),
    }
    data = mujoco.MjData(model)
    for step in range(60):
        if step == 25:
            mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data)
        for recorder in recorders.values():
            recorder.record_as_needed(data)
    for name, recorder in recorders.items():
        recorder.close()
        # Frames every 10 steps; after the reset at step 25 one at once, and every 10 steps from there.
        expected = (np.array([0, 10, 20, 25, 35, 45, 55]) + 1) * 0.002
        np.testing.assert_allclose(
            ft.open_dataset(tmp_path / name).time.values, expected, atol=1e-9, err_msg=name
        )


def test_a_first_call_that_is_refused_leaves_nothing_behind(model: mujoco.MjModel, tmp_path: Path) -> None:
    recorder = ft.TrajectoryRecorder(model, store=tmp_path / "a", channels={"reward": ((), "f4")})
    with pytest.raises(InvalidArgumentError, match="Channels are declared"):
        recorder.record_as_needed(mujoco.MjData(model))
    assert not any(path.is_dir() for path in (tmp_path / "a").iterdir())


def test_a_block_too_large_for_memory_is_refused(model: mujoco.MjModel, tmp_path: Path) -> None:
    recorder = ft.TrajectoryRecorder(model, store=tmp_path / "a", block_frames=10**12)
    with pytest.raises(InvalidArgumentError, match="block_frames"):
        recorder.record_as_needed(mujoco.MjData(model))


def test_reset_in_memory_starts_anew(model: mujoco.MjModel) -> None:
    recorder = ft.TrajectoryRecorder(model)
    data = mujoco.MjData(model)
    assert recorder.record_as_needed(data)
    recorder.reset()
    with pytest.raises(NothingRecordedError):
        _ = recorder.trajectory
    assert recorder.record_as_needed(data)
    assert recorder.trajectory.n_frames == 1


def record_trial(recorder: ft.TrajectoryRecorder, model: mujoco.MjModel, n_steps: int) -> None:
    data = mujoco.MjData(model)
    for _ in range(n_steps):
        mujoco.mj_step(model, data)
        recorder.record_as_needed(data)


def test_reset_with_a_store_keeps_earlier_trials_as_episodes(model: mujoco.MjModel, tmp_path: Path) -> None:
    with ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr", block_frames=4) as recorder:
        record_trial(recorder, model, 21)
        assert recorder.trajectory.n_frames == 6
        recorder.reset()
        with pytest.raises(NothingRecordedError):
            _ = recorder.trajectory
        record_trial(recorder, model, 13)
        assert recorder.trajectory.n_frames == 4
        np.testing.assert_allclose(recorder.trajectory.time, [0.002, 0.01, 0.018, 0.026])
    ds = ft.open_dataset(tmp_path / "a.zarr")
    assert ds.episode.values.tolist() == [[0] * 6 + [1] * 4]
    assert (np.diff(ds.time.values) > 0).all()


def test_reset_with_discard_cuts_the_last_trial_only(model: mujoco.MjModel, tmp_path: Path) -> None:
    with ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr", block_frames=4) as recorder:
        record_trial(recorder, model, 21)
        recorder.reset()
        record_trial(recorder, model, 45)
        recorder.reset(discard=True)
        record_trial(recorder, model, 9)
        kept = recorder.trajectory
    assert kept.n_frames == 3
    ds = ft.open_dataset(tmp_path / "a.zarr")
    assert ds.episode.values.tolist() == [[0] * 6 + [1] * 3]
    assert np.array_equal(ds.qpos.values[0, 6:], kept.qpos)
    files = {
        path.relative_to(tmp_path / "a.zarr" / "qpos").as_posix()
        for path in (tmp_path / "a.zarr" / "qpos").rglob("*")
    }
    assert files == {"zarr.json", "c.0.0.0", "c.0.1.0", "c.0.2.0"}


def test_appending_in_a_later_run_is_a_new_episode(model: mujoco.MjModel, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    runs = []
    for _ in range(3):
        with ft.TrajectoryRecorder(model, store=path, mode="a", block_frames=4) as recorder:
            record_trial(recorder, model, 25)
            runs.append(recorder.trajectory)
    assert [run.n_frames for run in runs] == [7, 7, 7]
    ds = ft.open_dataset(path)
    assert ds.episode.values.tolist() == [[0] * 7 + [1] * 7 + [2] * 7]
    assert np.array_equal(ds.qpos.values[0], np.concatenate([run.qpos for run in runs]))
    np.testing.assert_allclose(np.diff(ds.time.values), 0.008)


def test_appending_needs_the_same_model_worlds_fields_clock_and_dtype(
    model: mujoco.MjModel, tmp_path: Path
) -> None:
    path = tmp_path / "a.zarr"
    with ft.BatchTrajectoryRecorder(model, 2, store=path, fields=("qvel",)) as recorder:
        recorder.record_as_needed([mujoco.MjData(model)] * 2)
    other = testing.pendulum().compile()
    same: dict[str, Any] = {"store": path, "mode": "a", "fields": ("qvel",)}
    with pytest.raises(ModelMismatchError, match="another model"):
        ft.BatchTrajectoryRecorder(other, 2, **same)
    with pytest.raises(InvalidArgumentError, match="other worlds"):
        ft.BatchTrajectoryRecorder(model, 3, **same)
    with pytest.raises(InvalidArgumentError, match="'qvel'"):
        ft.BatchTrajectoryRecorder(model, 2, **(same | {"fields": ()}))
    with pytest.raises(InvalidArgumentError, match="clock"):
        ft.BatchTrajectoryRecorder(model, 2, output_fps=50, **same)
    with pytest.raises(InvalidArgumentError, match="float32"):
        ft.BatchTrajectoryRecorder(model, 2, dtype="float32", **same)
    assert ft.open_dataset(path).sizes["frame"] == 1


def test_modes(model: mujoco.MjModel, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    for mode, n_frames in (("w-", 1), ("w", 1), ("a", 2), ("w", 1)):
        with ft.TrajectoryRecorder(model, store=path, mode=mode) as recorder:  # type: ignore[arg-type]
            recorder.record_as_needed(mujoco.MjData(model))
        assert ft.open_dataset(path).sizes["frame"] == n_frames
    with pytest.raises(DatasetExistsError, match='mode="a"'):
        ft.TrajectoryRecorder(model, store=path)
    with pytest.raises(InvalidArgumentError, match="mode"):
        ft.TrajectoryRecorder(model, store=path, mode="r+")  # type: ignore[arg-type]


def test_a_folder_of_something_else_is_never_replaced(model: mujoco.MjModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    for mode in ("w", "a"):
        with pytest.raises(FormatError, match="left alone"):
            ft.TrajectoryRecorder(model, store=tmp_path, mode=mode)
    with pytest.raises(DatasetExistsError):
        ft.TrajectoryRecorder(model, store=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_replacing_keeps_the_old_dataset_until_the_first_frame(model: mujoco.MjModel, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    with ft.TrajectoryRecorder(model, store=path) as recorder:
        recorder.record_as_needed(mujoco.MjData(model))
    recorder = ft.TrajectoryRecorder(model, store=path, mode="w", fields=("qvel",))
    assert "qvel" not in ft.open_dataset(path)
    recorder.record_as_needed(mujoco.MjData(model))
    recorder.close()
    assert "qvel" in ft.open_dataset(path)


def test_a_recording_without_frames_is_a_valid_empty_dataset(model: mujoco.MjModel, tmp_path: Path) -> None:
    with (
        ft.BatchTrajectoryRecorder(model, 3, store=tmp_path / "a.zarr") as recorder,
        pytest.raises(NothingRecordedError),
    ):
        _ = recorder.trajectories
    ds = ft.open_dataset(tmp_path / "a.zarr")
    assert dict(ds.sizes)["frame"] == 0
    assert ds.qpos.values.shape == (3, 0, model.nq)
    assert len(ds.traj.episodes()) == 0


def test_one_writer_at_a_time(model: mujoco.MjModel, tmp_path: Path) -> None:
    first = ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr")
    with pytest.raises(DatasetLockedError, match="Another recorder"):
        ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr", mode="a")
    first.close()
    ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr", mode="a").close()


def test_a_recorder_of_a_refused_call_gives_the_store_back(model: mujoco.MjModel, tmp_path: Path) -> None:
    with pytest.raises(FieldNotFoundError):
        ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr", fields=("nothing",))
    assert not (tmp_path / "a.zarr").exists()
    ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr").close()


def test_after_close_nothing_is_recorded_silently(model: mujoco.MjModel, tmp_path: Path) -> None:
    data = mujoco.MjData(model)
    recorder = ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr")
    recorder.record_as_needed(data)
    recorder.close()
    recorder.close()
    assert recorder.trajectory.n_frames == 1
    with pytest.raises(RecorderClosedError):
        recorder.record_as_needed(data)
    with pytest.raises(RecorderClosedError):
        recorder.flush()


@pytest.mark.parametrize(
    ("worlds", "message"),
    [([], "At least one"), ([5], "World 5"), ([-1], "World -1"), ([0, 0], "twice"), ([0.5], "indices")],
)
def test_worlds_that_do_not_exist_are_named(model: mujoco.MjModel, worlds: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ft.BatchTrajectoryRecorder(model, 5, worlds=worlds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qpos": np.zeros((3, 1))}, r"qpos must have shape \(2, 13\).*found \(3, 1\)"),
        ({"time": np.zeros(3)}, r"time must be a number or of shape \(2,\), found shape \(3,\)"),
        ({"qpos": None}, "lack qpos"),
    ],
)
def test_arrays_that_do_not_fit_are_named(
    model: mujoco.MjModel, change: dict[str, Any], message: str
) -> None:
    data = {k: v for k, v in (arrays(model, 2, 0.0) | change).items() if v is not None}
    with pytest.raises(InvalidArgumentError, match=message):
        ft.BatchTrajectoryRecorder(model, 2).record_as_needed(data)


@pytest.mark.parametrize("data", ["text", 3, [], [1, 2], object()])
def test_what_is_no_source_is_named(model: mujoco.MjModel, data: Any) -> None:
    for recorder in (ft.BatchTrajectoryRecorder(model, 2), ft.TrajectoryRecorder(model)):
        with pytest.raises(InvalidArgumentError, match=r"Recorded are mujoco\.MjData"):
            recorder.record_as_needed(data)


def test_data_of_another_model_or_number_of_worlds_is_named(model: mujoco.MjModel) -> None:
    other = mujoco.MjData(testing.pendulum().compile())
    with pytest.raises(InvalidArgumentError, match="nq=1 and nmocap=0; the recorder's model has nq=13"):
        ft.TrajectoryRecorder(model).record_as_needed(other)
    with pytest.raises(InvalidArgumentError, match="3 worlds, found 1"):
        ft.BatchTrajectoryRecorder(model, 3).record_as_needed([mujoco.MjData(model)])
    with pytest.raises(InvalidArgumentError, match="3 worlds, the batch has 2"):
        ft.BatchTrajectoryRecorder(model, 3).record_as_needed(batch.Batch(model, 2))


def test_channels_must_be_the_ones_declared(model: mujoco.MjModel) -> None:
    recorder = ft.TrajectoryRecorder(model, channels={"reward": ((), "f4")})
    data = mujoco.MjData(model)
    with pytest.raises(InvalidArgumentError, match=r"channels reward are handed over; found \(none\)"):
        recorder.record_as_needed(data)
    with pytest.raises(InvalidArgumentError, match="found reward, other"):
        recorder.record_as_needed(data, reward=1.0, other=2.0)
    with pytest.raises(InvalidArgumentError, match=r"reward must have shape \(1,\)"):
        recorder.record_as_needed(data, reward=[1.0, 2.0])
    for values in (["a"], [None], [1j]):
        with pytest.raises(InvalidArgumentError, match="reward must be an array of numbers, found"):
            recorder.record_as_needed(data, reward=values)
    assert recorder.record_as_needed(data, reward=1.0)
    assert recorder.stats.frames == 1


@pytest.mark.parametrize("channels", ["reward", {"reward": ()}, {"reward": "f4"}, {"reward": (3, "f4")}])
def test_malformed_channels_are_refused(model: mujoco.MjModel, channels: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="shape of one world's value, dtype"):
        ft.TrajectoryRecorder(model, channels=channels)


@pytest.mark.parametrize("dtype", ["int32", "bool", "S4", "complex64", "longdouble", "banana", object])
def test_coordinates_are_stored_as_floating_point_numbers(model: mujoco.MjModel, dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dtype"):
        ft.TrajectoryRecorder(model, dtype=dtype)


@pytest.mark.parametrize("dtype", ["S4", "complex64", "longdouble", "banana", object])
def test_channels_hold_numbers_that_can_be_stored(model: mujoco.MjModel, dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="Channel 'reward'"):
        ft.TrajectoryRecorder(model, channels={"reward": ((), dtype)})


def test_begin_episode_by_hand(model: mujoco.MjModel, tmp_path: Path) -> None:
    data = arrays(model, 3, 0.0)
    with ft.BatchTrajectoryRecorder(model, 3, worlds=[2, 0], store=tmp_path / "a") as recorder:
        for step in range(3):
            recorder.begin_episode([0] if step == 1 else None)
            recorder.record_as_needed(data | {"time": step * 0.008})
        with pytest.raises(FieldNotFoundError, match="World 1 is not recorded"):
            recorder.begin_episode([1])
    assert ft.open_dataset(tmp_path / "a").episode.values.tolist() == [[0, 0, 1], [0, 1, 2]]


def test_a_recorder_that_is_dropped_or_left_open_commits(model: mujoco.MjModel, tmp_path: Path) -> None:
    recorder = ft.TrajectoryRecorder(model, store=tmp_path / "a.zarr")
    recorder.record_as_needed(mujoco.MjData(model))
    del recorder
    assert ft.open_dataset(tmp_path / "a.zarr").sizes["frame"] == 1
    code = (
        "import flytraj as ft, mujoco; from flytraj import testing;"
        "m = testing.pendulum().compile();"
        f"r = ft.TrajectoryRecorder(m, store={str(tmp_path / 'b.zarr')!r});"
        "r.record_as_needed(mujoco.MjData(m))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert ft.open_dataset(tmp_path / "b.zarr").sizes["frame"] == 1
    assert not (tmp_path / "b.zarr" / ".flytraj").exists()
