from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from flytraj import testing

ALL = [testing.pendulum, testing.tiny_model, testing.nameless_model, testing.mesh_model]


@pytest.mark.parametrize("make", ALL)
def test_model_moves_and_stays_finite(make: Callable[[], mujoco.MjSpec]) -> None:
    model = make().compile()
    data = mujoco.MjData(model)
    data.qvel[:] = 0.5
    start = data.qpos.copy()
    mujoco.mj_step(model, data, nstep=200)
    assert np.isfinite(data.qpos).all()
    assert np.abs(data.qpos - start).max() > 0.01
    assert data.warning.number.sum() == 0


def test_tiny_model_has_every_joint_type_a_mocap_body_and_touches_the_floor() -> None:
    model = testing.tiny_model().compile()
    assert sorted(model.jnt_type.tolist()) == sorted(
        int(kind) for kind in mujoco.mjtJoint.__members__.values()
    )
    assert (model.nq, model.nv, model.nmocap, model.ncam, model.nu, model.nsensordata) == (13, 11, 1, 2, 2, 4)
    assert (model.ntendon, model.nsite, model.nlight) == (1, 2, 1)
    assert model.cam_mode.tolist() == [
        mujoco.mjtCamLight.mjCAMLIGHT_FIXED,
        mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
    ]
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=300)
    assert data.ncon > 0


def test_nameless_model_has_no_names() -> None:
    model = testing.nameless_model().compile()
    kinds = {mujoco.mjtObj.mjOBJ_JOINT: model.njnt, mujoco.mjtObj.mjOBJ_CAMERA: model.ncam}
    for kind, count in kinds.items():
        assert count == 2
        assert [mujoco.mj_id2name(model, kind, i) or "" for i in range(count)] == ["", ""]
    assert (model.nq, model.nmocap) == (8, 1)


def test_each_call_makes_a_new_spec() -> None:
    first = testing.pendulum()
    first.delete(first.camera("front"))
    assert testing.pendulum().compile().ncam == 1


@pytest.mark.slow
def test_models_run_on_mujoco_warp() -> None:
    import mujoco_warp
    import warp

    with warp.ScopedDevice("cpu"):
        for make in ALL:
            model = make().compile()
            data = mujoco.MjData(model)
            mujoco.mj_forward(model, data)
            warp_model = mujoco_warp.put_model(model)
            warp_data = mujoco_warp.put_data(model, data, nworld=2)
            mujoco_warp.step(warp_model, warp_data)
            assert np.isfinite(warp_data.qpos.numpy()).all()
