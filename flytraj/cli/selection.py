"""`--world 3,7,40-47`, `--time 0.5:1.5`, `--episode 0-2` and `--at 0.5,1`."""

from __future__ import annotations

import math
from typing import Any

from flytraj.errors import FieldNotFoundError, InvalidArgumentError
from flytraj.ranges import parse_numbers
from flytraj.trajectory import Clip

__all__ = ["nearest_frames", "parse_numbers", "parse_time", "select", "select_clips"]


def parse_time(text: str) -> tuple[float | None, float | None]:
    """Seconds from `0.5:1.5`, `0.5:` or `:1.5`; None where a side is open.

    Raises:
        InvalidArgumentError: The text is no such range.
    """
    sides = text.split(":")
    try:
        start, stop = (float(side) if side.strip() else None for side in sides)
    except ValueError:
        start = stop = math.nan
    if not all(side is None or math.isfinite(side) for side in (start, stop)):
        raise InvalidArgumentError(f"--time takes seconds from:to such as 0.5:1.5, found {text!r}.")
    if start is not None and stop is not None and start > stop:
        raise InvalidArgumentError(f"--time {text}: the end is before the start.")
    return start, stop


def select(ds: Any, world: str | None = None, time: str | None = None) -> Any:
    """The part of a view that `--world` and `--time` ask for; None leaves a side whole.

    Raises:
        InvalidArgumentError: A text cannot be read, or no frame lies in the time asked for.
        FieldNotFoundError: A world is not in the dataset.
    """
    if world is not None:
        wanted = parse_numbers(world, "--world")
        known = set(ds["world"].values.tolist())
        missing = [str(i) for i in wanted if i not in known]
        if missing:
            raise FieldNotFoundError(
                f"World {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''} is not in the dataset, "
                f"which has {len(known)} worlds from {min(known)} to {max(known)}."
            )
        ds = ds.sel(world=wanted)
    if time is not None:
        seconds = ds["time"].values
        ds = ds.sel(time=slice(*parse_time(time)))
        if ds.sizes["frame"] == 0:
            reach = f"runs from {seconds[0]:g} to {seconds[-1]:g} s" if len(seconds) else "has no frame"
            raise InvalidArgumentError(f"No frame in --time {time}: the recording {reach}.")
    return ds


def select_clips(view: Any, episode: str | None = None) -> list[Clip]:
    """The worlds of a view; with `--episode`, each of these episodes of each world apart.

    Raises:
        InvalidArgumentError: The text cannot be read.
        FieldNotFoundError: None of the worlds has such an episode.
    """
    if episode is None:
        return list(view.traj.clips())
    table = view.traj.episodes()
    wanted = table[table["episode"].isin(parse_numbers(episode, "--episode"))]
    if wanted.empty:
        low, high = table["episode"].min(), table["episode"].max()
        raise FieldNotFoundError(f"No world here has episode {episode}: there are episodes {low} to {high}.")
    return [
        view.sel(world=[row.world]).isel(frame=slice(row.first_frame, row.last_frame + 1)).traj.clips()[0]
        for row in wanted.itertuples()
    ]


def nearest_frames(view: Any, at: str) -> list[int]:
    """Numbers of the frames nearest to the moments of `--at`, in seconds.

    Raises:
        InvalidArgumentError: The text cannot be read, or a moment is outside of the view.
    """
    seconds = view["time"].values
    try:
        moments = [float(part) for part in at.split(",")]
    except ValueError:
        raise InvalidArgumentError(f"--at takes seconds such as 0.5,1,1.5, found {at!r}.") from None
    slack = 1 / view.attrs["output_fps"]
    for moment in moments:
        if not seconds[0] - slack <= moment <= seconds[-1] + slack:
            raise InvalidArgumentError(
                f"No frame at {moment:g} s: they run from {seconds[0]:g} to {seconds[-1]:g} s."
            )
    return [int(abs(seconds - moment).argmin()) for moment in moments]
