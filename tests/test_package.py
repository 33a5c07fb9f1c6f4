"""What importing flytraj loads, and that imports in the package flow one way."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import flytraj

PACKAGE = Path(flytraj.__file__).parent

# From the simulation to the video: a module imports only what stands before it, or beside it in its folder.
FLOW = [
    "errors",
    "clock",
    "schema",
    "block",
    "model",
    "trajectory",
    "outputs",
    "ranges",
    "sources",
    "store",
    "recording",
    "arrays",
    "indexing",
    "clips",
    "episodes",
    "windows",
    "kinematics",
    "summary",
    "torch",
    "plotting",
    "view",
    "dataset",
    "npz",
    "video",
    "rendering",
    "viewing",
    "warp",
    "flygym",
    "testing",
    "demo",
    "cli",
    "__init__",
    "__main__",
]
HOMES = {"zarr": "store/zarr_engine.py", "xarray": "dataset.py", "tensorstore": "store/folder_engine.py"}
HEAVY = ("warp", "mujoco_warp", "OpenGL", "dask", "imageio_ffmpeg", "PIL", "torch", "matplotlib", "typer")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, *, everywhere: bool = False) -> set[str]:
    """Names of modules that a module imports: when it is loaded itself, or anywhere in it."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_every_module_has_its_place_in_the_flow() -> None:
    assert {room(path) for path in modules()} <= set(FLOW)


def test_modules_import_only_what_stands_before_them() -> None:
    for path in modules():
        place = FLOW.index(room(path))
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "flytraj" and len(parts) > 1 and parts[1] in FLOW:
                assert FLOW.index(parts[1]) <= place, f"{path.name} imports {name}"


def test_each_storage_library_has_one_home() -> None:
    for library, home in HOMES.items():
        users = {
            path.relative_to(PACKAGE).as_posix()
            for path in modules()
            if any(name.split(".")[0] == library for name in imported(path, everywhere=True))
        }
        assert users == {home}, library


def test_importing_flytraj_loads_nothing_heavy() -> None:
    code = (
        "import flytraj, sys, json;"
        "flytraj.FrameClock; flytraj.RecordedTrajectory; flytraj.BatchTrajectoryRecorder; flytraj.open_dataset;"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    # With MUJOCO_GL, MuJoCo loads OpenGL itself.
    environment = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert shown.stdout.strip() == "[]"


def test_all_public_names_are_there() -> None:
    for name in flytraj.__all__:
        assert getattr(flytraj, name) is not None
    assert set(flytraj.__all__) <= set(dir(flytraj))


def test_no_module_is_longer_than_400_lines() -> None:
    assert {p.name: n for p in modules() if (n := len(p.read_text().splitlines())) > 400} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    """Docstrings do not count: they carry the contract."""
    long = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[0]
                doc = 0
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    doc = (first.end_lineno or 0) - first.lineno + 1
                length = (node.end_lineno or 0) - node.lineno + 1 - doc
                if length > 60:
                    long[f"{path.name}:{node.name}"] = length
    assert long == {}
