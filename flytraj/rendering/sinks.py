"""What becomes of rendered frames: a video each, or one in which all play side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, RenderError
from flytraj.rendering.frames import Failure, FrameBatch, Segment
from flytraj.rendering.grid import Grid, Layout, draw_labels
from flytraj.rendering.paths import camera_paths, video_paths
from flytraj.rendering.settings import Settings
from flytraj.trajectory import Clip
from flytraj.video import VideoWriter

__all__ = ["GridVideos", "SeparateVideos"]


class SeparateVideos:
    """A video for each trajectory and camera, open while its frames come."""

    hold = 1

    def __init__(
        self,
        clips: Sequence[Clip],
        cameras: Sequence[str],
        output: Path,
        settings: Settings,
        labels: bool,
        codec: dict[str, Any],
        skip_existing: bool,
    ) -> None:
        self._clips = clips
        self._paths = video_paths(output, clips, cameras)
        self.paths = [path for by_camera in self._paths for path in by_camera.values()]
        self._settings = settings
        self._labels = labels
        self._codec = codec
        complete = [all(path.exists() for path in by_camera.values()) for by_camera in self._paths]
        self._to_do = [i for i in range(len(clips)) if not (skip_existing and complete[i])]
        self._open: dict[int, dict[str, VideoWriter]] = {}
        self._closer = ThreadPoolExecutor(1, thread_name_prefix="finish video")
        self._closing: list[tuple[Future[None], VideoWriter]] = []

    def segments(self) -> Iterator[Segment]:
        """What has to be rendered, in order: trajectory after trajectory."""
        return (Segment(i, 0, self._clips[i].n_frames) for i in self._to_do)

    def add(self, batch: FrameBatch) -> None:
        """Encode a batch; the last one of a trajectory finishes its videos, beside what comes next."""
        clip = self._clips[batch.index]
        if batch.start == 0:
            self._open[batch.index] = writers = {}
            for name, path in self._paths[batch.index].items():
                writers[name] = VideoWriter(path, *self._settings.camera_res, clip.output_fps, **self._codec)
        for name, pictures in batch.frames.items():
            if self._labels:
                draw_labels(pictures, clip, batch)
            self._open[batch.index][name].write(pictures)
        if batch.start + len(batch.time) == clip.n_frames:
            for video in self._open.pop(batch.index).values():
                self._closing.append((self._closer.submit(video.close), video))
            while len(self._closing) > 2 * len(batch.frames):
                self._closing.pop(0)[0].result()

    def drop(self, failure: Failure) -> None:
        """Remove the videos of trajectories that cannot be rendered to the end."""
        for clip in failure.clips:
            for video in self._open.pop(clip, {}).values():
                video.abort()

    def finish(self) -> None:
        """Wait until all videos are complete."""
        while self._closing:
            self._closing.pop(0)[0].result()

    def close(self) -> None:
        """Remove what is not complete."""
        for future, _ in self._closing:
            future.cancel()
        self._closer.shutdown()
        for video in [video for _, video in self._closing] + [
            v for w in self._open.values() for v in w.values()
        ]:
            video.abort()


class GridVideos:
    """A video for each camera in which all trajectories play side by side."""

    def __init__(
        self,
        clips: Sequence[Clip],
        cameras: Sequence[str],
        output: Path,
        settings: Settings,
        labels: bool,
        codec: dict[str, Any],
        skip_existing: bool,
        grid: Grid,
    ) -> None:
        rates = {clip.output_fps for clip in clips}
        if len(rates) > 1:
            raise InvalidArgumentError(
                f"A grid plays all trajectories at one frame rate, found {sorted(rates)}: render them apart."
            )
        self._clips = clips
        self._labels = labels
        self._layout = Layout(len(clips), grid, settings.camera_res)
        self._n_frames = max(clip.n_frames for clip in clips)
        self._settings = settings
        self._page_length = settings.batch_size(len(cameras) * self._layout.rows * self._layout.columns)
        self._page: dict[str, NDArray[np.uint8]] = {}
        self._page_start = 0
        self._last: dict[tuple[str, int], NDArray[np.uint8]] = {}
        self.hold = len(clips)
        paths = camera_paths(output, cameras)
        self.paths = list(paths.values())
        self._videos: dict[str, VideoWriter] = {}
        if skip_existing and all(path.exists() for path in self.paths):
            self._n_frames = 0
            return
        size = (self._layout.height, self._layout.width)
        with contextlib.ExitStack() as stack:
            for name, path in paths.items():
                self._videos[name] = VideoWriter(path, *size, clips[0].output_fps, **codec)
                stack.callback(self._videos[name].abort)
            stack.pop_all()

    def segments(self) -> Iterator[Segment]:
        """What has to be rendered, in order: a page of frames of all trajectories, then the next one."""
        for start in range(0, self._n_frames, self._page_length):
            for i, clip in enumerate(self._clips):
                if start < clip.n_frames:
                    yield Segment(i, start, min(start + self._page_length, clip.n_frames))

    def add(self, batch: FrameBatch) -> None:
        """Put frames in their cells; a page that is complete is encoded."""
        if not self._page or batch.start >= self._page_start + self._page_length:
            self._turn_page(batch.start)
        rows = slice(batch.start - self._page_start, batch.start - self._page_start + len(batch.time))
        cell = self._layout.cell(batch.index)
        at_end = batch.start + len(batch.time) == self._clips[batch.index].n_frames
        for name, pictures in batch.frames.items():
            if self._labels:
                draw_labels(pictures, self._clips[batch.index], batch)
            self._page[name][(rows, *cell)] = pictures
            if at_end:
                self._page[name][(slice(rows.stop, None), *cell)] = pictures[-1]
                self._last[name, batch.index] = pictures[-1].copy()

    def drop(self, failure: Failure) -> None:
        """A trajectory cannot be rendered to the end, so there is no grid.

        Raises:
            RenderError: Always.
        """
        worlds = ", ".join(str(self._clips[clip].world_id) for clip in sorted(failure.clips))
        raise RenderError(f"No grid without world {worlds}: {failure.reason}.")

    def finish(self) -> None:
        """Complete the videos."""
        self._turn_page(self._n_frames)
        for video in self._videos.values():
            video.close()

    def close(self) -> None:
        """Remove what is not complete."""
        for video in self._videos.values():
            video.abort()

    def _turn_page(self, start: int) -> None:
        for name, pictures in self._page.items():
            self._videos[name].write(pictures)
        self._page_start = start
        length = min(self._page_length, self._n_frames - start)
        self._page = {name: self._layout.canvas(length) for name in self._videos}
        for (name, index), picture in self._last.items():
            self._page[name][(slice(None), *self._layout.cell(index))] = picture
