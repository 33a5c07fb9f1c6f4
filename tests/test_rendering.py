"""Rendering: pixels, cameras, modes, batches, errors. What needs no OpenGL runs on either backend."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest

from flytraj.errors import FieldNotFoundError, FlytrajError, InvalidArgumentError, ModelMismatchError
from flytraj.rendering import (
    FreeCamera,
    iter_frames,
    render_trajectories,
    resolve_camera_ids,
    update_render_geometry,
)
from flytraj.rendering.frames import ClipReader, Segment, pack, whole
from flytraj.testing import nameless_model, pendulum, tiny_model
from flytraj.trajectory import RecordedTrajectory
from tests.rendering_parts import RES, opengl, record, render_live, still

CAMERAS = ["fixed", "tracking"]

BALL = """
<mujoco>
  <visual><map znear="0.01" zfar="10"/><global fovy="45"/></visual>
  <statistic extent="2" center="0 0 0"/>
  <worldbody>
    <light pos="0 -3 0" dir="0 1 0"/>
    <camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1" fovy="45"/>
    <camera name="flat" pos="0 -2 0" xyaxes="1 0 0 0 0 1" projection="orthographic" fovy="2"/>
    <camera name="oblique" pos="1.2 -0.9 1.3" xyaxes="0.6 0.8 0 -0.8 0.6 1.5"/>
    <body name="ball" pos="0 0 0"><joint type="slide" axis="1 0 0"/><geom name="ball" size="0.3"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return tiny_model().compile()


@pytest.fixture(scope="module")
def ball() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(BALL)


@opengl
def test_replayed_pixels_are_live_pixels(model: mujoco.MjModel) -> None:
    trajectories = [record(model, 9, world_id=3), record(model, 14, world_id=8)]
    frames = render_trajectories(model, trajectories, CAMERAS, camera_res=RES, backend="opengl")
    assert [list(by_camera) for by_camera in frames] == [CAMERAS, CAMERAS]
    for trajectory, by_camera in zip(trajectories, frames):
        for camera in CAMERAS:
            assert by_camera[camera].dtype == np.uint8
            np.testing.assert_array_equal(by_camera[camera], render_live(model, trajectory, camera))
    assert (frames[0]["fixed"][0] != frames[0]["fixed"][-1]).any()
    assert (frames[0]["fixed"][0] != frames[0]["tracking"][0]).any()


@opengl
def test_scene_option_is_heeded_and_not_changed() -> None:
    spec = tiny_model()
    spec.geom("torso").group = 1
    model = spec.compile()
    option = mujoco.MjvOption()
    option.geomgroup[1] = 0
    option.flags[mujoco.mjtVisFlag.mjVIS_TRANSPARENT] = True
    before = (option.geomgroup.copy(), option.flags.copy(), option.frame)
    trajectory = record(model, 2)
    shown = render_trajectories(model, trajectory, "fixed", camera_res=RES)[0]["fixed"]
    hidden = render_trajectories(model, trajectory, "fixed", camera_res=RES, scene_option=option)[0]["fixed"]
    assert (shown != hidden).any()
    np.testing.assert_array_equal(hidden, render_live(model, trajectory, "fixed", option))
    for old, new in zip(before, (option.geomgroup, option.flags, option.frame)):
        np.testing.assert_array_equal(old, new)


@opengl
def test_a_draft_leaves_the_model_alone_and_the_shadow_out(model: mujoco.MjModel) -> None:
    trajectory = record(model, 1)
    samples = model.vis.quality.offsamples
    assert samples > 0
    normal, draft = (
        render_trajectories(model, trajectory, "fixed", camera_res=(240, 320), quality=quality)[0]["fixed"][0]
        for quality in ("normal", "draft")
    )
    assert model.vis.quality.offsamples == samples
    brighter = draft.astype(int).mean(axis=2) - normal.astype(int).mean(axis=2)
    assert 100 < (brighter > 20).sum() < 3000  # where the shadow was
    assert (np.abs(brighter) < 2).mean() > 0.9


@pytest.mark.parametrize("backend", [pytest.param("opengl", marks=opengl), "warp"])
def test_depth_is_metres_along_the_axis(ball: mujoco.MjModel, backend: Any) -> None:
    """By hand: the ball's near side is 2 - 0.3 m away; where nothing is, the far plane, 10 extents of 2 m."""
    frames = render_trajectories(
        ball, still(ball), ["front", "flat"], camera_res=(51, 51), mode="depth", backend=backend
    )[0]
    for camera in ("front", "flat"):
        depth = frames[camera]
        assert depth.shape == (1, 51, 51)
        assert depth.dtype == np.float32
        assert depth[0, 25, 25] == pytest.approx(1.7, abs=2e-3)
        assert depth[0, 0, 0] == pytest.approx(20, rel=1e-4)
    # At 0.2 m from the centre the ball's surface is sqrt(0.3² - 0.2²) in front of it; a pixel is 2 m / 51.
    column = 25 + round(0.2 / (2 / 51))
    x = (column - 25) * 2 / 51
    assert frames["flat"][0, 25, column] == pytest.approx(2 - np.sqrt(0.09 - x * x), abs=5e-3)


@pytest.mark.parametrize("backend", [pytest.param("opengl", marks=opengl), "warp"])
def test_segmentation_is_number_and_type(ball: mujoco.MjModel, backend: Any) -> None:
    pixels = render_trajectories(
        ball, still(ball), "front", camera_res=(51, 51), mode="segmentation", backend=backend
    )[0]["front"]
    assert pixels.shape == (1, 51, 51, 2)
    assert pixels.dtype == np.int32
    assert pixels[0, 25, 25].tolist() == [ball.geom("ball").id, int(mujoco.mjtObj.mjOBJ_GEOM)]
    assert pixels[0, 0, 0].tolist() == [-1, -1]
    # Half the height of the picture is tan(22.5°) at 1 m; the ball's edge is seen at tan(asin(0.3 / 2)).
    radius = 25.5 * np.tan(np.arcsin(0.15)) / np.tan(np.pi / 8)
    assert (pixels[0, ..., 0] >= 0).sum() == pytest.approx(np.pi * radius**2, rel=0.05)


@opengl
def test_a_frame_may_be_larger_than_the_models_buffer() -> None:
    model = pendulum().compile()
    assert model.vis.global_.offwidth == 640
    frames = render_trajectories(model, still(model), "front", camera_res=(600, 900), mode="segmentation")[0][
        "front"
    ]
    rows, columns = np.nonzero(frames[0, ..., 0] >= 0)
    # The rod hangs from the centre of the picture: 0.5 m seen from 2 m, half the height being tan(22.5°).
    assert columns.mean() == pytest.approx(449.5, abs=1)
    assert int(np.max(rows)) == pytest.approx(300 + 300 * 0.53 / 2 / np.tan(np.pi / 8), abs=3)


@pytest.mark.parametrize("backend", [pytest.param("opengl", marks=opengl), "warp"])
def test_a_free_camera_sees_what_a_fixed_one_at_its_place_sees(ball: mujoco.MjModel, backend: Any) -> None:
    """`oblique` looks from (1.2, -0.9, 1.3) along (-1.2, 0.9, -1)/1.8…: the same as this free camera."""
    forward = -np.cross([0.6, 0.8, 0], ball.cam_mat0[2].reshape(3, 3)[:, 1])
    free = FreeCamera(
        lookat=tuple(np.array([1.2, -0.9, 1.3]) + 1.5 * forward),
        distance=1.5,
        azimuth=np.degrees(np.arctan2(forward[1], forward[0])),
        elevation=np.degrees(np.arcsin(forward[2])),
    )
    frames = render_trajectories(
        ball, still(ball), ["oblique", free], camera_res=(61, 81), mode="depth", backend=backend
    )[0]
    assert list(frames) == ["oblique", "free"]
    seen = frames["oblique"] < 19
    assert 100 < seen.sum() < 3000
    assert (seen != (frames["free"] < 19)).sum() < 5
    both = seen & (frames["free"] < 19)
    np.testing.assert_allclose(frames["free"][both], frames["oblique"][both], atol=0.02)


@pytest.mark.parametrize("backend", [pytest.param("opengl", marks=opengl), "warp"])
def test_a_tracking_camera_keeps_the_body_in_the_centre(ball: mujoco.MjModel, backend: Any) -> None:
    trajectory = RecordedTrajectory(np.arange(3) / 25, np.array([[0.0], [4.0], [-7.0]]), 25, 1.0)
    cameras = [FreeCamera(track="ball", distance=3, name="follow"), FreeCamera(distance=3, name="stay")]
    frames = render_trajectories(
        ball, trajectory, cameras, camera_res=(31, 31), mode="segmentation", backend=backend
    )[0]
    assert (frames["follow"][:, 15, 15, 0] == 0).all()
    assert frames["stay"][:, 15, 15, 0].tolist() == [0, -1, -1]
    assert (frames["follow"][0] == frames["follow"][1]).mean() > 0.99


def test_a_model_without_cameras_can_be_seen() -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
    frames = render_trajectories(model, still(model), FreeCamera(), camera_res=(31, 31), mode="depth")[0][
        "free"
    ]
    assert frames[0, 15, 15] < frames[0, 0, 0]
    with pytest.raises(InvalidArgumentError, match=r"'top' not found .* It has: none\. FreeCamera\(\)"):
        render_trajectories(model, still(model), "top")


def test_camera_ids() -> None:
    spec = tiny_model()
    model = spec.compile()
    assert resolve_camera_ids(model, "tracking") == {"tracking": 1}
    assert resolve_camera_ids(model, spec.camera("fixed")) == {"fixed": 0}
    assert list(resolve_camera_ids(model, ["tracking", 0, "tracking"]).items()) == [
        ("tracking", 1),
        ("fixed", 0),
    ]
    assert resolve_camera_ids(model, FreeCamera(name="mine")) == {"mine": -1}
    assert resolve_camera_ids(nameless_model().compile(), [1]) == {"camera1": 1}
    for wrong, words in [
        ("side", r"'side' not found in the model\. It has: fixed, tracking\."),
        ([], "At least one camera"),
        (2, r"Camera 2 not found in the model\. It has: fixed, tracking\."),
        ([None], "found NoneType"),
        ([FreeCamera(), FreeCamera(azimuth=3)], "named 'free'"),
    ]:
        with pytest.raises(ValueError, match=words):
            resolve_camera_ids(model, wrong)
    with pytest.raises(FieldNotFoundError, match="'tail'"):
        resolve_camera_ids(model, FreeCamera(track="tail"))


def test_geometry_is_that_of_a_forward_pass(model: mujoco.MjModel) -> None:
    data, other = mujoco.MjData(model), mujoco.MjData(model)
    data.qvel[:] = 1
    mujoco.mj_step(model, data, 20)
    other.qpos[:], other.mocap_pos[:], other.mocap_quat[:] = data.qpos, data.mocap_pos, data.mocap_quat
    stale = data.xpos.copy()
    update_render_geometry(model, other)
    mujoco.mj_forward(model, data)
    assert np.abs(stale - other.xpos).max() > 1e-4
    for name in (
        "xpos",
        "geom_xpos",
        "geom_xmat",
        "site_xpos",
        "cam_xpos",
        "cam_xmat",
        "light_xpos",
        "wrap_xpos",
    ):
        np.testing.assert_array_equal(getattr(other, name), getattr(data, name), err_msg=name)


def test_wrong_arguments_are_refused_before_anything_is_rendered(model: mujoco.MjModel) -> None:
    trajectory = record(model, 2)
    other = record(pendulum().compile(), 2)
    cases: list[tuple[Any, str, dict[str, Any]]] = [
        (ModelMismatchError, "nq=1 and nmocap=0", {"trajectories": other}),
        (ModelMismatchError, "nq=1 and nmocap=0", {"trajectories": [trajectory, other]}),
        (InvalidArgumentError, "No trajectories", {"trajectories": []}),
        (InvalidArgumentError, "found int", {"trajectories": [1]}),
        (InvalidArgumentError, "found str", {"trajectories": "a.npz"}),
        (InvalidArgumentError, "camera_res", {"camera_res": (0, 10)}),
        (InvalidArgumentError, "camera_res", {"camera_res": 240}),
        (InvalidArgumentError, "camera_res", {"camera_res": (240, 320.0)}),
        (InvalidArgumentError, "mode must be one of rgb, depth", {"mode": "normals"}),
        (InvalidArgumentError, "quality must be one of", {"quality": "good"}),
        (InvalidArgumentError, "backend must be auto", {"backend": "vulkan"}),
        (InvalidArgumentError, "at least one frame", {"frames_per_batch": 0}),
    ]
    for error, words, arguments in cases:
        with pytest.raises(error, match=words):
            iter_frames(**{"mj_model": model, "trajectories": trajectory, "cameras": "fixed", **arguments})
    with pytest.raises(InvalidArgumentError, match="mode='depth'"):
        render_trajectories(model, trajectory, "fixed", "out.mp4", mode="depth")


def test_flygyms_own_class_will_do(model: mujoco.MjModel) -> None:
    @dataclass
    class Recorded:
        time: Any
        qpos: Any
        output_fps: int
        playback_speed: float
        world_id: int = 0
        mocap_pos: Any = None
        mocap_quat: Any = None

        @property
        def n_frames(self) -> int:
            return len(self.qpos)

    mine = record(model, 2)
    theirs = Recorded(**vars(mine))
    frames = [render_trajectories(model, t, "fixed", camera_res=RES)[0]["fixed"] for t in (mine, theirs)]
    np.testing.assert_array_equal(frames[0], frames[1])


class _Counting:
    """A clip that notes what is read of it."""

    def __init__(self, trajectory: RecordedTrajectory) -> None:
        self.trajectory, self.reads = trajectory, list[tuple[int, int]]()
        self.world_id, self.n_frames, self.output_fps = 5, trajectory.n_frames, trajectory.output_fps
        self.nq, self.nmocap = trajectory.nq, trajectory.nmocap

    def read(self, start: int, stop: int) -> RecordedTrajectory:
        self.reads.append((start, stop))
        return self.trajectory.read(start, stop)


class _View:
    """What a renderer asks of a view of a dataset: an accessor with clips and a check."""

    def __init__(self, clips: list[Any], error: FlytrajError | None = None) -> None:
        def check_model(model: mujoco.MjModel) -> None:
            if error is not None:
                raise error

        self.traj = SimpleNamespace(clips=lambda: clips, check_model=check_model)


def test_a_view_is_read_as_it_goes_and_each_frame_once(model: mujoco.MjModel) -> None:
    clips = [_Counting(still(model, 600)), _Counting(still(model, 3))]
    frames = iter_frames(
        model, _View(clips), "fixed", camera_res=(4, 4), frames_per_batch=50, quality="draft"
    )
    assert clips[0].reads == []
    first = next(frames)
    assert (first.index, first.world_id, first.start, len(first.time)) == (0, 5, 0, 50)
    assert clips[0].reads == [(0, 256)]
    assert [(b.index, b.start, len(b.time)) for b in frames][-2:] == [(0, 550, 50), (1, 0, 3)]
    assert clips[0].reads == [(0, 256), (256, 512), (512, 600)]
    assert clips[1].reads == [(0, 3)]


def test_a_view_of_another_model_is_refused(model: mujoco.MjModel) -> None:
    view = _View([_Counting(still(model))], ModelMismatchError("joint 3"))
    with pytest.raises(ModelMismatchError, match="joint 3"):
        render_trajectories(model, view, "fixed")


def test_batches_join_and_cut_segments() -> None:
    clips: Any = [SimpleNamespace(n_frames=n) for n in (5, 0, 2, 4)]
    batches = [[tuple(segment) for segment in batch] for batch in pack(whole(clips), 4)]
    assert batches == [[(0, 0, 4)], [(0, 4, 5), (2, 0, 2), (3, 0, 1)], [(3, 1, 4)]]


def test_states_of_several_clips_are_joined_and_mocap_too(model: mujoco.MjModel) -> None:
    a, b = record(model, 6, 1), record(model, 5, 2)
    states = ClipReader([a, b], hold=2).read([Segment(0, 4, 6), Segment(1, 0, 3)])
    np.testing.assert_array_equal(states.qpos, np.concatenate([a.qpos[4:6], b.qpos[:3]]))
    assert states.mocap_quat is not None
    assert a.mocap_quat is not None
    assert b.mocap_quat is not None
    np.testing.assert_array_equal(states.mocap_quat, np.concatenate([a.mocap_quat[4:6], b.mocap_quat[:3]]))
    np.testing.assert_array_equal(states.time, np.concatenate([a.time[4:6], b.time[:3]]))


def test_memory_does_not_grow_with_frames(model: mujoco.MjModel) -> None:
    def peak(n_frames: int) -> int:
        trajectory = still(model, n_frames)
        tracemalloc.start()
        for _ in iter_frames(model, trajectory, CAMERAS, camera_res=(60, 80), quality="draft"):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(8)
    assert abs(peak(240) - peak(24)) < 200_000  # a frame has 14400 bytes a camera


def test_an_unfinished_generator_can_be_closed(model: mujoco.MjModel) -> None:
    for _ in range(3):
        frames: Iterator[Any] = iter_frames(model, still(model, 40), "fixed", camera_res=RES, quality="draft")
        next(frames)
        frames.close()  # type: ignore[attr-defined]


def test_no_frames_are_no_frames(model: mujoco.MjModel) -> None:
    frames = render_trajectories(model, record(model, 2).read(0, 0), "fixed", camera_res=RES)
    assert frames[0]["fixed"].shape == (0, *RES, 3)
