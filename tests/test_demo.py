from __future__ import annotations

import mujoco
import numpy as np
import pytest

from flytraj.demo import FlyWorlds, fly_spec
from flytraj.demo import worlds as worlds_module


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
