"""Rendering on MuJoCo Warp, on its CPU device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from flytraj.errors import InvalidArgumentError, ModelMismatchError, RenderError
from flytraj.rendering import FreeCamera, render_trajectories
from flytraj.rendering.warp import (
    prepare_for_batch_rendering,
    render_trajectories_gpu,
    update_render_geometry_gpu,
)
from flytraj.testing import mesh_model, pendulum, tiny_model
from tests.rendering_parts import RES, opengl, read_video, record, similarity, still

CAMERAS = ["fixed", "tracking"]

CUBE = """
<mujoco>
  <asset>
    <texture name="dice" type="cube" builtin="flat" width="8" height="8" rgb1="1 0.5 0" rgb2="1 0.5 0"/>
    <texture name="checks" type="2d" builtin="checker" width="8" height="8" rgb1="1 1 1" rgb2="0 0 0"/>
    <material name="dice" texture="dice" rgba="1 1 0.5 1"/>
    <material name="checks" texture="checks"/>
  </asset>
  <worldbody>
    <light pos="0 -3 3" dir="0 1 -1"/>
    <camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
    <geom type="plane" size="2 2 .1" pos="0 0 -.4" material="checks"/>
    <body><freejoint/><geom name="die" type="box" size=".3 .3 .3" material="dice"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return tiny_model().compile()


@opengl
@pytest.mark.parametrize("spec", [tiny_model, mesh_model, pendulum])
def test_it_looks_as_on_opengl(spec: Any) -> None:
    model = spec().compile()
    trajectory = record(model, 6, world_id=1)
    cameras = [model.camera(i).name for i in range(model.ncam)]
    options: dict[str, Any] = {"camera_res": (120, 160), "quality": "draft"}
    theirs = render_trajectories(model, trajectory, cameras, backend="opengl", **options)[0]
    ours = render_trajectories(model, trajectory, cameras, backend="warp", **options)[0]
    for camera in cameras:
        for a, b in zip(theirs[camera], ours[camera]):
            rows, columns = (np.flatnonzero(a.any(axis=(i, 2))) for i in (1, 0))  # not the black around it
            part = tuple(slice(max(0, x[0] - 8), x[-1] + 9) for x in (rows, columns))
            assert similarity(a[part], b[part]) >= 0.9
            assert similarity(a[part], np.roll(b, 5, axis=1)[part]) < 0.9


@opengl
def test_shadows_fall_as_on_opengl(model: mujoco.MjModel) -> None:
    trajectory = record(model, 1)
    pictures = {
        (backend, quality): render_trajectories(
            model, trajectory, "fixed", camera_res=(120, 160), backend=backend, quality=quality
        )[0]["fixed"][0].astype(int).mean(axis=2)
        for backend in ("opengl", "warp")
        for quality in ("normal", "draft")
    }  # fmt: skip
    shadows = [pictures[b, "draft"] - pictures[b, "normal"] > 15 for b in ("opengl", "warp")]
    assert 50 < shadows[0].sum() < 1000
    assert (shadows[0] & shadows[1]).sum() > 0.7 * (shadows[0] | shadows[1]).sum()


def test_batches_mix_trajectories_and_the_last_is_partial(model: mujoco.MjModel) -> None:
    trajectories = [record(model, 5, 1), record(model, 2, 2), record(model, 4, 3)]
    one, four = (
        render_trajectories_gpu(model, trajectories, CAMERAS, camera_res=RES, worlds_per_batch=n)
        for n in (1, 4)
    )
    assert [len(by_camera["fixed"]) for by_camera in four] == [5, 2, 4]
    for a, b in zip(one, four):
        for camera in CAMERAS:
            assert b[camera].dtype == np.uint8
            assert b[camera].shape == (len(a[camera]), *RES, 3)
            np.testing.assert_array_equal(a[camera], b[camera])
    assert (four[0]["fixed"][0] != four[1]["fixed"][0]).any()
    assert (four[0]["fixed"][0] != four[0]["fixed"][4]).any()


def test_cameras_come_in_the_order_asked_for(model: mujoco.MjModel) -> None:
    """Also a subset, and with free ones between: each is what it is alone."""
    trajectory = record(model, 2)
    free = FreeCamera(azimuth=30)
    together = render_trajectories_gpu(model, trajectory, ["tracking", free, "fixed"], camera_res=RES)[0]
    assert list(together) == ["tracking", "free", "fixed"]
    for camera, name in (("tracking", "tracking"), (free, "free"), ("fixed", "fixed")):
        alone = render_trajectories_gpu(model, trajectory, camera, camera_res=RES)[0]
        np.testing.assert_array_equal(together[name], alone[name])


def test_videos_and_errors_are_as_documented(model: mujoco.MjModel, tmp_path: Path) -> None:
    trajectory = record(model, 3)
    frames = render_trajectories_gpu(
        model, trajectory, "fixed", tmp_path / "v.mp4", camera_res=RES, device="cpu"
    )
    assert read_video(tmp_path / "v.mp4").frames.shape == frames[0]["fixed"].shape
    with pytest.raises(InvalidArgumentError, match="worlds_per_batch"):
        render_trajectories_gpu(model, trajectory, "fixed", worlds_per_batch=0)
    with pytest.raises(ModelMismatchError):
        render_trajectories_gpu(model, record(pendulum().compile(), 2), "fixed")
    with pytest.raises(ValueError, match="'side' not found"):
        render_trajectories_gpu(model, trajectory, "side")


def test_nothing_of_the_callers_is_changed(model: mujoco.MjModel) -> None:
    wp.config.log_level = wp.LOG_INFO
    before = (wp.config.log_level, wp.get_device(), model.opt.solver, model.mat_texid.tobytes())
    render_trajectories_gpu(model, still(model), "fixed", camera_res=RES)
    assert (wp.config.log_level, wp.get_device(), model.opt.solver, model.mat_texid.tobytes()) == before


def test_geom_groups_are_heeded() -> None:
    spec = tiny_model()
    spec.geom("torso").group = 1
    spec.geom("head").group = 4
    model = spec.compile()
    torso, head = model.geom("torso").id, model.geom("head").id
    option = mujoco.MjvOption()
    seen = []
    for groups in ((1, 1, 1, 0, 0, 0), (1, 0, 1, 0, 1, 0)):
        option.geomgroup[:] = groups
        seen.append(
            set(
                render_trajectories(
                    model, still(model), "fixed", backend="warp", mode="segmentation", scene_option=option
                )[0]["fixed"][..., 0].ravel()
            )
        )  # fmt: skip
    assert torso in seen[0]
    assert head not in seen[0]
    assert torso not in seen[1]
    assert head in seen[1]


def test_geometry_on_the_device_is_that_of_the_host(model: mujoco.MjModel) -> None:
    trajectory = record(model, 3)
    mjw_model, mjw_data = mjw.put_model(model), mjw.make_data(model, nworld=3)
    mjw_data.qpos.assign(trajectory.qpos)
    mjw_data.mocap_pos.assign(trajectory.mocap_pos)
    mjw_data.mocap_quat.assign(trajectory.mocap_quat)
    update_render_geometry_gpu(mjw_model, mjw_data)
    for world in range(3):
        data = mujoco.MjData(model)
        data.qpos[:] = trajectory.qpos[world]
        assert trajectory.mocap_pos is not None
        data.mocap_pos[:] = trajectory.mocap_pos[world]
        mujoco.mj_forward(model, data)
        for name in ("xpos", "cam_xpos", "light_xpos", "ten_length"):
            np.testing.assert_allclose(getattr(mjw_data, name).numpy()[world], getattr(data, name), atol=1e-5)


def test_physics_that_warp_lacks_is_no_matter() -> None:
    spec = tiny_model()
    spec.option.solver = mujoco.mjtSolver.mjSOL_PGS
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICIT
    spec.option.noslip_iterations = 3
    model = spec.compile()
    with pytest.raises(NotImplementedError):
        mjw.put_model(model)
    plain = tiny_model().compile()
    frames = [
        render_trajectories_gpu(m, still(plain), "fixed", camera_res=RES)[0]["fixed"] for m in (model, plain)
    ]
    np.testing.assert_array_equal(frames[0], frames[1])


def test_a_feature_that_cannot_be_taken_is_named() -> None:
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody><body name="block">
        <flexcomp name="soft" type="grid" count="3 3 3" spacing=".1 .1 .1" dim="3" dof="quadratic">
            <contact selfcollide="none"/></flexcomp>
        </body></worldbody></mujoco>"""
    )
    with pytest.raises(RenderError, match=r"Quadratic flex.*backend=\"opengl\""):
        render_trajectories_gpu(model, still(model), FreeCamera())


def test_cube_maps_give_way_to_their_colour() -> None:
    spec = mujoco.MjSpec.from_string(CUBE)
    model = spec.compile()
    assert prepare_for_batch_rendering(spec) is True
    prepared = spec.compile()
    die = prepared.material("dice")
    np.testing.assert_allclose(die.rgba, [1, 127.5 / 255, 0, 1], atol=3e-3)
    assert die.texid[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] == -1
    assert prepared.material("checks").texid[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] >= 0
    assert prepared.nq == model.nq
    assert prepare_for_batch_rendering(spec) is False
    assert prepare_for_batch_rendering(tiny_model()) is False
    assert prepare_for_batch_rendering(mesh_model()) is False
    frames = [
        render_trajectories_gpu(m, still(model), "front", camera_res=RES)[0]["front"]
        for m in (model, prepared)
    ]
    np.testing.assert_array_equal(frames[0], frames[1])
    red, green, blue = frames[0][0, 24, 32].astype(int)
    assert red > green > blue
