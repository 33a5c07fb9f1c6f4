"""Build the API reference from the docstrings: `python .ci/reference.py FOLDER`. Warnings are errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pdoc

import flytraj
import flytraj.warp

PAGES = [
    "flytraj",
    "flytraj.warp",
    "flytraj.view",
    "flytraj.windows",
    "flytraj.kinematics",
    "flytraj.recording.options",
    "flytraj.rendering.frames",
    "flytraj.store.report",
    "flytraj.errors",
    "flytraj.testing",
    *(["flytraj.torch"] if find_spec("torch") else []),
]

OPTIONAL = ("matplotlib", "mjviser", "viser")


class StandIns(MetaPathFinder, Loader):
    """Lets optional packages be imported that are not installed: only their names are of interest here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of an optional package, which nothing else has found."""
        del path, target
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in OPTIONAL else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module that has every name."""
        return MagicMock(name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def build(folder: Path) -> None:
    """Write a page for each module in PAGES, and one to start from."""
    sys.meta_path.append(StandIns())
    for module in (flytraj, flytraj.warp):
        for name in module.__all__:
            getattr(module, name)  # public names are loaded on first use, and pdoc shows what is loaded
    specs = [spec for page in PAGES for spec in (page, rf"!{page}\..+")]
    pdoc.render.configure(docformat="google", show_source=False, footer_text=f"flytraj {flytraj.__version__}")
    with warnings.catch_warnings(action="error"):
        # Python 3.11 does not tell which keys a TypedDict inherits; nothing is lost but the heading they are under.
        warnings.filterwarnings("ignore", message=r"Cannot determine where \S+Dict\.")
        pdoc.pdoc(*specs, output_directory=folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"Usage: {sys.argv[0]} FOLDER")
    build(Path(sys.argv[1]))
