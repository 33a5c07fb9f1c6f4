"""`python -m benchmarks [THEME …] [--quick]`: tables and plots of flytraj beside its peers."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from pathlib import Path

from benchmarks.report import publish
from benchmarks.rounds import Settings

THEMES = ("recording", "reading", "opening", "overhead", "memory", "scale", "survival", "layouts")
_RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the themes that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "theme", nargs="*", default=["all"], help=f"{', '.join(THEMES)}, or all (the default)"
    )
    parser.add_argument("--quick", action="store_true", help="far smaller data: shows that everything runs")
    parser.add_argument("--rounds", type=int, default=None, help="rounds of measurements (3; 1 with --quick)")
    parser.add_argument(
        "--patience",
        type=float,
        default=None,
        help="seconds to wait for other processes to leave the CPUs alone, before each measurement (30)",
    )
    parser.add_argument(
        "--folder", type=Path, default=None, help="where datasets are written (a temporary folder)"
    )
    parser.add_argument(
        "--results", type=Path, default=None, help="where tables and plots go (benchmarks/results)"
    )
    parser.add_argument(
        "--flygym-python",
        default=os.environ.get("FLYGYM_PYTHON"),
        help="Python of an environment with flygym 2.1.1 (FLYGYM_PYTHON)",
    )
    given = parser.parse_args()
    themes = THEMES if "all" in given.theme else given.theme
    unknown = set(themes) - set(THEMES)
    if unknown:
        parser.error(f"there is no theme {', '.join(sorted(unknown))}; there are {', '.join(THEMES)}, all")

    with tempfile.TemporaryDirectory(prefix="flytraj-benchmarks-", dir=given.folder) as folder:
        results = given.results or (Path(folder) / "results" if given.quick else _RESULTS)
        settings = Settings(
            folder=Path(folder),
            results=results,
            quick=given.quick,
            rounds=given.rounds or (1 if given.quick else 3),
            patience=given.patience if given.patience is not None else (0 if given.quick else 30),
            flygym_python=given.flygym_python,
        )
        command = " ".join(["python -m benchmarks", *given.theme, *(["--quick"] if given.quick else [])])
        for theme in themes:
            for table in importlib.import_module(f"benchmarks.{theme}").run(settings):
                publish(table, results, command)


if __name__ == "__main__":
    main()
