"""Plots of coordinates around the frame that is shown, and a mark at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flytraj.plotting import Series, find_series
from flytraj.viewing.tracks import Track

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["PALETTE", "Plots", "color", "names_to_plot"]

Floats = NDArray[np.float64]

PALETTE = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
"""Colours of the worlds, in the order they are shown."""

_WINDOW = 1000
_MOST_NAMES = 300
_HEIGHT = 150


def color(i: int) -> str:
    """Colour of the i-th world that is shown."""
    return PALETTE[i % len(PALETTE)]


def names_to_plot(view: xr.Dataset) -> list[str]:
    """Names of single coordinates of a view, as `find_series` takes them; those of qpos come first."""
    names: list[str] = []
    for variable in sorted(view.data_vars, key=lambda name: name != "qpos"):
        array = view[variable]
        if array.dims[:2] != ("world", "frame") or array.ndim > 3:
            continue
        if array.ndim == 2:
            names.append(str(variable))
            continue
        dim = str(array.dims[2])
        labels = array[dim].values if dim in array.coords else range(array.sizes[dim])
        is_bare = variable == "qpos" and dim in array.coords
        names += [str(label) if is_bare else f"{variable}[{label}]" for label in labels[:_MOST_NAMES]]
    return names


class Plots:
    """Plots, one below the other, of the worlds that are shown.

    Only frames around the one shown are read, and again when it comes near their end.

    Args:
        server: The `viser.ViserServer`.
        folder: Where on the page the plots go.
        view: The view, with dims (world, frame, …).
        layout: The kinematic layout of its model, or None.

    Attributes:
        handles: The plots on the page, some of them hidden.
    """

    def __init__(self, server: Any, folder: Any, view: xr.Dataset, layout: dict[str, Any] | None) -> None:
        self._server = server
        self._folder = folder
        self._view = view
        self._kinds = {joint["name"]: str(joint["type"]) for joint in (layout or {}).get("joints", ())}
        self._interval = float(view.attrs["playback_speed"]) / float(view.attrs["output_fps"])
        self._series: list[Series] = []
        self.handles: list[Any] = []
        self._tracks: list[Track] = []
        self._from_start = False
        self._window = slice(0, 0)
        self._lines: list[tuple[Floats, Floats]] = []

    def add(self, name: str) -> None:
        """Add a plot of a coordinate, or of each component of one.

        Raises:
            FieldNotFoundError: There is no such coordinate.
        """
        known = {series.name for series in self._series}
        self._series += [new for new in find_series(self._view, self._kinds, name) if new.name not in known]
        self._forget()

    def clear(self) -> None:
        """Remove all plots."""
        self._series = []
        self._forget()

    def follow(self, tracks: Sequence[Track], *, from_start: bool) -> None:
        """Plot other tracks.

        Args:
            tracks: The worlds that are shown.
            from_start: Whether time counts from the start of the tracks; else it is the recording's clock.
        """
        self._tracks, self._from_start = list(tracks), from_start
        self._forget()

    def show(self, place: int) -> None:
        """Plot the frames around a place of the slider, and mark it."""
        if self._tracks:
            window = _window_at(place, max(track.n_frames for track in self._tracks), self._window)
            is_new, self._window = window != self._window, window
            if is_new:
                self._lines = [self._read(series, window) for series in self._series]
            with self._server.atomic():
                for i, (x, lines) in enumerate(self._lines):
                    self._plot(i, _with_mark(x, lines, place - window.start), is_new=is_new)
                for handle in self.handles[len(self._lines) :]:
                    handle.visible = False

    def _forget(self) -> None:
        """Let the next `show` read and set up all plots anew."""
        self._window = slice(0, 0)

    def _read(self, series: Series, window: slice) -> tuple[Floats, Floats]:
        """Times `(n,)`, and values `(n_tracks, n)` with NaN where a track has ended."""
        x = self._times(max(self._tracks, key=lambda track: track.n_frames), window)
        lines = np.full((len(self._tracks), len(x)), np.nan)
        for line, track in zip(lines, self._tracks, strict=True):
            frames = slice(track.first + window.start, track.first + min(window.stop, track.n_frames))
            if frames.start < frames.stop:
                values = series.values.isel(world=track.row, frame=frames).values
                line[: len(values)] = values
        return x, lines

    def _times(self, track: Track, window: slice) -> Floats:
        """Times of the frames of a window on the clock of the plots, in seconds."""
        if self._from_start or "time" not in self._view.coords:
            n_frames = min(window.stop, track.n_frames) - window.start
            return np.asarray((window.start + np.arange(n_frames)) * self._interval, np.float64)
        frames = slice(track.first + window.start, track.first + window.stop)
        return np.asarray(self._view["time"].isel(frame=frames).values, np.float64)

    def _plot(self, i: int, data: tuple[Floats, ...], *, is_new: bool) -> None:
        """Bring the i-th plot up to date.

        Handles are made as they are needed and then only hidden: the page would log an error for a change that
        reaches it together with the handle's removal.
        """
        if not is_new:
            self.handles[i].data = data
            return
        worlds = [
            {
                "label": f"world {track.clip.world_id}",
                "stroke": color(row),
                "width": 1.5,
                "points": {"show": False},
            }
            for row, track in enumerate(self._tracks)
        ]
        x, lines = self._lines[i]
        mark = {"label": "shown", "stroke": "#444", "width": 1, "points": {"show": False}}
        looks = {
            "series": ({"label": "s"}, *worlds, mark),
            "title": self._series[i].label,
            "scales": {
                "x": {"time": False, "range": (float(x[0]), float(x[-1]))},
                "y": {"range": _range(lines)},
            },
            "visible": True,
        }
        if i == len(self.handles):
            fixed = {
                "legend": {"show": False},
                "cursor": {"drag": {"x": True, "y": False}},
                "height": _HEIGHT,
            }
            with self._folder:
                self.handles.append(self._server.gui.add_uplot(data, **looks, **fixed))
            return
        self.handles[i].data = data
        for name, value in looks.items():
            setattr(self.handles[i], name, value)


def _window_at(place: int, n_frames: int, before: slice) -> slice:
    """The frames to plot: all of a few; of many those around a place, the same ones while it is well inside."""
    if n_frames <= _WINDOW:
        return slice(0, n_frames)
    margin = _WINDOW // 8
    if before.stop - before.start == _WINDOW and before.start + margin <= place < before.stop - margin:
        return before
    start = min(max(0, place - _WINDOW // 2), n_frames - _WINDOW)
    return slice(start, start + _WINDOW)


def _range(lines: Floats) -> tuple[float, float]:
    """From below to above all values. The plot cannot find that out itself where a line begins with NaN."""
    known = lines[np.isfinite(lines)]
    low, high = (float(np.min(known)), float(np.max(known))) if len(known) else (0.0, 0.0)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _with_mark(x: Floats, lines: Floats, at: int) -> tuple[Floats, ...]:
    """What the plot is given: times, lines, and a mark that goes straight up at one of the times."""
    mark = np.full(len(x) + 1, np.nan)
    mark[at : at + 2] = _range(lines)
    return (np.insert(x, at, x[at]), *np.insert(lines, at, lines[:, at], axis=1), mark)
