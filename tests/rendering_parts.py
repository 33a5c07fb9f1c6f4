"""What the tests of rendering and video share."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import imageio_ffmpeg
import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from flytraj.rendering import choose_backend
from flytraj.trajectory import RecordedTrajectory

RES = (48, 64)
CHOICE = choose_backend()

opengl = pytest.mark.skipif(CHOICE.backend != "opengl", reason="no OpenGL driver")


class Video(NamedTuple):
    height: int
    width: int
    fps: float
    seconds: float
    stream: str
    frames: NDArray[np.uint8]


def read_video(path: Path) -> Video:
    """What ffmpeg finds in a file, with every frame decoded."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    words = subprocess.run([ffmpeg, "-hide_banner", "-i", path], capture_output=True, text=True).stderr
    stream = next(line for line in words.splitlines() if "Video:" in line)
    size, fps = re.search(r", (\d+x\d+)", stream), re.search(r"([\d.]+) fps", stream)
    duration = re.search(r"Duration: (\d+):(\d+):([\d.]+)", words)
    assert size
    assert fps
    assert duration
    width, height = map(int, size[1].split("x"))
    command = [ffmpeg, "-loglevel", "error", "-i", path, "-fps_mode", "passthrough"]
    raw = subprocess.run(
        [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True
    )
    frames = np.frombuffer(raw.stdout, np.uint8).reshape(-1, height, width, 3)
    seconds = 3600 * int(duration[1]) + 60 * int(duration[2]) + float(duration[3])
    return Video(height, width, float(fps[1]), seconds, stream, frames)


def record(model: mujoco.MjModel, n_frames: int, world_id: int = 0, fps: float = 25) -> RecordedTrajectory:
    """A fall with the mocap body going round, on a seed of its own for each world."""
    data = mujoco.MjData(model)
    data.qvel[:] = np.random.default_rng(world_id).normal(size=model.nv)
    rows: list[tuple[Any, ...]] = []
    for _ in range(n_frames):
        mujoco.mj_step(model, data, 10)
        if model.nmocap:
            data.mocap_pos[0] = [0.6 * np.cos(data.time * 3), 0.6 * np.sin(data.time * 3), 0.5]
            data.mocap_quat[0] = [np.cos(data.time), 0, 0, np.sin(data.time)]
        rows.append((data.time, data.qpos.copy(), data.mocap_pos.copy(), data.mocap_quat.copy()))
    time, qpos, mocap_pos, mocap_quat = (np.array(column) for column in zip(*rows))
    mocap = (mocap_pos, mocap_quat) if model.nmocap else (None, None)
    return RecordedTrajectory(time, qpos, fps, 0.2, world_id, *mocap)


def still(model: mujoco.MjModel, n_frames: int = 1) -> RecordedTrajectory:
    """A trajectory in which nothing moves."""
    data = mujoco.MjData(model)
    mocap = [np.repeat(a[np.newaxis], n_frames, axis=0) for a in (data.mocap_pos, data.mocap_quat)]
    qpos = np.repeat(data.qpos[np.newaxis], n_frames, axis=0)
    return RecordedTrajectory(np.arange(n_frames) / 25, qpos, 25, 1.0, 0, *(mocap if model.nmocap else ()))


def render_live(
    model: mujoco.MjModel,
    trajectory: RecordedTrajectory,
    camera: str,
    option: mujoco.MjvOption | None = None,
) -> NDArray[np.uint8]:
    """The same states as a simulation that shows itself would draw them, by MuJoCo's own calls."""
    gl = importlib.import_module(f"mujoco.{CHOICE.platform}").GLContext(RES[1], RES[0])
    gl.make_current()
    scene, context = mujoco.MjvScene(model, 10_000), mujoco.MjrContext(model, 150)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    rect = mujoco.MjrRect(0, 0, RES[1], RES[0])
    seen = mujoco.MjvCamera()
    seen.type, seen.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(camera).id
    data = mujoco.MjData(model)
    frames = []
    for i in range(trajectory.n_frames):
        data.qpos[:] = trajectory.qpos[i]
        if trajectory.mocap_pos is not None and trajectory.mocap_quat is not None:
            data.mocap_pos[:], data.mocap_quat[:] = trajectory.mocap_pos[i], trajectory.mocap_quat[i]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mjv_updateScene(model, data, option or mujoco.MjvOption(), None, seen, 7, scene)
        mujoco.mjr_render(rect, scene, context)
        pixels = np.empty((*RES, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, rect, context)
        frames.append(pixels[::-1].copy())
    context.free()
    gl.free()
    return np.array(frames)


def similarity(a: NDArray[np.uint8], b: NDArray[np.uint8], window: int = 7) -> float:
    """Mean structural similarity of two pictures' brightness (Wang et al. 2004, uniform window)."""
    x, y = a.mean(axis=-1), b.mean(axis=-1)

    def mean(values: NDArray[Any]) -> NDArray[Any]:
        windows = np.lib.stride_tricks.sliding_window_view(values, (window, window))
        result: NDArray[Any] = windows.mean(axis=(-2, -1))
        return result

    mx, my = mean(x), mean(y)
    vx, vy, vxy = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    ssim = (2 * mx * my + c1) * (2 * vxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return float(ssim.mean())
