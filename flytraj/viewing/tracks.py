"""What is shown of each world, and the blocks of frames that are kept in memory for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError
from flytraj.trajectory import Clip, RecordedTrajectory

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["BLOCK_FRAMES", "Blocks", "Track", "choose_tracks"]

BLOCK_FRAMES = 64
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Track:
    """The frames of one world that the slider goes through.

    Attributes:
        clip: The world, to be read a stretch at a time.
        row: Its place in the view.
        first: The first of the frames.
        n_frames: How many there are.
        begins: `(n,)` first frames of the world's episodes, in order.
        numbers: `(n,)` their numbers.
    """

    clip: Clip
    row: int
    first: int
    n_frames: int
    begins: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def frame(self, place: int) -> int:
        """Frame of the view at a place of the slider; a world that has ended stays at its last one."""
        return self.first + min(place, self.n_frames - 1)

    def episode(self, frame: int) -> int:
        """Number of the episode a frame belongs to."""
        return int(self.numbers[int(np.searchsorted(self.begins, frame, side="right")) - 1])


def choose_tracks(view: xr.Dataset, worlds: Sequence[int], episode: int | None) -> list[Track]:
    """Tracks of some worlds: of all their frames, or of an episode of each that has it.

    Args:
        view: The view, with dims (world, frame, …).
        worlds: Ids of the worlds.
        episode: Number of the episode; None takes all frames.

    Raises:
        FieldNotFoundError: A world is not in the view, or none of them has the episode.
    """
    rows = {int(world): row for row, world in enumerate(view["world"].values)}
    missing = [str(world) for world in worlds if world not in rows]
    if missing:
        raise FieldNotFoundError(
            f"World {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''} is not here; there are "
            f"{len(rows):,} worlds from {min(rows)} to {max(rows)}."
        )
    chosen = view.isel(world=[rows[world] for world in worlds])
    table = chosen.traj.episodes()
    tracks = []
    for clip in chosen.traj.clips():
        own = table[table["world"] == clip.world_id]
        first, last = 0, clip.n_frames - 1
        if episode is not None:
            wanted = own[own["episode"] == episode]
            if wanted.empty:
                continue
            first, last = int(wanted["first_frame"].iloc[0]), int(wanted["last_frame"].iloc[0])
        begins, numbers = own["first_frame"].to_numpy(), own["episode"].to_numpy()
        tracks.append(Track(clip, rows[clip.world_id], first, last - first + 1, begins, numbers))
    if not tracks:
        raise FieldNotFoundError(f"None of the worlds chosen has an episode {episode}.")
    return tracks


class Blocks:
    """Frames by blocks, read when they are asked for; those used last are kept.

    Args:
        most_bytes: What the blocks in memory may take; the one asked for is always kept.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._blocks: OrderedDict[tuple[int, int], RecordedTrajectory] = OrderedDict()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of the blocks in memory."""
        return self._n_bytes

    def read(self, clip: Clip, frame: int) -> tuple[RecordedTrajectory, int]:
        """The block of a world that holds a frame, and the frame's place in it."""
        key = (clip.world_id, frame // BLOCK_FRAMES)
        start = key[1] * BLOCK_FRAMES
        if key not in self._blocks:
            self._blocks[key] = clip.read(start, min(start + BLOCK_FRAMES, clip.n_frames))
            self._n_bytes += _n_bytes(self._blocks[key])
        self._blocks.move_to_end(key)
        while self._n_bytes > self._most_bytes and len(self._blocks) > 1:
            self._n_bytes -= _n_bytes(self._blocks.popitem(last=False)[1])
        return self._blocks[key], frame - start


def _n_bytes(block: RecordedTrajectory) -> int:
    arrays = (block.time, block.qpos, block.mocap_pos, block.mocap_quat)
    return sum(array.nbytes for array in arrays if array is not None)
