"""Recording on Warp's simulations: bit for bit, in a captured graph, into the same files as on the CPU."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

import flytraj as ft
from flytraj import warp as ftw
from flytraj.errors import (
    FieldNotFoundError,
    InvalidArgumentError,
    MissingDependencyError,
    NothingRecordedError,
    RecorderClosedError,
    RingOverrunError,
)
from flytraj.testing import pendulum
from flytraj.warp import recorder as recorder_module
from tests.warp_parts import Counting, model_with_keys

FIELDS = ("qvel", "act", "ctrl", "xpos", "xquat", "xmat", "cvel", "sensordata", "tree_asleep", "eq_active")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return model_with_keys()


@wp.kernel(enable_backward=False)  # type: ignore[untyped-decorator]
def _move_target(time: wp.array[float], pos: wp.array2d[wp.vec3], quat: wp.array2d[wp.quat]) -> None:
    world = wp.tid()
    angle = time[world] * 3.0 + wp.float32(world)
    pos[world, 0] = wp.vec3(wp.sin(angle), wp.cos(angle), 0.5)
    quat[world, 0] = wp.quat(wp.cos(angle), 0.0, wp.sin(angle), 0.0)


class Simulation:
    """Worlds that fall differently, with a target that moves."""

    def __init__(self, mj_model: mujoco.MjModel, n_worlds: int) -> None:
        self.model = mjw.put_model(mj_model)
        self.data = mjw.make_data(mj_model, nworld=n_worlds)
        self.data.qvel.assign(np.random.default_rng(2).normal(size=(n_worlds, mj_model.nv)))

    def step(self) -> None:
        d = self.data
        wp.launch(_move_target, d.nworld, [d.time], [d.mocap_pos, d.mocap_quat])
        mjw.step(self.model, d)

    def reset(self, worlds: list[int], key: int | None = None) -> None:
        n = self.data.nworld
        if key is None:
            mask = wp.array([world in worlds for world in range(n)], dtype=bool)
            mjw.reset_data(self.model, self.data, mask)
        else:
            keys = wp.array([key if world in worlds else -1 for world in range(n)], dtype=int)
            mjw.reset_data_keyframe(self.model, self.data, keys)


def everything_in(folder: Path) -> dict[str, Any]:
    """Every file of a dataset, but for the time at which it was made."""
    files: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder))
            files[name] = path.read_bytes()
            if name == "zarr.json":
                files[name] = json.loads(files[name])
                del files[name]["attributes"]["flytraj"]["created"]
    return files


def test_a_captured_graph_gives_the_same_dataset(model: mujoco.MjModel, tmp_path: Path) -> None:
    def run(name: str, record: Callable[[Simulation, Any, int], None]) -> Path:
        simulation = Simulation(model, 5)
        with ftw.WarpTrajectoryRecorder(
            model, 5, worlds=[4, 0, 2], fields=FIELDS, store=tmp_path / name, ring_frames=9
        ) as recorder:
            for step in range(120):
                if step == 30:
                    simulation.reset([0, 1])
                if step == 53:
                    simulation.reset([4, 2, 3], key=2)
                record(simulation, recorder, step)
        return tmp_path / name

    graphs: list[Any] = []

    def by_step(simulation: Simulation, recorder: Any, step: int) -> None:
        simulation.step()
        recorder.record_as_needed(simulation.data)

    def by_graph(simulation: Simulation, recorder: Any, step: int) -> None:
        if not graphs:
            with wp.ScopedCapture() as capture:
                simulation.step()
                recorder.enqueue(simulation.data)
            graphs.append(capture.graph)
        wp.capture_launch(graphs[0])
        if step % 16 == 15:
            recorder.drain()

    by_step_files = everything_in(run("by_step.zarr", by_step))
    by_graph_files = everything_in(run("by_graph.zarr", by_graph))
    assert by_step_files == by_graph_files
    ds = ft.open_dataset(tmp_path / "by_graph.zarr")
    assert ds.sizes["frame"] == 30
    assert ds.episode.values[:, -1].tolist() == [1, 1, 1]
    assert len(np.unique(ds.qpos.values[:, :, 0])) > 60


def test_what_is_recorded_is_the_data_bit_for_bit(model: mujoco.MjModel, tmp_path: Path) -> None:
    worlds = [5, 0, 3]
    simulation = Simulation(model, 6)
    d = simulation.data
    channels = {
        "reward": ((), "float64"),
        "push": ((2, 3), "float32"),
        "count": ((), "int64"),
        "small": ((3,), "uint8"),
        "done": ((), "bool"),
    }
    rng = np.random.default_rng(0)
    expected: dict[str, list[Any]] = {}
    with ftw.WarpTrajectoryRecorder(
        model, 6, worlds=worlds, fields=FIELDS, channels=channels, store=tmp_path / "run.zarr"
    ) as recorder:
        for step in range(41):
            simulation.step()
            own = {
                "reward": wp.array(rng.normal(size=6), dtype=wp.float64),
                "push": wp.array(rng.normal(size=(6, 2, 3)), dtype=wp.vec3),
                "count": wp.array(rng.integers(2**60, size=6), dtype=wp.int64),
                "small": wp.array(rng.integers(255, size=(6, 3)), dtype=wp.uint8),
                "done": wp.array(rng.integers(2, size=6), dtype=bool),
            }
            due = recorder.record_as_needed(d, **own)
            assert due == (step % 4 == 0)
            if due:
                state = {name: getattr(d, name) for name in ("qpos", "mocap_pos", "mocap_quat", *FIELDS)}
                for name, array in (state | own).items():
                    expected.setdefault(name, []).append(array.numpy()[worlds])
        assert recorder.world_ids == worlds
    ds = ft.open_dataset(tmp_path / "run.zarr")
    assert ds.world.values.tolist() == worlds
    for name, frames in expected.items():
        values = np.stack(frames, axis=1)
        assert ds[name].dtype == (np.float32 if values.dtype == np.float32 else ds[name].dtype)
        assert np.array_equal(ds[name], values.reshape(ds[name].shape)), name


def test_the_dataset_is_like_any_other(model: mujoco.MjModel, tmp_path: Path) -> None:
    simulation = Simulation(model, 3)
    with ftw.WarpTrajectoryRecorder(model, 3, store=tmp_path / "run.zarr", dtype="float64") as recorder:
        for _ in range(60):
            simulation.step()
            recorder.record_as_needed(simulation.data)
        live = recorder.trajectories
    ds = ft.open_dataset(tmp_path / "run.zarr")
    part = ds.sel(world=[2, 0]).isel(frame=slice(3, 6))
    assert np.array_equal(part.qpos[0], live[2].qpos[3:6])
    paths = ft.export_npz(part, tmp_path)
    saved = ft.RecordedTrajectory.from_file(paths[1])
    assert (saved.world_id, saved.n_frames) == (0, 3)
    assert saved.qpos.dtype == np.float64
    assert np.array_equal(saved.qpos, live[0].qpos[3:6])
    frames = ft.render_trajectories(model, part, "fixed", camera_res=(24, 32), backend="warp")
    again = ftw.render_trajectories_gpu(model, live[2], "fixed", camera_res=(24, 32))
    assert np.array_equal(frames[0]["fixed"], again[0]["fixed"][3:6])


def test_resets_and_appending_go_as_on_the_cpu(model: mujoco.MjModel, tmp_path: Path) -> None:
    """One script of calls, on both recorders."""

    def script(make: Callable[..., Any], frame: Callable[[Counting], Any]) -> None:
        counting = Counting(model, 3)

        def run(recorder: Any, n_steps: int) -> list[bool]:
            due = []
            for _ in range(n_steps):
                counting.step()
                due.append(recorder.record_as_needed(frame(counting)))
            return due

        with make(mode="w-") as recorder:
            run(recorder, 10)
            recorder.reset(discard=True)
            run(recorder, 10)
            recorder.reset()
            assert run(recorder, 5) == [True, False, False, False, True]
            recorder.begin_episode([2])
            run(recorder, 6)
            recorder.reset(discard=True)
            counting.reset(slice(None))
            assert run(recorder, 3) == [True, False, False]
            recorder.begin_episode()
            counting.reset([0])
            run(recorder, 2)
            # Both: what the clock has seen, and what it is told.
            counting.reset([0])
            run(recorder, 1)
            recorder.begin_episode([2])
            run(recorder, 4)
            with pytest.raises(FieldNotFoundError, match="World 1 is not recorded"):
                recorder.begin_episode([1])
            assert [trajectory.n_frames for trajectory in recorder.trajectories] == [3, 3]
        with make(mode="a") as recorder:
            run(recorder, 9)

    def on_the_cpu(**options: Any) -> Any:
        return ft.BatchTrajectoryRecorder(
            model, 3, worlds=[2, 0], store=tmp_path / "cpu.zarr", dtype="float32", **options
        )

    def on_warp(**options: Any) -> Any:
        return ftw.WarpTrajectoryRecorder(model, 3, worlds=[2, 0], store=tmp_path / "warp.zarr", **options)

    def exact(counting: Counting) -> dict[str, Any]:
        names = ("qpos", "mocap_pos", "mocap_quat")
        return {"time": counting.times} | {name: getattr(counting.data, name).numpy() for name in names}

    script(on_the_cpu, exact)
    script(on_warp, lambda counting: counting.data)
    cpu, warp = (ft.open_dataset(tmp_path / f"{name}.zarr").load() for name in ("cpu", "warp"))
    assert warp.sizes == cpu.sizes
    assert warp.sizes["frame"] == 9
    for name in ("time", "sim_time"):
        np.testing.assert_allclose(warp[name], cpu[name], rtol=0, atol=1e-9)
    for name in ("episode", "qpos", "mocap_pos", "mocap_quat"):
        assert np.array_equal(warp[name], cpu[name]), name


def test_in_memory_a_reset_forgets(model: mujoco.MjModel) -> None:
    counting = Counting(model, 2)
    recorder = ftw.WarpTrajectoryRecorder(model, 2)
    with pytest.raises(NothingRecordedError):
        _ = recorder.trajectories
    for _ in range(9):
        counting.step()
        recorder.enqueue(counting.data)
    assert [trajectory.n_frames for trajectory in recorder.trajectories] == [3, 3]
    recorder.reset()
    with pytest.raises(NothingRecordedError):
        _ = recorder.trajectories
    counting.step()
    assert recorder.record_as_needed(counting.data)
    trajectory = recorder.trajectories[1]
    assert trajectory.world_id == 1
    assert trajectory.time.tolist() == [pytest.approx(0.02, abs=1e-12)]
    assert np.array_equal(trajectory.qpos, np.full((1, 13), 10))
    recorder.close()
    assert recorder.trajectories[0].n_frames == 1


def test_a_ring_that_overruns_says_how_often_to_drain(model: mujoco.MjModel) -> None:
    counting = Counting(model, 2)
    with ftw.WarpTrajectoryRecorder(model, 2, ring_frames=6) as recorder:

        def run(n_frames: int) -> None:
            for _ in range(4 * n_frames):
                recorder.enqueue(counting.data)
                counting.step()

        # Two frames between two calls are what is promised, however often.
        for _ in range(15):
            run(2)
            recorder.drain()
        run(8)
        with pytest.raises(RingOverrunError, match=r"holds 6.*at least every 2 frames, which are 8 steps"):
            recorder.flush()
        run(1)
        steps = recorder.trajectories[0].qpos[:, 0].astype(int) // 4
        kept = [*range(30), *range(30, 38), 38]
        lost = [step for step in kept if step not in steps]
        assert len(lost) >= 2
        assert steps.tolist() == [step for step in kept if step not in lost]
        assert set(lost) <= set(range(30, 38))
        run(20)
        with pytest.raises(RingOverrunError):
            recorder.flush()


def test_few_of_many_worlds_are_all_that_is_moved(
    model: mujoco.MjModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_worlds, worlds = 4096, list(range(7, 4096, 256))
    moved = 0
    copy = wp.copy

    def counted(
        dest: Any, src: Any, dest_offset: int = 0, src_offset: int = 0, count: int = 0, *args: Any
    ) -> None:
        nonlocal moved
        moved += (count or src.size) * wp.types.type_size_in_bytes(src.dtype)
        copy(dest, src, dest_offset, src_offset, count, *args)

    counting = Counting(model, n_worlds)
    with ftw.WarpTrajectoryRecorder(model, n_worlds, worlds=worlds, store=tmp_path / "run.zarr") as recorder:
        recorder.enqueue(counting.data)
        monkeypatch.setattr(wp, "copy", counted)
        monkeypatch.setattr(wp.array, "numpy", forbidden)
        for step in range(1, 400):
            counting.step()
            recorder.enqueue(counting.data)
            if step % 40 == 0:
                recorder.drain()
        monkeypatch.undo()
        monkeypatch.setattr(wp, "copy", counted)
        recorder.flush()
        assert recorder.stats.frames == 100
        stored = recorder.stats.bytes
    assert stored == 100 * (16 * (13 * 4 + 7 * 4 + 12) + 8)
    assert stored <= moved <= 1.1 * stored


def forbidden(*args: object, **kwargs: object) -> None:
    raise AssertionError("This waits for the device, or allocates.")


def test_enqueue_neither_waits_nor_allocates(model: mujoco.MjModel, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(model, 3)
    recorder = ftw.WarpTrajectoryRecorder(model, 3, worlds=[1], channels={"reward": ((), "float32")})
    reward = wp.zeros(3, dtype=float)
    for name in ("synchronize", "synchronize_device", "synchronize_stream", "synchronize_event"):
        monkeypatch.setattr(wp, name, forbidden)
    for name in ("copy", "zeros", "empty", "full", "clone"):
        monkeypatch.setattr(wp, name, forbidden)
    monkeypatch.setattr(wp.array, "numpy", forbidden)
    recorder.enqueue(counting.data, reward=reward)
    # From the second call on, it does not even make an array that shows memory in another way.
    monkeypatch.setattr(wp.array, "__init__", forbidden)
    for _ in range(20):
        counting.step()
        recorder.enqueue(counting.data, reward=reward)
    monkeypatch.undo()
    assert recorder.trajectories[0].n_frames == 6
    recorder.close()


def test_a_dropped_recorder_commits_what_is_on_the_device(model: mujoco.MjModel, tmp_path: Path) -> None:
    counting = Counting(model, 2)
    recorder = ftw.WarpTrajectoryRecorder(model, 2, store=tmp_path / "run.zarr")
    for _ in range(40):
        counting.step()
        recorder.enqueue(counting.data)
    del recorder
    gc.collect()
    assert ft.open_dataset(tmp_path / "run.zarr").sizes["frame"] == 10


def test_a_closed_recorder_says_so(model: mujoco.MjModel, tmp_path: Path) -> None:
    counting = Counting(model, 2)
    recorder = ftw.WarpTrajectoryRecorder(model, 2, store=tmp_path / "run.zarr")
    recorder.record_as_needed(counting.data)
    recorder.close()
    recorder.close()
    for call in (
        lambda: recorder.record_as_needed(counting.data),
        lambda: recorder.enqueue(counting.data),
        recorder.drain,
        recorder.flush,
        recorder.reset,
    ):
        with pytest.raises(RecorderClosedError):
            call()


def test_what_does_not_fit_is_named(model: mujoco.MjModel, tmp_path: Path) -> None:
    counting = Counting(model, 3)
    path = tmp_path / "run.zarr"
    with ftw.WarpTrajectoryRecorder(model, 3, channels={"push": ((2,), "float32")}) as recorder:
        for push, words in (
            (
                np.zeros((3, 2)),
                r"push must be a Warp array on \S+, float32 of shape \(3, 2\); found numpy.ndarray",
            ),
            (wp.zeros((3, 2), dtype=wp.float64), "found float64"),
            (wp.zeros((2, 2), dtype=float), r"found float32 of shape \(2, 2\)"),
            (wp.zeros((3, 4), dtype=float)[:, ::2], "not contiguous"),
        ):
            with pytest.raises(InvalidArgumentError, match=words):
                recorder.enqueue(counting.data, push=push)
        with pytest.raises(InvalidArgumentError, match=r"the channels push are handed over; found \(none\)"):
            recorder.record_as_needed(counting.data)
        assert recorder.record_as_needed(counting.data, push=wp.zeros((3, 4), dtype=float)[:, :2])
        assert recorder.record_as_needed(Counting(model, 3).data, push=wp.zeros(3, dtype=wp.vec2)) is False
    with ftw.WarpTrajectoryRecorder(model, 4) as recorder:
        with pytest.raises(
            InvalidArgumentError, match=r"time must .* shape \(4,\); found float32 of shape \(3,\)"
        ):
            recorder.enqueue(counting.data)
        with pytest.raises(InvalidArgumentError, match="time must be a Warp array"):
            recorder.enqueue(mujoco.MjData(model))
    with pytest.raises(FieldNotFoundError, match="no solver_fwdinv"):
        ftw.WarpTrajectoryRecorder(model, 3, fields=["solver_fwdinv"], store=path)
    with pytest.raises(InvalidArgumentError, match="ring_frames must be at least 4, found 3") as raised:
        ftw.WarpTrajectoryRecorder(model, 3, ring_frames=3, store=path)
    assert not path.exists()
    # Nothing holds the store, though the error still holds the recorder that failed.
    assert raised.traceback
    ftw.WarpTrajectoryRecorder(model, 3, store=path).close()


def test_a_feature_that_warp_refuses_is_named(tmp_path: Path) -> None:
    spec = pendulum()
    spec.option.solver = mujoco.mjtSolver.mjSOL_PGS
    with pytest.raises(InvalidArgumentError, match=r"MuJoCo Warp cannot simulate this model: .*mjSOL_PGS"):
        ftw.WarpTrajectoryRecorder(spec.compile(), 2, store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.skipif(wp.is_cuda_available(), reason="there is a CUDA device")
def test_that_it_runs_on_the_cpu_is_said_once(
    model: mujoco.MjModel, caplog: pytest.LogCaptureFixture
) -> None:
    recorder_module._tell_of_the_cpu.cache_clear()
    with caplog.at_level(logging.WARNING, "flytraj"):
        ftw.WarpTrajectoryRecorder(model, 2, device="cpu")
        assert not caplog.messages
        ftw.WarpTrajectoryRecorder(model, 2)
        ftw.WarpTrajectoryRecorder(model, 2)
    assert caplog.messages == ["Warp finds no CUDA device: the recorder runs on the CPU."]


@pytest.mark.parametrize("missing", ["warp", "mujoco_warp"])
def test_without_mujoco_warp_it_says_what_to_install(missing: str) -> None:
    program = f"""
import sys
from flytraj import warp
assert not {{"warp", "mujoco_warp"}} & set(sys.modules)
sys.modules[{missing!r}] = None
try:
    warp.WarpTrajectoryRecorder
except warp.MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        f"flytraj.warp.WarpTrajectoryRecorder needs {missing}, which is not installed: "
        "pip install mujoco-warp warp-lang"
    )
    assert issubclass(MissingDependencyError, ImportError)


def test_names_of_the_package() -> None:
    assert set(ftw.__all__) <= set(dir(ftw))
    for name in ftw.__all__:
        assert callable(getattr(ftw, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ftw.nothing
