"""Tables: printed, written as Markdown, and drawn."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Bars", "Table", "publish"]

_WIDE_SPREAD = 20


@dataclass(frozen=True)
class Bars:
    """What a plot shows: a bar a label.

    Attributes:
        values: Label to number.
        axis: What the number is, with its unit.
    """

    values: Mapping[str, float]
    axis: str


@dataclass
class Table:
    """A table of one theme.

    Attributes:
        name: Stem of its files.
        title: Its heading.
        columns: Headings; the first is that of the labels.
        rows: A label and its cells.
        notes: Sentences below it.
        plots: What is drawn beside it, side by side.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: list[str] = field(default_factory=list)
    plots: Sequence[Bars] = ()

    def markdown(self) -> str:
        """The table as Markdown."""
        cells = [list(self.columns), *(list(row) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "| " + " | ".join(_aligned(cell, widths[i], i) for i, cell in enumerate(row)) + " |"
            for row in cells
        ]
        rule = (
            "| " + " | ".join("-" * (w - (i > 0)) + (":" if i else "") for i, w in enumerate(widths)) + " |"
        )
        return "\n".join([lines[0], rule, *lines[1:]])


def publish(table: Table, results: Path, command: str) -> None:
    """Print a table, and write it and its plot to a folder."""
    heading = f"## {table.title}\n"
    parts = [heading, f"{_machine()}\n\n`{command}`\n", table.markdown(), ""]
    if table.plots:
        _draw(table, results / f"{table.name}.png")
        parts += [f"![{table.title}]({table.name}.png)", ""]
    parts += [f"- {note}" for note in table.notes]
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{table.name}.md").write_text("\n".join(parts).strip() + "\n")
    print(f"\n{table.title}\n\n{table.markdown()}\n")
    for note in table.notes:
        print(f"- {note}")


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column else cell.ljust(width)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"{today}: {_processor()}, {os.cpu_count()} CPUs, {memory:.0f} GiB memory, {platform.system()} "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}."
    )


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _draw(table: Table, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    n_bars = max(len(bars.values) for bars in table.plots)
    size = (5.5 * len(table.plots) + 1, 1.1 + 0.34 * n_bars)
    figure, axes = plt.subplots(1, len(table.plots), figsize=size, squeeze=False, layout="constrained")
    for axis, bars in zip(axes[0], table.plots, strict=True):
        labels, values = list(bars.values), list(bars.values.values())
        ours = ["#d95f02" if label.startswith("flytraj") else "#7f8c9a" for label in labels]
        drawn = axis.barh(labels, values, color=ours)
        axis.bar_label(drawn, [_short(value) for value in values], padding=3, fontsize=8)
        if min(values) > 0 and max(values) > _WIDE_SPREAD * min(values):
            axis.set_xscale("log")
        axis.invert_yaxis()
        axis.margins(x=0.16)
        axis.set_xlabel(bars.axis)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(table.title, fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
