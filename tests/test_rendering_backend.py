"""Which backend is taken, and what happens where OpenGL cannot be loaded."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flytraj.errors import RenderError
from flytraj.rendering import choose_backend
from flytraj.rendering.backend import _find_platform, _probe
from tests.rendering_parts import opengl, read_video

_RENDER = """
import logging, sys
logging.basicConfig(level="INFO")
from flytraj.rendering import render_videos
from flytraj.testing import tiny_model
from flytraj.trajectory import RecordedTrajectory
import numpy as np
model = tiny_model().compile()
states = RecordedTrajectory(np.arange(3) / 25, np.tile(model.qpos0, (3, 1)), 25, 1.0, 0,
                            np.tile([0.6, 0, 0.5], (3, 1, 1)), np.tile([1.0, 0, 0, 0], (3, 1, 1)))
render_videos(model, states, "fixed", sys.argv[1], camera_res=(48, 64), backend=sys.argv[2])
assert "OpenGL" not in sys.modules
"""


@pytest.fixture
def hidden(tmp_path: Path) -> dict[str, str]:
    """An environment in which the libraries of OpenGL are found and cannot be loaded."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in (
        "EGL.so",
        "EGL.so.1",
        "OSMesa.so",
        "OSMesa.so.6",
        "OSMesa.so.8",
        "GL.so",
        "GL.so.1",
        "OpenGL.so.0",
    ):
        (folder / f"lib{name}").touch()
    taken = {"MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM"}
    return {k: v for k, v in os.environ.items() if k not in taken} | {"LD_LIBRARY_PATH": str(folder)}


def run(hidden: dict[str, str], path: Path, backend: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _RENDER, str(path), backend]
    return subprocess.run(command, env=hidden, capture_output=True, text=True, timeout=120)


def test_without_opengl_there_is_a_video_all_the_same(hidden: dict[str, str], tmp_path: Path) -> None:
    done = run(hidden, tmp_path / "v.mp4", "auto")
    assert done.returncode == 0, done.stderr
    assert "Rendering with warp: OpenGL does not work here (egl: its library cannot be loaded;" in done.stderr
    video = read_video(tmp_path / "v.mp4")
    assert len(video.frames) == 3
    assert video.frames.std() > 20


def test_without_opengl_asking_for_it_says_what_to_install(hidden: dict[str, str], tmp_path: Path) -> None:
    done = run(hidden, tmp_path / "v.mp4", "opengl")
    assert done.returncode == 1
    for words in (
        "RenderError: OpenGL does not work here",
        "apt install libegl1",
        'backend="warp" renders now',
    ):
        assert words in done.stderr


@opengl
def test_opengl_is_taken_where_it_renders(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "flytraj.rendering"):
        choice = choose_backend()
    assert choice.backend == "opengl"
    assert f"Rendering with opengl: it renders through {choice.platform}" in caplog.text
    assert choose_backend("opengl") == choice


def test_warp_is_taken_when_asked_for() -> None:
    assert choose_backend("warp", "cpu")[:3] == ("warp", "", "cpu")


def test_mujoco_gl_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "off")
    assert choose_backend().backend == "warp"
    with pytest.raises(RenderError, match="MUJOCO_GL=off forbids it"):
        choose_backend("opengl")
    for name in ("egl", "osmesa"):
        platform, failures = _find_platform(name, True)
        assert platform == name or failures.startswith(f"{name}: ")
        assert ";" not in failures  # nothing else was tried


def test_a_platform_that_crashes_is_only_a_reason() -> None:
    failure = _probe("vulkan")
    assert failure is not None
    assert "vulkan" in failure
