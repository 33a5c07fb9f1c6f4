"""Which renderer works on this machine."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
from typing import Literal, NamedTuple

from flytraj.errors import InvalidArgumentError, RenderError

__all__ = ["Backend", "Choice", "choose_backend"]

Backend = Literal["auto", "opengl", "warp"]
"""`auto` takes OpenGL where it works, else Warp's ray tracer."""

logger = logging.getLogger("flytraj.rendering")

_PROBE_TIMEOUT = 60.0
_LONGEST_REASON = 120
_PROBE = """
import mujoco
from mujoco.{platform} import GLContext
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='1' rgba='1 0 0 1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
gl = GLContext(32, 32)
gl.make_current()
scene, camera, rect = mujoco.MjvScene(model, 100), mujoco.MjvCamera(), mujoco.MjrRect(0, 0, 32, 32)
context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
mujoco.mjv_defaultFreeCamera(model, camera)
mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
mujoco.mjr_render(rect, scene, context)
import numpy
pixels = numpy.zeros((32, 32, 3), numpy.uint8)
mujoco.mjr_readPixels(pixels, None, rect, context)
red, green = int(pixels[16, 16, 0]), int(pixels[16, 16, 1])
assert red > green + 20, f"a red ball came out as {{pixels[16, 16]}}"
print("flytraj: it renders", flush=True)
import os
os._exit(0)
"""


class Choice(NamedTuple):
    """A renderer that works here.

    Attributes:
        backend: "opengl" or "warp".
        platform: How OpenGL is reached: "egl", "osmesa" or "glfw"; "" for Warp.
        device: Warp's name of the device, or None for its default.
        reason: Why this one, in words.
    """

    backend: Literal["opengl", "warp"]
    platform: str
    device: str | None
    reason: str


def choose_backend(backend: Backend = "auto", device: str | None = None) -> Choice:
    """Find a renderer that works here, and log which one and why.

    OpenGL is tried in a process of its own, once for each environment: EGL, then OSMesa, then GLFW where
    there is a display; if `MUJOCO_GL` names one, only that. A driver that crashes does no harm.

    Args:
        backend: What is wanted.
        device: Warp's name of the device for Warp to use.

    Raises:
        InvalidArgumentError: There is no such backend.
        RenderError: OpenGL was asked for and does not work; the message says what to install.
    """
    if backend not in ("auto", "opengl", "warp"):
        raise InvalidArgumentError(f"backend must be auto, opengl or warp, found {backend!r}.")
    if backend == "warp":
        return Choice("warp", "", device, "it was asked for")
    platform, failures = _find_platform(*_environment())
    if platform:
        choice = Choice("opengl", platform, None, f"it renders through {platform}")
    elif backend == "opengl":
        raise RenderError(
            f"OpenGL does not work here ({failures}). To render without a screen, install a driver, on "
            "Debian and Ubuntu: apt install libegl1 libgl1-mesa-dri (or libosmesa6); MUJOCO_GL set to egl, "
            'osmesa or glfw insists on one. backend="warp" renders now, without any driver.'
        )
    else:
        choice = Choice("warp", "", device, f"OpenGL does not work here ({failures})")
    logger.info("Rendering with %s: %s.", choice.backend, choice.reason)
    return choice


def _environment() -> tuple[str, bool]:
    has_display = sys.platform == "darwin" or any(
        os.environ.get(key) for key in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return os.environ.get("MUJOCO_GL", "").lower().strip(), has_display


@functools.cache
def _find_platform(mujoco_gl: str, has_display: bool) -> tuple[str, str]:
    """The first platform that renders, or "" and why none does."""
    if mujoco_gl in ("disable", "disabled", "off", "false", "0"):
        return "", f"MUJOCO_GL={mujoco_gl} forbids it"
    platforms = {"egl": ["egl"], "osmesa": ["osmesa"], "glfw": ["glfw"], "glx": ["glfw"]}.get(
        mujoco_gl, ["egl", "osmesa", *(["glfw"] if has_display else [])]
    )
    failures = []
    for platform in platforms:
        failure = _probe(platform)
        if failure is None:
            return platform, ""
        failures.append(f"{platform}: {failure}")
    return "", "; ".join(failures)


def _probe(platform: str) -> str | None:
    """Render a red ball in another process; None if it came out red, else what went wrong."""
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE.format(platform=platform)],
            env=os.environ | {"MUJOCO_GL": platform, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if "flytraj: it renders" in result.stdout:
        return None
    lines = result.stderr.strip().splitlines()
    if lines and "'NoneType'" in lines[-1]:  # what PyOpenGL says of a library that it did not find
        return "its library cannot be loaded"
    return (
        lines[-1].strip()[:_LONGEST_REASON]
        if lines
        else f"it ended with status {result.returncode} and no word"
    )
