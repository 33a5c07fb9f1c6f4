"""Episodes of a view: the table of them, and frames by each world's own time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["episode_table", "frames_at", "times_in"]

_SCAN_BYTES = 32 * 2**20


def episode_table(view: xr.Dataset) -> pd.DataFrame:
    """Table of a view's episodes; see `TrajAccessor.episodes`."""
    import pandas as pd

    world, first, number, began, ended = _scan_episodes(view)
    last = np.append(first[1:], 0)[: len(first)] - 1
    last[_is_last_of_world(world)] = view.sizes["frame"] - 1
    return pd.DataFrame(
        {
            "world": view["world"].values[world],
            "episode": number,
            "first_frame": first,
            "last_frame": last,
            "duration": ended - began,
        }
    )


def frames_at(
    view: xr.Dataset, episodes: pd.DataFrame, times: NDArray[np.float64], tolerance: float
) -> NDArray[np.int64]:
    """Frames nearest to times on each world's own clock.

    Args:
        view: The view, with dims (world, frame, …).
        episodes: The episodes to look in; the first of a world's that has the time counts.
        times: `(n,)` simulation times in seconds, in order.
        tolerance: A frame farther off is not taken.

    Returns:
        `(n_worlds, n)` places of frames, -1 where a world has none.
    """
    sim_time = view["sim_time"].values
    positions = {int(world): i for i, world in enumerate(view["world"].values)}
    frames = np.full((len(positions), len(times)), -1, np.int64)
    for row in episodes.itertuples():
        world = positions[int(row.world)]
        own = sim_time[world, row.first_frame : row.last_frame + 1]
        right = (
            np.searchsorted(own, times).clip(1, len(own) - 1) if len(own) > 1 else np.zeros(len(times), int)
        )
        left = np.maximum(right - 1, 0)
        nearest = np.where(times - own[left] <= own[right] - times, left, right)
        found = (np.abs(own[nearest] - times) <= tolerance) & (frames[world] < 0)
        frames[world, found] = row.first_frame + nearest[found]
    return frames


def times_in(wanted: slice, sim_time: NDArray[np.float64], interval: float) -> NDArray[np.float64]:
    """Times of frames between two times, an interval apart, on the clock most worlds share."""
    if not sim_time.size:
        return np.zeros(0)
    low = np.min(sim_time) if wanted.start is None else wanted.start
    high = np.max(sim_time) if wanted.stop is None else wanted.stop
    rounding = 1e-6 * interval
    inside = sim_time[(sim_time >= low - rounding) & (sim_time <= high + rounding)]
    if not inside.size:
        return np.zeros(0)
    first = float(np.min(inside))
    return np.asarray(first + np.arange(int((high - first) / interval + 1e-6) + 1) * interval, np.float64)


def _frame_stretches(view: xr.Dataset) -> Iterator[slice]:
    """Slices of frames whose coordinates fit in memory."""
    n_frames, n_worlds = view.sizes["frame"], max(1, view.sizes["world"])
    step = max(1, _SCAN_BYTES // (12 * n_worlds))
    for start in range(0, max(1, n_frames), step):
        yield slice(start, min(n_frames, start + step))


def _scan_episodes(
    view: xr.Dataset,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """World, first frame, number, first and last time of each episode, by worlds and then frames."""
    n_worlds = view.sizes["world"]
    previous = np.full(n_worlds, -1, np.int32)
    previous_time = np.full(n_worlds, np.nan)
    worlds, firsts, numbers, begins, ends = [], [], [], [], []
    for stretch in _frame_stretches(view):
        part = view[["episode", "sim_time"]].isel(frame=stretch)
        episode, time = part["episode"].values, part["sim_time"].values
        before = np.concatenate([previous[:, np.newaxis], episode[:, :-1]], axis=1)
        time_before = np.concatenate([previous_time[:, np.newaxis], time[:, :-1]], axis=1)
        world, frame = np.nonzero(episode != before)
        worlds.append(world)
        firsts.append(frame + stretch.start)
        numbers.append(episode[world, frame])
        begins.append(time[world, frame])
        ends.append(time_before[world, frame])
        if episode.shape[1]:
            previous, previous_time = episode[:, -1], time[:, -1]
    world, first = np.concatenate(worlds), np.concatenate(firsts)
    order = np.lexsort((first, world))
    world, first = world[order], first[order]
    ended_before = np.concatenate(ends)[order]
    # An episode ends where the same world's next one begins, or with the world's last frame.
    ended = np.append(ended_before[1:], np.nan)[: len(world)]
    is_last = _is_last_of_world(world)
    ended[is_last] = previous_time[world[is_last]]
    return world, first, np.concatenate(numbers)[order], np.concatenate(begins)[order], ended


def _is_last_of_world(world: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.append(world[1:] != world[:-1], True)[: len(world)]
