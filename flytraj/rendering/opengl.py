"""Rendering on OpenGL, one frame after another."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import RenderError
from flytraj.rendering.scene import FreeCamera, body_id, set_frame
from flytraj.rendering.settings import Settings
from flytraj.trajectory import RecordedTrajectory

__all__ = ["OpenGLRenderer"]

_SPARE_GEOMS = 10_000  # for tendons, skins, lights and whatever else the scene options show


class OpenGLRenderer:
    """Renders recorded states with MuJoCo's own renderer, in an OpenGL context of its own.

    The pixels are those of `mujoco.Renderer`; unlike there, a frame may be larger than the model's offscreen
    buffer. Close it in the thread that made it.

    Args:
        mj_model: Compiled model; not modified.
        cameras: Cameras from `resolve_cameras`.
        settings: What to render, and how.
        platform: "egl", "osmesa" or "glfw".

    Raises:
        RenderError: No OpenGL context can be made.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        cameras: Mapping[str, int | FreeCamera],
        settings: Settings,
        platform: str,
    ) -> None:
        self.batch_size = settings.batch_size(len(cameras))
        self._settings = settings
        self._model = mj_model
        self._data = mujoco.MjData(mj_model)
        self._option = settings.scene_option()
        self._cameras = [(_mjv_camera(mj_model, camera), camera) for camera in cameras.values()]
        self._scene = mujoco.MjvScene(mj_model, mj_model.ngeom + mj_model.nsite + _SPARE_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = settings.mode != "rgb"
        self._scene.flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = settings.mode != "rgb"
        if settings.quality == "draft":
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
            self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
            mj_model = copy.copy(mj_model)
            mj_model.vis.quality.offsamples = 0
        height, width = settings.camera_res
        self._rect = mujoco.MjrRect(0, 0, width, height)
        try:
            self._gl = importlib.import_module(f"mujoco.{platform}").GLContext(width, height)
            self._gl.make_current()
            self._mjr = mujoco.MjrContext(mj_model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        except Exception as error:
            raise RenderError(f"No OpenGL context through {platform}: {error}.") from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._mjr)
        if (width, height) != (self._mjr.offWidth, self._mjr.offHeight):
            mujoco.mjr_resizeOffscreen(width, height, self._mjr)
        self._mjr.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR

    def start(self, states: RecordedTrajectory) -> Callable[[], list[NDArray[Any]]]:
        """Get ready to render recorded states.

        Args:
            states: The frames to render.

        Returns:
            A function that renders and returns the frames, for each camera as `render_trajectories` has them.
        """
        return lambda: self._render(states)

    def close(self) -> None:
        """Free the OpenGL context; further calls do nothing."""
        if self._gl is not None:
            self._gl.make_current()
            self._mjr.free()
            self._gl.free()
            self._gl = None

    def _render(self, states: RecordedTrajectory) -> list[NDArray[Any]]:
        self._gl.make_current()
        frames = [self._settings.empty(states.n_frames) for _ in self._cameras]
        for frame in range(states.n_frames):
            set_frame(self._model, self._data, states, frame)
            for (mjv_camera, camera), out in zip(self._cameras, frames):
                if isinstance(camera, FreeCamera) and camera.track is not None:
                    body = body_id(self._model, camera.track)
                    mjv_camera.lookat[:] = self._data.xpos[body] + np.asarray(camera.lookat)
                self._draw(mjv_camera, out[frame])
        return frames

    def _draw(self, camera: mujoco.MjvCamera, out: NDArray[Any]) -> None:
        every_category = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            self._model, self._data, self._option, None, camera, every_category, self._scene
        )
        mujoco.mjr_render(self._rect, self._scene, self._mjr)
        if self._settings.mode == "depth":
            depth = np.empty(out.shape, np.float32)
            mujoco.mjr_readPixels(None, depth, self._rect, self._mjr)
            out[:] = self._metres(depth[::-1].astype(np.float64))
            return
        colors = np.empty((*out.shape[:2], 3), np.uint8)
        mujoco.mjr_readPixels(colors, None, self._rect, self._mjr)
        out[:] = colors[::-1] if self._settings.mode == "rgb" else self._objects(colors[::-1])

    def _metres(self, depth: NDArray[np.float64]) -> NDArray[np.float64]:
        """Depths from the buffer's values, which are 1 at the near plane and 0 at the far one."""
        visual, extent = self._model.vis.map, self._model.stat.extent
        near, far = float(visual.znear * extent), float(visual.zfar * extent)
        if self._scene.camera[0].orthographic:
            return far - depth * (far - near)
        return near * far / (near + depth * (far - near))

    def _objects(self, colors: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Number and type of the object at each pixel, from the colours that stand for them."""
        table = np.full((self._scene.ngeom + 1, 2), -1, np.int32)
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.segid != -1:
                table[geom.segid + 1] = geom.objid, geom.objtype
        return table[colors.astype(np.int32) @ np.array([1, 1 << 8, 1 << 16], np.int32)]


def _mjv_camera(mj_model: mujoco.MjModel, camera: int | FreeCamera) -> mujoco.MjvCamera:
    result = mujoco.MjvCamera()
    if isinstance(camera, FreeCamera):
        mujoco.mjv_defaultFreeCamera(mj_model, result)
        result.lookat[:] = camera.lookat
        result.distance, result.azimuth, result.elevation = camera.distance, camera.azimuth, camera.elevation
    else:
        result.type = mujoco.mjtCamera.mjCAMERA_FIXED
        result.fixedcamid = camera
    return result
