"""A view at a glance, in a terminal and in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flytraj.store.description import Description
from flytraj.store.engine import Engine

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True)
class Summary:
    """What people ask first of a dataset.

    Attributes:
        rows: Pairs of a name and what is to be said of it.
    """

    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows)

    def to_html(self) -> str:
        """A small table."""
        cells = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self.rows
        )
        return f"<table>{cells}</table>"


def summarize(view: xr.Dataset, episodes: pd.DataFrame, engine: Engine, description: Description) -> Summary:
    """Sum up a view.

    Args:
        view: The view, with dims (world, frame, …).
        episodes: Its table of episodes.
        engine: The store it was opened from.
        description: The dataset as it was opened.
    """
    n_worlds, n_frames = view.sizes["world"], view.sizes["frame"]
    whole = f"of {description.n_worlds} × {description.n_frames}"
    part = (
        ""
        if (n_worlds, n_frames) == (description.n_worlds, description.n_frames)
        else f" ({whole} in the dataset)"
    )
    clock = description.clock
    fields = (f"{name} {tuple(v.shape[2:])} {v.dtype}" for name, v in view.data_vars.items())
    rows = [
        ("store", str(engine)),
        ("worlds × frames", f"{n_worlds} × {n_frames}{part}"),
        ("time", _span(view)),
        (
            "clock",
            f"{clock['output_fps']:g} fps at {clock['playback_speed']:g} × real time, {clock['sampling']}",
        ),
        ("episodes", _episodes(episodes)),
        ("fields", ", ".join(fields)),
        ("model", _model(description)),
        ("size", _size(engine, description)),
        ("recorded", f"{description.info.get('created', '')} {_versions(description)}"),
    ]
    return Summary(tuple((name, value) for name, value in rows if value))


def _span(view: xr.Dataset) -> str:
    if not view.sizes["frame"] or "time" not in view.coords:
        return "no frames"
    first, last = (float(view["time"].isel(frame=place)) for place in (0, -1))
    return f"{first:.3f} to {last:.3f} s"


def _episodes(episodes: pd.DataFrame) -> str:
    if not len(episodes):
        return "none"
    lengths = episodes["duration"]
    return (
        f"{len(episodes)}, {lengths.min():.3f} to {lengths.max():.3f} s long (median {lengths.median():.3f})"
    )


def _model(description: Description) -> str:
    embedded = [kind.upper() for kind in ("xml", "mjb") if f"model/{kind}" in description.documents]
    print_ = description.model["fingerprint"]
    if not print_:
        return "none"
    return f"{' and '.join(embedded) if embedded else 'not'} embedded, fingerprint {print_[:12]}"


def _size(engine: Engine, description: Description) -> str:
    state = description.n_frames * (description.n_worlds * description.schema.row_bytes + 8)
    if engine.folder is None:
        return f"{_bytes(state)} of state, {description.compression}"
    stored = sum(path.stat().st_size for path in engine.folder.rglob("*") if path.is_file())
    ratio = f", {state / stored:.2f} times smaller than its state" if stored and state > stored else ""
    return f"{_bytes(stored)} on disk ({description.compression}{ratio})"


def _versions(description: Description) -> str:
    versions = description.info.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"
