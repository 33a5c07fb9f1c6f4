from __future__ import annotations

import shlex
from pathlib import Path

import mujoco
import numpy as np
import pytest
import xarray as xr
from PIL import Image

import flytraj as ft
from flytraj.cli import run
from flytraj.demo import FlyWorlds, fly_spec
from flytraj.demo import worlds as worlds_module
from flytraj.demo.run import pick_worlds, record_demo, run_demo, what_is_left


def _run(model: mujoco.MjModel, n_worlds: int, seconds: float, seed: int = 0) -> tuple[FlyWorlds, np.ndarray]:
    """Worlds after a run, and their root heights and tilts at every step: (steps, worlds, 2)."""
    worlds = FlyWorlds(model, n_worlds, seed=seed)
    seen = []
    for _ in range(round(seconds / worlds.dt)):
        worlds.step()
        qpos = worlds._state.qpos
        seen.append(np.stack([qpos[:, 2], 1 - 2 * (qpos[:, 4] ** 2 + qpos[:, 5] ** 2)], axis=1))
    return worlds, np.array(seen)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return fly_spec().compile()


def test_fly_has_what_the_demo_promises(model: mujoco.MjModel) -> None:
    assert (model.nq, model.nmocap, model.ncam, model.nlight, model.nu) == (29, 1, 2, 1, 21)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=200)
    assert data.ncon >= 4


def test_a_careful_fly_reaches_its_lure(model: mujoco.MjModel) -> None:
    worlds = FlyWorlds(model, 8, seed=3)
    worlds.clumsiness[:] = 0
    worlds._restart_at[:] = np.inf
    worlds._restart(np.arange(8))
    nearest = np.full(8, np.inf)
    for _ in range(300):
        worlds.step()
        gap = worlds._state.qpos[:, :2] - worlds._state.mocap_pos[:, 0, :2]
        nearest = np.minimum(nearest, np.linalg.norm(gap, axis=1))
    assert np.median(nearest) < 0.2


def test_some_walk_and_some_tumble(model: mujoco.MjModel) -> None:
    _, seen = _run(model, 64, 3.0)
    assert np.isfinite(seen).all()
    ever_down = (seen[..., 1] < 0).any(axis=0)
    assert 5 < ever_down.sum() < 40
    assert seen[-1, :, 0].min() > 0.03
    assert seen[-1, :, 0].max() < 0.5


def test_worlds_restart_each_at_its_own_time(model: mujoco.MjModel) -> None:
    worlds = FlyWorlds(model, 16)
    if not worlds_module._has_batch():
        pytest.skip("world times are read from a Batch")
    time = worlds.source.bind("time")
    restarts = np.zeros(16, int)
    before = time.copy()
    alone = 0
    for _ in range(400):
        worlds.step()
        back = time < before
        restarts += back
        alone += back.sum() == 1
        before = time.copy()
    assert (restarts >= 1).all()
    assert alone > 8


def test_a_list_of_data_does_what_a_batch_does(
    model: mujoco.MjModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not worlds_module._has_batch():
        pytest.skip("needs mujoco.batch")
    batch, _ = _run(model, 4, 2.0)
    monkeypatch.setattr(worlds_module, "_has_batch", lambda: False)
    listed, _ = _run(model, 4, 2.0)
    assert len(listed.source) == 4
    np.testing.assert_allclose(listed._state.qpos, batch._state.qpos, rtol=0, atol=1e-6)


def test_the_recording_is_what_was_simulated(model: mujoco.MjModel, tmp_path: Path) -> None:
    record_demo(tmp_path / "demo.zarr", n_worlds=3, seconds=0.4)
    worlds = FlyWorlds(model, 3)
    seen = []
    for step in range(20):
        worlds.step()
        if step % 2 == 0:
            seen.append(worlds._state.qpos.copy())
    ds = ft.open_dataset(tmp_path / "demo.zarr")
    np.testing.assert_array_equal(ds["qpos"].transpose("frame", "world", "nq"), np.array(seen))


def _walk(upright: list[int], step: float) -> np.ndarray:
    """qpos of a fly that goes `step` metres a frame, on its feet (1) or on its back (0): (frames, 7)."""
    qpos = np.zeros((len(upright), 7))
    qpos[:, 0] = step * np.arange(len(upright))
    qpos[:, 3] = upright
    qpos[:, 4] = 1 - qpos[:, 3]
    return qpos


def test_the_worlds_picked_are_what_their_stories_say() -> None:
    qpos = np.stack(
        [
            _walk([1, 1, 1, 1, 1, 1], 0.5),
            _walk([0, 0, 0, 0, 0, 0], 0.9),
            _walk([0, 0, 1, 1, 1, 1], 0.1),
            _walk([1, 1, 1, 1, 1, 1], 0.0),
            _walk([0, 0, 0, 1, 1, 1], 0.0),
        ]
    )
    episode = np.zeros((5, 6), int)
    episode[3] = [0, 0, 1, 1, 2, 2]
    episode[4] = [0, 0, 0, 1, 1, 1]
    variables = {"qpos": (("world", "frame", "nq"), qpos), "episode": (("world", "frame"), episode)}
    ds = xr.Dataset(variables, {"world": [10, 11, 12, 13, 14]})
    assert pick_worlds(ds) == {
        10: "walked farthest after its lure: 2.5 m",
        11: "lay on its back for 100% of the time",
        12: "fell, got up, and stayed on its feet for 0.2 s",
        13: "was started 3 times",
    }


def test_a_dull_run_gets_no_made_up_stories() -> None:
    qpos = np.stack([_walk([1, 1, 1], step) for step in (0.1, 0.2, 0.3, 0.4, 0.5)])
    variables = {"qpos": (("world", "frame", "nq"), qpos), "episode": (("world", "frame"), np.zeros((5, 3)))}
    assert pick_worlds(xr.Dataset(variables, {"world": range(5)})) == {
        4: "walked farthest after its lure: 1.0 m",
        3: "walked 0.8 m",
        2: "walked 0.6 m",
        1: "walked 0.4 m",
    }


def test_nothing_is_said_to_be_left_where_nothing_is(tmp_path: Path) -> None:
    assert what_is_left(tmp_path) == "Nothing was recorded."


def test_nothing_that_is_there_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "demo.mp4").write_bytes(b"mine")
    with pytest.raises(ft.errors.DatasetExistsError, match=r"demo\.mp4.*--overwrite"):
        run_demo(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]


@pytest.mark.slow
def test_the_demo_ends_with_a_picture_a_video_and_advice_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    run_demo(Path("demo"), n_worlds=8, seconds=1.2, say=said.append)
    assert "30 frames of 8 worlds" in said[1]
    assert (tmp_path / "demo" / "demo.mp4").stat().st_size > 10_000
    with Image.open("demo/demo.png") as picture:
        assert picture.size == (4 * 400 + 6, 4 * 300 + 6)
        assert np.asarray(picture).std() > 20
    python, shell = said[-1].split("or in the shell:")
    exec("\n".join(line[4:] for line in python.splitlines() if line.startswith("    ")), {})
    assert Path("demo/above.mp4").stat().st_size > 10_000
    for line in shell.split("\n"):
        words = shlex.split(line)
        assert not words or words[0] == "flytraj"
        assert not words or run([*words[1:], *(["--draft"] if words[1] == "render" else [])]) == 0
    assert Path("demo/more.mp4").stat().st_size > 10_000
