"""Rendering on MuJoCo Warp's ray tracer: a batch of frames at a time, on CUDA or on the CPU.

It draws geoms and flexes; sites, tendons and skins are left out, and planes don't mirror.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, RenderError
from flytraj.rendering.scene import Camera, FreeCamera, body_id
from flytraj.rendering.settings import Quality, Settings
from flytraj.trajectory import RecordedTrajectory

__all__ = [
    "WarpRenderer",
    "prepare_for_batch_rendering",
    "render_trajectories_gpu",
    "update_render_geometry_gpu",
]

_CAMERA_FIELDS = (
    *("nrender", "cam_res", "ray", "ray_offset", "total_rays", "aa_accum", "has_orthographic_camera"),
    *("rgb_data", "rgb_adr", "render_rgb", "depth_data", "depth_adr", "render_depth"),
    *("seg_data", "seg_adr", "render_seg"),
)
_PHYSICS_OPTIONS = [
    "integrator",
    "solver",
    "cone",
    "jacobian",
    "disableflags",
    "enableflags",
    "noslip_iterations",
]


@wp.kernel  # type: ignore[untyped-decorator]
def _unpack(packed: wp.array2d[wp.uint32], rgb: wp.array3d[wp.uint8]) -> None:
    world, pixel = wp.tid()  # type: ignore[misc]
    value = packed[world, pixel]
    rgb[world, pixel, 0] = wp.uint8((value >> wp.uint32(16)) & wp.uint32(0xFF))
    rgb[world, pixel, 1] = wp.uint8((value >> wp.uint32(8)) & wp.uint32(0xFF))
    rgb[world, pixel, 2] = wp.uint8(value & wp.uint32(0xFF))


@wp.kernel  # type: ignore[untyped-decorator]
def _place_free_cameras(
    xpos: wp.array2d[wp.vec3],
    body: wp.array[wp.int32],
    offset: wp.array[wp.vec3],
    axes: wp.array[wp.mat33],
    first: int,
    cam_xpos: wp.array2d[wp.vec3],
    cam_xmat: wp.array2d[wp.mat33],
) -> None:
    world, camera = wp.tid()  # type: ignore[misc]
    cam_xpos[world, first + camera] = xpos[world, body[camera]] + offset[camera]
    cam_xmat[world, first + camera] = axes[camera]


def update_render_geometry_gpu(mjw_model: mjw.Model, mjw_data: mjw.Data) -> None:
    """Recompute on the device what a picture shows; see `flytraj.update_render_geometry`.

    Args:
        mjw_model: The model on the device.
        mjw_data: Its data, changed in place.
    """
    mjw.kinematics(mjw_model, mjw_data)
    mjw.com_pos(mjw_model, mjw_data)
    mjw.camlight(mjw_model, mjw_data)
    if mjw_model.nflex:
        mjw.flex(mjw_model, mjw_data)
    mjw.tendon(mjw_model, mjw_data)


class WarpRenderer:
    """Renders recorded states on MuJoCo Warp, as many at once as the batch has.

    Pixels come back as 3 bytes each, while the next batch is rendered.

    Args:
        mj_model: Compiled model; not modified.
        cameras: Cameras from `resolve_cameras`.
        settings: What to render, and how.
        device: Warp's name of the device; None takes Warp's default.

    Raises:
        RenderError: The ray tracer cannot take the model; the message names the feature.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        cameras: Mapping[str, int | FreeCamera],
        settings: Settings,
        device: str | None = None,
    ) -> None:
        self._settings = settings
        self._n_cameras = len(cameras)
        self._far = np.float32(mj_model.vis.map.zfar * mj_model.stat.extent)
        self._turn = 0
        with _warp_on(device) as self._device:
            self.batch_size = settings.batch_size(len(cameras), 32 if self._device.is_cuda else 8)
            mj_model = _without_physics(mj_model)
            try:
                self._model = mjw.put_model(mj_model)
                self._data = mjw.make_data(mj_model, nworld=self.batch_size, nconmax=0, njmax=0)
                self._context = _create_context(mj_model, cameras, settings, self.batch_size)
            except (NotImplementedError, ValueError) as error:
                raise RenderError(
                    f'Warp cannot render this model: {error} It can be drawn with backend="opengl", or with '
                    "the feature taken out of it."
                ) from error
            self._free = _free_cameras(mj_model, cameras, self._data)
            # Two of each: while one is copied to the host, the other is drawn to.
            self._pixels = [self._new_pixels(self._device) for _ in range(2)]
            pinned = self._device.is_cuda
            self._host = [self._new_pixels("cpu", pinned=True) for _ in range(2)] if pinned else self._pixels
            self._copies = wp.Stream(self._device) if pinned else None
            if pinned:
                wp.synchronize_device(self._device)

    def start(self, states: RecordedTrajectory) -> Callable[[], list[NDArray[Any]]]:
        """Begin to render recorded states.

        Args:
            states: The frames to render, at most `batch_size`.

        Returns:
            A function that waits for the frames and returns them, for each camera as `render_trajectories` has
            them. Call it before the second next `start`.
        """
        n_frames = states.n_frames
        turn, self._turn = self._turn, 1 - self._turn
        with _warp_on(self._device):
            _assign(self._data.qpos, states.qpos)
            if states.mocap_pos is not None and states.mocap_quat is not None:
                _assign(self._data.mocap_pos, states.mocap_pos)
                _assign(self._data.mocap_quat, states.mocap_quat)
            update_render_geometry_gpu(self._model, self._data)
            if self._free is not None:
                wp.launch(_place_free_cameras, inputs=[self._data.xpos, *self._free[1:]], **self._free[0])
            mjw.refit_bvh(self._model, self._data, self._context)
            mjw.render(self._model, self._data, self._context)
            pixels = self._pixels[turn]
            if self._settings.mode == "rgb":
                wp.launch(_unpack, pixels.shape[:2], inputs=[self._context.rgb_data], outputs=[pixels])
            else:
                depth = self._settings.mode == "depth"
                wp.copy(pixels, self._context.depth_data if depth else self._context.seg_data)
            done = self._copy_to_host(turn)
        return lambda: self._finish(turn, n_frames, done)

    def close(self) -> None:
        """Free what the renderer holds on the device; further calls do nothing."""
        for name in ("_model", "_data", "_context", "_free", "_pixels", "_host"):
            setattr(self, name, None)

    def _new_pixels(self, device: Any, pinned: bool = False) -> wp.array:
        n_pixels = self._n_cameras * self._settings.camera_res[0] * self._settings.camera_res[1]
        mode = self._settings.mode
        shape = (self.batch_size, n_pixels, 3) if mode == "rgb" else (self.batch_size, n_pixels)
        dtype = {"rgb": wp.uint8, "depth": wp.float32, "segmentation": wp.vec2i}[mode]
        return wp.empty(shape, dtype, device=device, pinned=pinned)

    def _copy_to_host(self, turn: int) -> wp.Event | None:
        if self._copies is None:
            return None
        self._copies.wait_event(wp.record_event())
        wp.copy(self._host[turn], self._pixels[turn], stream=self._copies)
        return self._copies.record_event()

    def _finish(self, turn: int, n_frames: int, done: wp.Event | None) -> list[NDArray[Any]]:
        if done is not None:
            wp.synchronize_event(done)
        shape = (self.batch_size, self._n_cameras, *self._settings.frame_shape)
        frames = self._host[turn].numpy().reshape(shape)[:n_frames]
        result = [frames[:, camera].copy() for camera in range(self._n_cameras)]
        if self._settings.mode == "depth":
            for depth in result:
                depth[depth == 0] = self._far  # nothing there: as far as OpenGL has it
        return result


def render_trajectories_gpu(
    mj_model: mujoco.MjModel,
    trajectories: Any,
    cameras: Camera | Iterable[Camera],
    output_path: str | os.PathLike[str] | None = None,
    *,
    camera_res: tuple[int, int] = (240, 320),
    worlds_per_batch: int = 32,
    device: str | None = None,
    scene_option: mujoco.MjvOption | None = None,
    quality: Quality = "normal",
) -> list[dict[str, NDArray[np.uint8]]]:
    """Render trajectories on MuJoCo Warp to arrays, all in memory, and to videos if asked.

    Frames of all trajectories fill batches of `worlds_per_batch`, whatever the number of simulated worlds was.

    Args:
        mj_model: Compiled model with the layout the trajectories were recorded with.
        trajectories: A RecordedTrajectory, a list of them, or a view of a dataset, which is read as it goes.
        cameras: Cameras to render.
        output_path: If given, the frames are also saved as videos; see `flytraj.save_trajectory_videos`.
        camera_res: `(height, width)` in pixels.
        worlds_per_batch: Number of frames rendered at once.
        device: Warp's name of the device; None takes Warp's default.
        scene_option: MuJoCo's scene options, of which only the geom groups are heeded.
        quality: "draft" leaves out shadows.

    Returns:
        For each trajectory a dict with, for each camera's name, `(n_frames, height, width, 3)` uint8.

    Raises:
        InvalidArgumentError: An argument cannot be used.
        ModelMismatchError: A trajectory belongs to another model.
        RenderError: The ray tracer cannot take the model.
        VideoError: A video could not be written.
    """
    from flytraj.rendering.frames import render_trajectories

    if worlds_per_batch < 1:
        raise InvalidArgumentError(f"worlds_per_batch must be at least 1, found {worlds_per_batch}.")
    return render_trajectories(
        mj_model,
        trajectories,
        cameras,
        output_path,
        camera_res=camera_res,
        scene_option=scene_option,
        quality=quality,
        backend="warp",
        frames_per_batch=worlds_per_batch,
        device=device,
    )


def prepare_for_batch_rendering(spec: mujoco.MjSpec) -> bool:
    """Change a model in place so that the ray tracer shows it well.

    Textures that it cannot sample (cube maps on materials) give way to their mean colour. The layout of `qpos`
    stays. The renderers here do as much by themselves; this is for a model that is handed to MuJoCo Warp.

    Args:
        spec: The model's specification.

    Returns:
        True if anything was changed.
    """
    mj_model = spec.copy().compile()
    colors = _cube_mapped(mj_model)
    for material_id, color in colors.items():
        material = spec.material(mj_model.material(material_id).name)
        material.textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = ""
        material.rgba[:3] = material.rgba[:3] * color
    return bool(colors)


def _cube_mapped(mj_model: mujoco.MjModel) -> dict[int, NDArray[np.float64]]:
    """Materials with a texture that is no flat picture, each with the mean colour of the texture."""
    result = {}
    for material in range(mj_model.nmat):
        texture = mj_model.mat_texid[material, int(mujoco.mjtTextureRole.mjTEXROLE_RGB)]
        if texture >= 0 and mj_model.tex_type[texture] != mujoco.mjtTexture.mjTEXTURE_2D:
            result[material] = _pixels(mj_model, texture).mean(axis=0)[:3] / 255
    return result


def _pixels(mj_model: mujoco.MjModel, texture: int) -> NDArray[np.uint8]:
    """Pixels of a texture: `(n_pixels, n_channels)`."""
    start, channels = mj_model.tex_adr[texture], mj_model.tex_nchannel[texture]
    if start < 0:  # the texture stays in its file
        loaded: NDArray[np.uint8] = mujoco.mj_loadTexture(mj_model, texture)[0]
        return loaded.reshape(-1, loaded.shape[-1])
    size = mj_model.tex_height[texture] * mj_model.tex_width[texture] * channels
    inside: NDArray[np.uint8] = mj_model.tex_data[start : start + size]
    return inside.reshape(-1, channels)


def _without_physics(mj_model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy that looks the same, without options that only matter to a simulation and that Warp may lack."""
    colors = _cube_mapped(mj_model)
    mj_model = copy.copy(mj_model)
    for material, color in colors.items():
        mj_model.mat_texid[material] = -1
        mj_model.mat_rgba[material, :3] *= color
    default = mujoco.MjSpec().compile().opt
    for name in _PHYSICS_OPTIONS:
        setattr(mj_model.opt, name, getattr(default, name))
    for name in ("body_plugin", "actuator_plugin", "sensor_plugin"):
        getattr(mj_model, name)[:] = -1
    for name in ("actuator_dyntype", "actuator_gaintype", "actuator_biastype"):
        getattr(mj_model, name)[:] = 0
    sensor_type = mj_model.sensor_type
    sensor_type[sensor_type == int(mujoco.mjtSensor.mjSENS_PLUGIN)] = int(mujoco.mjtSensor.mjSENS_USER)
    return mj_model


def _create_context(
    mj_model: mujoco.MjModel, cameras: Mapping[str, int | FreeCamera], settings: Settings, n_worlds: int
) -> mjw.RenderContext:
    """The ray tracer's buffers, with `cameras` in their order."""
    option, mode = settings.scene_option(), settings.mode
    options: dict[str, Any] = {
        "nworld": n_worlds,
        "cam_res": settings.camera_res[::-1],
        "render_rgb": mode == "rgb",
        "render_depth": mode == "depth",
        "render_seg": mode == "segmentation",
        "use_shadows": settings.quality == "normal",
        "shadow_light_fraction": 0.0,
        "render_skybox": True,
        "enabled_geom_groups": np.flatnonzero(option.geomgroup).tolist(),
    }
    donor = _camera_model(mj_model, cameras)
    context = mjw.create_render_context(mj_model, cam_active=[], **options)
    lens = mjw.create_render_context(donor, **options)
    for name in _CAMERA_FIELDS:
        setattr(context, name, getattr(lens, name))
    free = mj_model.ncam + np.cumsum([isinstance(camera, FreeCamera) for camera in cameras.values()]) - 1
    numbers = [int(n) if isinstance(c, FreeCamera) else c for c, n in zip(cameras.values(), free)]
    context.cam_id_map = wp.array(numbers, dtype=int)
    return context


def _camera_model(mj_model: mujoco.MjModel, cameras: Mapping[str, int | FreeCamera]) -> mujoco.MjModel:
    """A model with nothing but cameras, with the lenses of `cameras` in their order.

    The ray tracer takes its rays from a model's cameras. A FreeCamera is in no model, and a compiled model takes
    no further camera.
    """
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(size=[1, 0, 0])
    for _ in cameras:
        spec.worldbody.add_camera(fovy=mj_model.vis.global_.fovy)
    result = spec.compile()
    # In float32 a ray depends on the near plane too, and with it what is seen at the edge of a triangle.
    result.vis.map.znear, result.stat.extent = mj_model.vis.map.znear, mj_model.stat.extent
    for i, camera in enumerate(cameras.values()):
        if not isinstance(camera, FreeCamera):
            for lens in ("fovy", "projection", "sensorsize", "intrinsic"):
                getattr(result, f"cam_{lens}")[i] = getattr(mj_model, f"cam_{lens}")[camera]
    return result


def _free_cameras(
    mj_model: mujoco.MjModel, cameras: Mapping[str, int | FreeCamera], data: mjw.Data
) -> list[Any] | None:
    """What places the free cameras, behind the model's own in `data`; None without any."""
    free = [camera for camera in cameras.values() if isinstance(camera, FreeCamera)]
    if not free:
        return None
    n_worlds, n_cameras = data.nworld, mj_model.ncam + len(free)
    data.cam_xpos = wp.zeros((n_worlds, n_cameras), dtype=wp.vec3)
    data.cam_xmat = wp.zeros((n_worlds, n_cameras), dtype=wp.mat33)
    bodies = [0 if camera.track is None else body_id(mj_model, camera.track) for camera in free]
    offsets, axes = zip(*(camera.place() for camera in free))
    return [
        {"dim": (n_worlds, len(free)), "outputs": [data.cam_xpos, data.cam_xmat]},
        wp.array(bodies, dtype=wp.int32),
        wp.array(np.array(offsets), dtype=wp.vec3),
        wp.array(np.array(axes), dtype=wp.mat33),
        mj_model.ncam,
    ]


def _assign(target: wp.array, rows: NDArray[Any]) -> None:
    """Fill the first rows of an array."""
    target[: len(rows)].assign(np.ascontiguousarray(rows, np.float32))


@contextlib.contextmanager
def _warp_on(device: Any) -> Iterator[wp.Device]:
    """Work on a device; Warp's news about modules it loads, and warnings about physics, are kept quiet."""
    level = wp.config.log_level
    wp.config.log_level = max(level, wp.LOG_WARNING)
    try:
        with warnings.catch_warnings(), wp.ScopedDevice(device) as scope:
            warnings.simplefilter("ignore")
            yield scope
    finally:
        wp.config.log_level = level
