"""The README's code runs, in the order it is read, and its commands are what they claim to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_code_runs_in_order(tmp_path: Path) -> None:
    pytest.importorskip("mujoco.batch", reason="the README's first example needs MuJoCo 4")
    code = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert {"run.zarr", "pair.mp4", "sheet.png", "warp.zarr", "swings.zarr", "archive.zarr"} <= made


def test_the_two_commands_are_one_line_each() -> None:
    set_up_and_demo, set_up_and_tests = blocks("sh")
    for command in (set_up_and_demo, set_up_and_tests):
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert set_up_and_demo.strip().endswith("flytraj demo")
    assert "-m pytest" in set_up_and_tests


def test_the_pictures_are_there() -> None:
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / target).is_file(), target
