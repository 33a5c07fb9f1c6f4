"""Many pictures in one: the layout, the labels, and the contact sheet."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.outputs import outside_datasets
from flytraj.rendering.backend import Backend, choose_backend
from flytraj.rendering.frames import FrameBatch, LocalSource, Segment
from flytraj.rendering.scene import Camera, as_clips, resolve_cameras
from flytraj.rendering.settings import Quality, Settings, option_contents
from flytraj.trajectory import Clip
from flytraj.video import write_png

__all__ = ["Grid", "Layout", "contact_sheet", "draw_labels"]

Grid = tuple[int, int] | Literal["auto"]
"""`(rows, columns)`, or as near to a square as it gets."""

_GAP = 2
_GAP_COLOR = 24
_LABEL_SHADE = 0.45
_MOMENTS = 12


class Layout:
    """Cells of one size in rows and columns, with a thin line between them.

    Args:
        n_cells: How many cells are needed.
        grid: `(rows, columns)`, or "auto".
        cell: `(height, width)` of a cell, in pixels.

    Raises:
        InvalidArgumentError: The cells do not fit in the grid, or it is none.
    """

    def __init__(self, n_cells: int, grid: Grid, cell: tuple[int, int]) -> None:
        if grid == "auto":
            columns = math.ceil(math.sqrt(n_cells))
            rows = math.ceil(n_cells / columns)
        else:
            rows, columns = _rows_columns(grid)
        if rows < 1 or columns < 1 or rows * columns < n_cells:
            raise InvalidArgumentError(
                f'{n_cells} pictures do not fit in a grid of {rows} x {columns}: make it larger, or "auto".'
            )
        self.rows, self.columns = rows, columns
        self._cell = cell
        self.height = rows * (cell[0] + _GAP) - _GAP
        self.width = columns * (cell[1] + _GAP) - _GAP

    def canvas(self, n_frames: int) -> NDArray[np.uint8]:
        """Empty pictures: `(n_frames, height, width, 3)` uint8."""
        return np.full((n_frames, self.height, self.width, 3), _GAP_COLOR, np.uint8)

    def cell(self, number: int) -> tuple[slice, slice]:
        """Where a cell lies, row after row."""
        row, column = divmod(number, self.columns)
        top, left = row * (self._cell[0] + _GAP), column * (self._cell[1] + _GAP)
        return slice(top, top + self._cell[0]), slice(left, left + self._cell[1])


def _rows_columns(grid: Any) -> tuple[int, int]:
    try:
        rows, columns = map(operator.index, grid)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f'grid must be (rows, columns) or "auto", found {grid!r}.') from None
    return rows, columns


def draw_labels(pictures: NDArray[np.uint8], clip: Clip, batch: FrameBatch) -> None:
    """Write world, episode (but for the first) and time in pictures' upper left corners, in place.

    Args:
        pictures: `(n, height, width, 3)` uint8.
        clip: What the batch was rendered from.
        batch: Which frames the pictures show.
    """
    episodes = clip.episodes(batch.start, batch.start + len(batch.time))
    for picture, episode, time in zip(pictures, episodes, batch.time):
        run = [f"episode {episode}   "] if episode else []
        _draw(picture, [f" world {batch.world_id}   ", *run, f"{time:.3f} s "])


def _draw(picture: NDArray[np.uint8], words: list[str]) -> None:
    """Write words in the upper left corner, as much of them as fits."""
    size = max(9, min(28, picture.shape[0] // 16))
    pieces = [_ink(word, size) for word in words]
    ink = np.concatenate(pieces, axis=1)[: picture.shape[0], : picture.shape[1], np.newaxis]
    corner = picture[: ink.shape[0], : ink.shape[1]]
    corner[:] = corner * (1 - ink) * _LABEL_SHADE + ink * 255


@functools.lru_cache(maxsize=512)
def _ink(text: str, size: int) -> NDArray[np.float32]:
    """How much of each pixel a text covers, from 0 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size)
    picture = Image.new("L", (math.ceil(font.getlength(text)), round(size * 1.5)))
    ImageDraw.Draw(picture).text((0, picture.height // 2), text, fill=255, font=font, anchor="lm")
    ink: NDArray[np.float32] = np.divide(picture, 255, dtype=np.float32)
    return ink


def contact_sheet(
    mj_model: mujoco.MjModel,
    trajectories: Any,
    camera: Camera,
    output_path: str | os.PathLike[str] | None = None,
    *,
    moments: int | Sequence[int] | None = None,
    grid: Grid = "auto",
    labels: bool = True,
    camera_res: tuple[int, int] = (240, 320),
    scene_option: mujoco.MjvOption | None = None,
    quality: Quality = "normal",
    backend: Backend = "auto",
) -> NDArray[np.uint8]:
    """One picture of many: one moment of several worlds, or one world over time.

    Args:
        mj_model: Compiled model with the layout the trajectories were recorded with.
        trajectories: A RecordedTrajectory, a list of them, or a view of a dataset.
        camera: The camera.
        output_path: If given, a PNG file to write.
        moments: Number of a frame, negative from the end, or several of them, which are then the columns.
            None takes the frame in the middle of each of several trajectories, or twelve (with a grid, as
            many as fit), evenly spaced, of one.
        grid: `(rows, columns)`, or "auto".
        labels: Write world, episode and time in each picture.
        camera_res: `(height, width)` of each picture, in pixels.
        scene_option: MuJoCo's scene options; None takes the defaults. Warp heeds only the geom groups.
        quality: "draft" leaves out shadows, reflections and multisampling.
        backend: "auto", "opengl" or "warp".

    Returns:
        `(height, width, 3)` uint8.

    Raises:
        InvalidArgumentError: An argument cannot be used, or a trajectory lacks the frame.
        ModelMismatchError: A trajectory belongs to another model.
        RenderError: Nothing renders here, or rendering failed.
        VideoError: The file cannot be written.
    """
    output = None if output_path is None else outside_datasets(output_path)
    clips = as_clips(mj_model, trajectories)
    cameras = resolve_cameras(mj_model, [camera])
    settings = Settings(camera_res, quality=quality, total_frames=1, option=option_contents(scene_option))
    most = _MOMENTS if grid == "auto" else math.prod(_rows_columns(grid))
    segments = [
        segment
        for i, clip in enumerate(clips)
        for segment in _moments(i, clip.n_frames, len(clips), moments, most)
    ]
    if grid == "auto" and len(clips) > 1 and len(segments) > len(clips):
        grid = (len(clips), len(segments) // len(clips))
    layout = Layout(len(segments), grid, settings.camera_res)
    sheet: NDArray[np.uint8] = layout.canvas(1)[0]
    source = LocalSource(mj_model, clips, cameras, settings, choose_backend(backend))
    try:
        for cell, batch in enumerate(source.stream([segment] for segment in segments)):
            (pictures,) = batch.frames.values()
            if labels:
                draw_labels(pictures, clips[batch.index], batch)
            sheet[layout.cell(cell)] = pictures[0]
    finally:
        source.close()
    if output is not None:
        write_png(output, sheet)
    return sheet


def _moments(
    index: int, n_frames: int, n_clips: int, moments: int | Sequence[int] | None, most: int
) -> Iterator[Segment]:
    wanted: Iterable[int]
    if moments is not None:
        wanted = [moments] if isinstance(moments, int) else moments
    elif n_clips > 1:
        wanted = [n_frames // 2]
    else:
        wanted = np.linspace(0, n_frames - 1, min(most, n_frames)).round().astype(int).tolist()
    for frame in wanted:
        if not -n_frames <= frame < n_frames:
            raise InvalidArgumentError(
                f"Trajectory {index} has {n_frames} frames: there is no frame {frame}."
            )
        yield Segment(index, frame % n_frames, frame % n_frames + 1)
