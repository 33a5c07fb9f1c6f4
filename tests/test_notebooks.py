"""The notebooks run, each alone from a clean state, and are stored without outputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import flytraj as ft

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = ("1-record", "2-analyse", "3-render")


def test_there_are_no_others() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stripped(name: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Execute a notebook in a folder where nothing is but what comes with it; returns its outputs."""
    pytest.importorskip("mujoco.batch", reason="the notebooks simulate with MuJoCo 4's batch")
    pytest.importorskip("matplotlib", reason="the notebooks plot (extra plot)")
    pytest.importorskip("ipykernel", reason="notebooks are run by ipykernel (extra test)")
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient (extra test)")
    nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat (extra test)")
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(folder / ".jupyter"))
    shutil.copy(NOTEBOOKS / "drones.py", folder)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [dict(output) for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["text"] for output in outputs if output["output_type"] == "stream"]
    assert [text for text in shown if "Warning:" in text] == []
    return outputs


def count(outputs: list[dict[str, Any]], kind: str) -> int:
    return sum(kind in output.get("data", {}) for output in outputs)


@pytest.mark.slow
def test_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run("1-record", tmp_path, monkeypatch)
    ds = ft.open_dataset(tmp_path / "drones.zarr")
    assert dict(ds.sizes) == {"world": 1024, "frame": 250, "nq": 7, "nv": 6}
    assert ds.traj.episodes()["episode"].max() > 0
    assert dict(ft.open_dataset(tmp_path / "unflown.zarr").sizes) == {"world": 64, "frame": 75, "nq": 7}
    assert count(outputs, "image/png") == 1
    assert not any("overflow" in output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_analyse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(run("2-analyse", tmp_path, monkeypatch), "image/png") == 4


@pytest.mark.slow
def test_render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run("3-render", tmp_path, monkeypatch)
    assert count(outputs, "image/png") == 2
    assert sum("<video" in output.get("data", {}).get("text/html", "") for output in outputs) == 1
    assert (tmp_path / "pairs.mp4").stat().st_size > 10_000
    assert len(list((tmp_path / "videos").rglob("*.mp4"))) == 2
    assert len(list((tmp_path / "exported").glob("*.npz"))) == 2
