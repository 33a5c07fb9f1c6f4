"""`--world 3,7,40-47` and `--time 0.5:1.5`."""

from __future__ import annotations

import math
import re
from typing import Any

from flytraj.errors import FieldNotFoundError, InvalidArgumentError

__all__ = ["parse_time", "parse_worlds", "select"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_WORLDS = 10_000_000


def parse_worlds(text: str) -> list[int]:
    """World ids from `3,7,40-47`, in that order, each once.

    Raises:
        InvalidArgumentError: The text is no such list.
    """
    worlds: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(f"--world takes ids and ranges such as 3,7,40-47, found {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _MOST_WORLDS:
            raise InvalidArgumentError(f"--world {text}: {part.strip()} is no range from low to high.")
        worlds |= dict.fromkeys(range(first, last + 1))
    return list(worlds)


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
        wanted = parse_worlds(world)
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
