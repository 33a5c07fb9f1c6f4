"""The API reference is built from the docstrings without a warning, and shows every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import flytraj
import flytraj.warp
from flytraj import errors
from flytraj.view import TrajAccessor

pytest.importorskip("pdoc", reason="the API reference is built by pdoc (extra docs)")

SCRIPT = Path(__file__).parents[1] / ".ci" / "reference.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def shown(page: Path) -> set[str]:
    """Names that have a place of their own on a page."""
    return set(re.findall(r'<(?:section|div) id="([\w.]+)"', page.read_text()))


def test_every_public_name_is_on_a_page(site: Path) -> None:
    assert set(flytraj.__all__) - {"errors"} <= shown(site / "flytraj.html")
    assert set(flytraj.warp.__all__) <= shown(site / "flytraj" / "warp.html")
    assert set(errors.__all__) <= shown(site / "flytraj" / "errors.html")


def test_all_that_a_view_can_do_is_on_a_page(site: Path) -> None:
    methods = {f"TrajAccessor.{name}" for name in vars(TrajAccessor) if not name.startswith("_")}
    assert len(methods) > 10
    assert methods <= shown(site / "flytraj" / "view.html")


def test_the_first_page_leads_to_the_others(site: Path) -> None:
    page = (site / "flytraj.html").read_text()
    for target in ("warp.html", "view.html#TrajAccessor", "recording/options.html#Options", "errors.html"):
        assert f'href="flytraj/{target}"' in page


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "import pathlib, reference\n"
        "reference.PAGES.append('flytraj.nowhere')\n"
        f"reference.build(pathlib.Path({str(tmp_path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "Warning" in done.stderr
    assert "flytraj.nowhere" in done.stderr
