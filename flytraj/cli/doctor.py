"""What this machine can do."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

__all__ = ["Finding", "examine"]

_PACKAGES = ("flytraj", "mujoco", "mujoco-warp", "warp-lang", "numpy", "zarr", "xarray", "tensorstore")
_OPTIONAL = {
    "matplotlib": "plot",
    "viser": "view",
    "mjviser": "view",
    "dask": "test",
    "jupyterlab": "notebooks",
}


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        name: What it is.
        works: Whether it works; None for something that is only told.
        found: What was found, in words.
        remedy: What to do if it does not work, else "".
    """

    name: str
    works: bool | None
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Try out what recording, rendering and encoding need."""
    machine = f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} CPUs"
    return [
        Finding("python", None, machine),
        *(_package(name) for name in _PACKAGES),
        _batch(),
        _opengl(),
        *_warp_devices(),
        _ffmpeg(),
        _compression(),
        *(_optional(name, extra) for name, extra in _OPTIONAL.items()),
    ]


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install {name}")


def _optional(name: str, extra: str) -> Finding:
    try:
        return Finding(name, None, version(name))
    except PackageNotFoundError:
        return Finding(name, None, f'not installed; pip install "flytraj[{extra}]"')


def _batch() -> Finding:
    import importlib.util

    if importlib.util.find_spec("mujoco.batch"):
        return Finding("mujoco.batch", None, "there: many worlds on all cores")
    return Finding("mujoco.batch", None, "not in this MuJoCo (it came with 4); lists of MjData work")


def _opengl() -> Finding:
    from flytraj.errors import RenderError
    from flytraj.rendering.backend import choose_backend

    try:
        return Finding("OpenGL", True, choose_backend("opengl").reason)
    except RenderError as error:
        return Finding("OpenGL", False, "does not render", str(error))


def _warp_devices() -> list[Finding]:
    try:
        import warp
    except ImportError as error:
        return [Finding("Warp", False, f"cannot be imported: {error}", "pip install warp-lang mujoco-warp")]
    with contextlib.redirect_stdout(io.StringIO()):
        warp.init()
    return [Finding(f"Warp {device.alias}", True, str(device.name)) for device in warp.get_devices()]


def _ffmpeg() -> Finding:
    remedy = "pip install imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE to an ffmpeg"
    try:
        import imageio_ffmpeg

        path = imageio_ffmpeg.get_ffmpeg_exe()
        done = subprocess.run([path, "-hide_banner", "-encoders"], capture_output=True, text=True, timeout=30)
    except (ImportError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        return Finding("ffmpeg", False, str(error), remedy)
    if "libx264" not in done.stdout:
        return Finding("ffmpeg", False, f"{path} has no libx264 encoder", remedy)
    return Finding("ffmpeg", True, f"{imageio_ffmpeg.get_ffmpeg_version()} with H.264")


def _compression() -> Finding:
    import numcodecs.blosc

    names = set(numcodecs.blosc.list_compressors())
    missing = sorted({"lz4", "zstd"} - names)
    if missing:
        return Finding("codecs", False, f"without {', '.join(missing)}", "pip install --upgrade numcodecs")
    return Finding("codecs", True, "lz4, zstd")
