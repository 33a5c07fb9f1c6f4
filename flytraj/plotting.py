"""Plots of a view: coordinates over time, spread over worlds, phase plots. On matplotlib (extra `plot`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError, InvalidArgumentError, MissingDependencyError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["Series", "find_series", "plot_view"]

Floats = NDArray[np.float64]

_CLOCKS = {"time": "time (s)", "sim_time": "simulation time (s)"}
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_LINES = 8
_MOST_NAMED = 20
_MOST_PANELS = 12
_MOST_BOUNDARIES = 100
_BINS = 1000
_PATH_FRAMES = 20_000
_MOST_VALUES = 2**24
_STRETCH_VALUES = 2**22
_INDEXED = re.compile(r"(\w+)\[(.*)\]")
_COMPONENT_UNITS = {"x": "m", "y": "m", "z": "m", **dict.fromkeys(("wx", "wy", "wz"), "rad")}
_COMPONENT_UNITS |= dict.fromkeys(("vx", "vy", "vz"), "m") | dict.fromkeys(("qw", "qx", "qy", "qz"), "")
_JOINT_UNITS = {"hinge": "rad", "slide": "m"}
_PER_SECONDS = {"qpos": "", "qvel": "/s", "qacc": "/s²"}


@dataclass(frozen=True)
class Series:
    """One number of every world and frame.

    Attributes:
        name: What it is called in the plot.
        unit: Its unit, or empty.
        values: Dims (world, frame), not read yet.
    """

    name: str
    unit: str
    values: xr.DataArray

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Samples:
    """Some frames of a view in memory.

    Attributes:
        x: `(n_worlds, n)` where on the x axis.
        episode: `(n_worlds, n)`.
        values: `(n_series, n_worlds, n)`.
    """

    x: Floats
    episode: NDArray[np.int32]
    values: Floats


def plot_view(
    view: xr.Dataset,
    layout: dict[str, Any] | None,
    names: Sequence[str],
    *,
    x: str = "time",
    spread: bool | None = None,
    axes: Axes | Sequence[Axes] | None = None,
    label: str | None = None,
) -> list[Axes]:
    """Plot coordinates of a view; see `TrajAccessor.plot`.

    Args:
        view: The view, with dims (world, frame, …).
        layout: The kinematic layout of its model, which says what joints are; None if there is none.
        names: Coordinates, one panel each.
        x: "time", "sim_time" or the name of a coordinate.
        spread: Median and quantiles instead of a line a world; None does so for more than 8 worlds.
        axes: Axes to draw into; None makes a figure.
        label: What the legend calls these worlds, which then have one colour.
    """
    kinds = {joint["name"]: str(joint["type"]) for joint in (layout or {}).get("joints", ())}
    series = [found for name in names for found in find_series(view, kinds, name)] if all(names) else []
    if not series:
        raise InvalidArgumentError(f"Name what to plot, such as {_examples(view)}.")
    if len(series) > _MOST_PANELS:
        shown = ", ".join(one.name for one in series[:_MOST_PANELS])
        raise InvalidArgumentError(
            f"{len(series)} panels are too many, {_MOST_PANELS} fit: name fewer ({shown} …)."
        )
    if not view.sizes["world"] or not view.sizes["frame"]:
        raise InvalidArgumentError("The view has no frames to plot.")
    along = None if x in _CLOCKS else _one(view, kinds, x)
    if along is None and x not in view.coords:
        raise InvalidArgumentError(f"The view has no clock {x!r}: plot it with x='sim_time'.")
    if spread is None:
        spread = view.sizes["world"] > _MOST_LINES
    panels = _panels(axes, len(series), is_phase=along is not None)
    if along is not None:
        _draw_phase(panels, view, along, series, spread=spread, label=label)
    elif spread:
        _draw_spread(panels, view, x, series, label)
    else:
        _draw_lines(panels, view, x, series, label)
    for panel, one in zip(panels, series, strict=True):
        panel.set_ylabel(one.label)
        panel.grid(alpha=0.25)
    panels[-1].set_xlabel(_CLOCKS[x] if along is None else along.label)
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return panels


def find_series(view: xr.Dataset, kinds: dict[str, str], name: str) -> list[Series]:
    """What a name stands for: a coordinate, all of a joint's, a variable, or some of its components."""
    if "nq" in view.coords and _matching(_labels(view["qpos"], "nq"), name):
        return _components(view, kinds, "qpos", [name], bare=True)
    indexed = _INDEXED.fullmatch(name)
    variable, wanted = (indexed[1], indexed[2]) if indexed else (name, "")
    if variable not in view.data_vars or view[variable].dims[:2] != ("world", "frame"):
        raise FieldNotFoundError(f"The view has no {name!r} to plot; there are {_examples(view)}.")
    n_dims = view[variable].ndim - 2
    if not indexed:
        parts = [""] * n_dims
    else:
        parts = [wanted] if n_dims == 1 else [part.strip() for part in wanted.split(",")]
    if len(parts) != n_dims:
        dims = ", ".join(map(str, view[variable].dims[2:])) or "none"
        raise InvalidArgumentError(f"{name!r} has {len(parts)} indices; the dims of {variable} are: {dims}.")
    return _components(view, kinds, variable, parts)


def _components(
    view: xr.Dataset, kinds: dict[str, str], variable: str, parts: list[str], *, bare: bool = False
) -> list[Series]:
    """The components of a variable that each part, a label or a number along a dim, picks."""
    found: list[tuple[list[str], xr.DataArray]] = [([], view[variable])]
    for dim, part in zip(view[variable].dims[2:], parts, strict=True):
        size, labels = view.sizes[dim], _labels(view[variable], str(dim))
        places = list(range(size)) if not part else _matching(labels, part)
        if not places and part.isdecimal() and int(part) < size:
            places = [int(part)]
        if not places:
            known = ", ".join(labels[:12]) + (" …" if len(labels) > 12 else "")
            raise FieldNotFoundError(f"{variable} has no {part!r} along {dim}; there are {known}.")
        found = [([*picked, labels[i]], array.isel({dim: i})) for picked, array in found for i in places]
    unit = str(view[variable].attrs.get("units", ""))
    return [
        Series(
            ", ".join(picked) if bare else variable + (f"[{', '.join(picked)}]" if picked else ""),
            _coordinate_unit(kinds, picked[0]) + _PER_SECONDS[variable]
            if variable in _PER_SECONDS and _coordinate_unit(kinds, picked[0])
            else unit,
            array,
        )
        for picked, array in found
    ]


def _coordinate_unit(kinds: dict[str, str], label: str) -> str:
    """Unit of a coordinate of a joint: metres, radians, or empty for a part of a quaternion."""
    joint, _, component = label.rpartition("/")
    if label in kinds or not joint:
        return _JOINT_UNITS.get(kinds.get(label, ""), "")
    return _COMPONENT_UNITS.get(component, "")


def _labels(array: xr.DataArray, dim: str) -> list[str]:
    """Names along a dim; numbers where there are none."""
    return [str(label) for label in (array[dim].values if dim in array.coords else range(array.sizes[dim]))]


def _matching(labels: list[str], name: str) -> list[int]:
    """Places of a label, or of all components of a joint."""
    if name in labels:
        return [labels.index(name)]
    return [i for i, label in enumerate(labels) if label.rpartition("/")[0] == name]


def _one(view: xr.Dataset, kinds: dict[str, str], name: str) -> Series:
    found = find_series(view, kinds, name)
    if len(found) != 1:
        shown = ", ".join(one.name for one in found[:_MOST_PANELS])
        raise InvalidArgumentError(f"x must be one coordinate; {name!r} stands for {shown}.")
    return found[0]


def _examples(view: xr.Dataset) -> str:
    """Names that can be plotted, a few of each variable."""
    examples = []
    for variable, array in view.data_vars.items():
        if array.dims[:2] == ("world", "frame"):
            labels = _labels(array, str(array.dims[2])) if array.ndim == 3 else []
            bare = variable == "qpos" and "nq" in view.coords
            shown = labels if bare else [f"{variable}[{label}]" for label in labels]
            examples.append(", ".join(shown[:6] or [str(variable)]) + (", …" if len(shown) > 6 else ""))
    return "; ".join(examples)


def _panels(axes: Axes | Sequence[Axes] | None, n_panels: int, *, is_phase: bool) -> list[Axes]:
    """The axes given, or those of a new figure, one below the other."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "Plots need matplotlib, which is not installed: pip install 'flytraj[plot]'."
        ) from error
    if axes is not None:
        given = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
        if len(given) != n_panels:
            raise InvalidArgumentError(f"There are {n_panels} panels to draw, and {len(given)} axes given.")
        return given
    size = (6.5, 1 + 4 * n_panels) if is_phase else (9, 1 + 1.8 * n_panels)
    _, made = plt.subplots(n_panels, 1, sharex=True, squeeze=False, figsize=size, layout="constrained")
    return list(made[:, 0])


def _read(view: xr.Dataset, x: str | Series, series: Sequence[Series], frames: slice) -> Samples:
    """Read some frames of the series and of the x axis."""
    along = view[x] if isinstance(x, str) else x.values
    values = np.stack([one.values.isel(frame=frames).values.astype(np.float64) for one in series])
    return Samples(
        np.broadcast_to(along.isel(frame=frames).values, values.shape[1:]).astype(np.float64),
        view["episode"].isel(frame=frames).values,
        values,
    )


def _stretches(view: xr.Dataset, n_series: int) -> Iterator[tuple[slice, int]]:
    """Slices of frames that fit in memory, and into how many bins each is to be thinned."""
    n_frames = view.sizes["frame"]
    bin_frames = max(1, -(-n_frames // _BINS))
    bins = max(1, _STRETCH_VALUES // (view.sizes["world"] * n_series * bin_frames))
    for start in range(0, n_frames, bins * bin_frames):
        stop = min(n_frames, start + bins * bin_frames)
        yield slice(start, stop), -(-(stop - start) // bin_frames)


def _draw_lines(
    panels: list[Axes], view: xr.Dataset, x: str, series: list[Series], label: str | None
) -> None:
    """A line a world; of a long recording, through the extremes of each stretch of frames."""
    n_worlds = view.sizes["world"]
    points: list[list[list[Floats]]] = [[[] for _ in range(n_worlds)] for _ in series]
    for frames, bins in _stretches(view, len(series)):
        read = _read(view, x, series, frames)
        for i in range(len(series)):
            for world in range(n_worlds):
                keep = _extremes(read.values[i, world], bins)
                kept = (read.x[world], read.values[i, world], read.episode[world])
                points[i][world].append(np.stack([values[keep] for values in kept]).astype(np.float64))
    has_boundaries = False
    for panel, worlds in zip(panels, points, strict=True):
        runs = [np.concatenate(parts, axis=1) for parts in worlds]
        for line, begins in _draw_runs(panel, view, runs, label, linewidth=1.2):
            if x == "time" and 0 < len(begins) <= _MOST_BOUNDARIES:
                edges = {"transform": panel.get_xaxis_transform(), "color": line.get_color()}
                panel.vlines(begins, 0, 1, linestyles=":", linewidth=0.9, alpha=0.8, **edges)
                has_boundaries = True
    if has_boundaries and "new episode" not in panels[0].get_legend_handles_labels()[1]:
        panels[0].plot([], [], ":", color="0.4", linewidth=0.9, label="new episode")


def _draw_runs(
    panel: Axes, view: xr.Dataset, runs: Sequence[Floats], label: str | None, **style: Any
) -> Iterator[tuple[Any, Floats]]:
    """Draw each world's x, values and episodes, broken where an episode begins; yields lines and those x."""
    color = None
    for i, (world_id, (at, values, episode)) in enumerate(zip(view["world"].values, runs, strict=True)):
        begins = np.flatnonzero(np.diff(episode)) + 1
        if label is not None:
            name = label if i == 0 else None
        else:
            name = f"world {world_id}" if len(runs) <= _MOST_NAMED else None
        if "marker" in style and style.get("linestyle") != "":
            style["markevery"] = [0, *(begins + 1 + np.arange(len(begins)))]
        (line,) = panel.plot(
            np.insert(at, begins, np.nan), np.insert(values, begins, np.nan), color=color, label=name, **style
        )
        if label is not None:
            color = line.get_color()
        yield line, at[begins]


def _extremes(values: Floats, n_bins: int) -> NDArray[np.int64]:
    """Places of the least and the greatest value of each bin, in order; all places if they are as few."""
    if len(values) <= 2 * n_bins:
        return np.arange(len(values))
    low, high = np.nan_to_num(values, nan=np.inf), np.nan_to_num(values, nan=-np.inf)
    places = []
    for start, stop in pairwise(np.linspace(0, len(values), n_bins + 1).astype(int)):
        places += [start + int(np.argmin(low[start:stop])), start + int(np.argmax(high[start:stop]))]
    return np.unique(places)


def _thinned(view: xr.Dataset, n_series: int, most: int) -> slice:
    """Every so manieth frame, as many as a plot can show and memory holds."""
    n_worlds, n_frames = view.sizes["world"], view.sizes["frame"]
    most = min(most, max(2, _MOST_VALUES // (n_worlds * n_series)))
    return slice(0, n_frames, -(-n_frames // most))


def _draw_spread(
    panels: list[Axes], view: xr.Dataset, x: str, series: list[Series], label: str | None
) -> None:
    """Median and quantiles of all worlds."""
    import pandas as pd

    frames = _thinned(view, len(series), _BINS)
    read = _read(view, x, series, frames)
    if x == "time":
        moment = np.broadcast_to(np.arange(read.x.shape[1]), read.x.shape)
    else:
        # Worlds were reset at times of their own, so their frames are up to half an interval apart.
        interval = frames.step * float(view.attrs["playback_speed"]) / float(view.attrs["output_fps"])
        moment = np.round((read.x - np.nanmin(read.x)) / interval)
    at = pd.Series(read.x.ravel()).groupby(moment.ravel()).mean().to_numpy()
    worlds = f"{view.sizes['world']:,} worlds" + (f", 1 frame in {frames.step:,}" if frames.step > 1 else "")
    for panel, values in zip(panels, read.values, strict=True):
        groups = pd.Series(values.ravel()).groupby(moment.ravel())
        low, lower, median, upper, high = (groups.quantile(q).to_numpy() for q in _QUANTILES)
        names, shades = [f"median of {worlds}", "25 to 75 %", "5 to 95 %"], (0.35, 0.15)
        if label is not None:
            names, shades = [f"{label} ({worlds})", "", ""], (0.3, 0.1)
        (line,) = panel.plot(at, median, linewidth=1.6, label=names[0])
        band = {"color": line.get_color(), "linewidth": 0}
        panel.fill_between(at, lower, upper, alpha=shades[0], label=names[1], **band)
        panel.fill_between(at, low, high, alpha=shades[1], label=names[2], **band)


def _draw_phase(
    panels: list[Axes],
    view: xr.Dataset,
    along: Series,
    series: list[Series],
    *,
    spread: bool,
    label: str | None,
) -> None:
    """Coordinates against another: a path a world, or how often many worlds were where."""
    frames = _thinned(view, len(series), _PATH_FRAMES)
    read = _read(view, along, series, frames)
    # Frames far apart are no path. A marker shows where each episode begins.
    style: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 1}
    if frames.step > 1:
        style = {"marker": ".", "markersize": 2, "linestyle": ""}
    for panel, one, values in zip(panels, series, read.values, strict=True):
        if spread:
            known = np.isfinite(read.x) & np.isfinite(values)
            cells = panel.hexbin(
                read.x[known], values[known], gridsize=60, bins="log", mincnt=1, linewidths=0.1
            )
            name = f"frames of {view.sizes['world']:,} worlds" + (f" ({label})" if label else "")
            panel.figure.colorbar(cells, ax=panel, label=name)
        else:
            runs = [np.stack(run) for run in zip(read.x, values, read.episode, strict=True)]
            list(_draw_runs(panel, view, runs, label, **style))
        if one.unit == along.unit == "m":
            panel.set_aspect("equal", adjustable="datalim")
