"""Rounds of measurements: every case in each round, so that all of them see the same machine."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.process import Failed, cpu_times, run_fresh

__all__ = ["Case", "Outcome", "Settings", "interleave", "skip_reason"]

_QUIET_SHARE = 0.15
_QUIET_SECONDS = 0.5


@dataclass(frozen=True)
class Settings:
    """What was asked for on the command line.

    Attributes:
        folder: Scratch folder, on the disk that is measured.
        results: Folder for tables and plots.
        quick: Far smaller data: shows that everything runs, not how fast.
        rounds: Rounds of measurements; medians are reported.
        patience: Seconds to wait, before each measurement, for other processes to leave the CPUs alone.
        flygym_python: Python with flygym; None if there is none.
    """

    folder: Path
    results: Path
    quick: bool
    rounds: int
    patience: float
    flygym_python: str | None

    def python(self, *, needs_flygym: bool) -> str | None:
        """The Python to measure with."""
        return self.flygym_python if needs_flygym else sys.executable


@dataclass(frozen=True)
class Case:
    """One thing to be measured.

    Attributes:
        label: What it is called in tables.
        function: `module:function` of this package.
        python: Python to run it with; None if there is none.
        arguments: The function's arguments.
    """

    label: str
    function: str
    python: str | None = sys.executable
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        label: The case's.
        results: What the function returned, a dict a round.
        skipped: Why there are no results; empty if there are.
    """

    label: str
    results: list[dict[str, Any]] = field(default_factory=list)
    skipped: str = ""

    def median(self, key: str) -> float:
        """Median of a number over the rounds."""
        return float(statistics.median(result[key] for result in self.results))

    def first(self, key: str) -> Any:
        """A value that is the same in all rounds."""
        return self.results[0][key]


def interleave(settings: Settings, cases: Mapping[str, Case], title: str) -> dict[str, Outcome]:
    """Run all cases, round by round; one that fails is skipped from then on."""
    from tqdm import tqdm

    outcomes = {name: Outcome(case.label) for name, case in cases.items()}
    rounds = [(name, case) for _ in range(settings.rounds) for name, case in cases.items()]
    progress = tqdm(rounds, desc=title, unit="run", leave=False)
    for name, case in progress:
        outcome = outcomes[name]
        progress.set_postfix_str(case.label)
        if case.python is None:
            outcome.skipped = "no Python with flygym was given: --flygym-python, or FLYGYM_PYTHON"
        if outcome.skipped:
            continue
        wait_until_quiet(settings.patience)
        try:
            outcome.results.append(run_fresh(case.function, python=case.python, **case.arguments))
        except Failed as failure:
            outcome.skipped = str(failure)
            outcome.results.clear()
    return outcomes


def skip_reason(outcomes: Iterable[Outcome]) -> list[str]:
    """A note for each case that has no results."""
    return [f"{outcome.label}: skipped, {outcome.skipped}." for outcome in outcomes if outcome.skipped]


def wait_until_quiet(patience: float) -> None:
    """Wait until other processes leave the CPUs alone, or patience runs out."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        busy, total = cpu_times()
        time.sleep(_QUIET_SECONDS)
        busy_now, total_now = cpu_times()
        if busy_now - busy < _QUIET_SHARE * (total_now - total):
            return
