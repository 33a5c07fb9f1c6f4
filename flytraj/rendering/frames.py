"""Frames from trajectories: batches of recorded states in, pictures out, one batch in memory at a time."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.rendering.backend import Backend, Choice, choose_backend
from flytraj.rendering.scene import Camera, FreeCamera, as_clips, resolve_cameras
from flytraj.rendering.settings import Mode, Quality, Settings, option_contents
from flytraj.trajectory import Clip, RecordedTrajectory

__all__ = ["FrameBatch", "iter_frames", "render_trajectories"]

_STATE_BYTES = 8 << 20
_MOST_STATES = 256


class BatchRenderer(Protocol):
    """Renders recorded states, a batch at a time."""

    batch_size: int

    def start(self, states: RecordedTrajectory) -> Callable[[], list[NDArray[Any]]]:
        """Begin to render `states`; what is returned waits for the frames of each camera."""

    def close(self) -> None:
        """Free what the renderer holds."""


@dataclass(frozen=True)
class FrameBatch:
    """Some consecutive frames of one trajectory.

    Attributes:
        index: Which of the trajectories, from 0.
        world_id: Its world.
        start: Number of the first frame within the trajectory.
        time: `(n,)` simulation time of each frame, in seconds.
        frames: For each camera, `(n, height, width, 3)` uint8, or what `mode` asked for.
    """

    index: int
    world_id: int
    start: int
    time: NDArray[Any]
    frames: dict[str, NDArray[Any]]


class Failure(NamedTuple):
    """Some clips that could not be rendered to the end.

    Attributes:
        clips: Which ones.
        reason: Why, in words.
    """

    clips: set[int]
    reason: str


class Segment(NamedTuple):
    """Frames `start` to `stop` (exclusive) of one of the clips."""

    clip: int
    start: int
    stop: int


def iter_frames(
    mj_model: mujoco.MjModel,
    trajectories: Any,
    cameras: Camera | Iterable[Camera],
    *,
    camera_res: tuple[int, int] = (240, 320),
    scene_option: mujoco.MjvOption | None = None,
    mode: Mode = "rgb",
    quality: Quality = "normal",
    backend: Backend = "auto",
    device: str | None = None,
    frames_per_batch: int | None = None,
) -> Iterator[FrameBatch]:
    """Render trajectories a batch of frames at a time, never more.

    Args:
        mj_model: Compiled model with the layout the trajectories were recorded with.
        trajectories: A RecordedTrajectory, a list of them, or a view of a dataset, which is read as it goes.
        cameras: Cameras to render.
        camera_res: `(height, width)` in pixels.
        scene_option: MuJoCo's scene options; None takes the defaults. Warp heeds only the geom groups.
        mode: "rgb", "depth" or "segmentation".
        quality: "draft" leaves out shadows, reflections and multisampling.
        backend: "auto", "opengl" or "warp".
        device: Warp's name of a device, "cpu" or "cuda:0"; None takes Warp's default.
        frames_per_batch: Most frames of a camera in memory at a time; None lets their size decide.

    Yields:
        Batches in order, trajectory after trajectory.

    Raises:
        InvalidArgumentError: An argument cannot be used; raised at once.
        ModelMismatchError: A trajectory belongs to another model; raised at once.
        RenderError: Nothing renders here, or rendering failed.
    """
    clips = as_clips(mj_model, trajectories)
    resolved = resolve_cameras(mj_model, cameras)
    settings = Settings(camera_res, mode, quality, frames_per_batch, option=option_contents(scene_option))
    choice = choose_backend(backend, device)

    def generate() -> Iterator[FrameBatch]:
        source = LocalSource(mj_model, clips, resolved, settings, choice)
        with contextlib.closing(source):
            yield from source.stream(pack(whole(clips), source.batch_size))

    return generate()


def render_trajectories(
    mj_model: mujoco.MjModel,
    trajectories: Any,
    cameras: Camera | Iterable[Camera],
    output_path: str | os.PathLike[str] | None = None,
    *,
    camera_res: tuple[int, int] = (240, 320),
    scene_option: mujoco.MjvOption | None = None,
    mode: Mode = "rgb",
    quality: Quality = "normal",
    backend: Backend = "auto",
    device: str | None = None,
    frames_per_batch: int | None = None,
) -> list[dict[str, NDArray[Any]]]:
    """Render trajectories to arrays, all in memory, and to videos if asked.

    For more frames than fit in memory there are `iter_frames` and `render_videos`.

    Args:
        mj_model: Compiled model with the layout the trajectories were recorded with.
        trajectories: A RecordedTrajectory, a list of them, or a view of a dataset.
        cameras: Cameras to render.
        output_path: If given, the frames are also saved as videos; see `save_trajectory_videos`.
        camera_res: `(height, width)` in pixels.
        scene_option: MuJoCo's scene options; None takes the defaults. Warp heeds only the geom groups.
        mode: "rgb", "depth" or "segmentation"; only "rgb" makes videos.
        quality: "draft" leaves out shadows, reflections and multisampling.
        backend: "auto", "opengl" or "warp".
        device: Warp's name of a device, "cpu" or "cuda:0"; None takes Warp's default.
        frames_per_batch: Most frames rendered at once; None lets their size decide.

    Returns:
        For each trajectory a dict with, for each camera's name, `(n_frames, height, width, 3)` uint8; for
        depth `(n_frames, height, width)` float32, in metres along the camera's axis; for segmentation
        `(n_frames, height, width, 2)` int32: number and type of the object, -1 where there is none.

    Raises:
        InvalidArgumentError: An argument cannot be used.
        ModelMismatchError: A trajectory belongs to another model.
        RenderError: Nothing renders here, or rendering failed.
        VideoError: A video could not be written.
    """
    from flytraj.rendering.videos import save_trajectory_videos

    if output_path is not None and mode != "rgb":
        raise InvalidArgumentError(
            f"Only rgb frames make a video, found mode={mode!r}: leave output_path out."
        )
    clips = as_clips(mj_model, trajectories)
    names = list(resolve_cameras(mj_model, cameras))
    settings = Settings(camera_res, mode, quality)
    result = [{name: settings.empty(clip.n_frames) for name in names} for clip in clips]
    for batch in iter_frames(
        mj_model,
        clips,
        cameras,
        camera_res=camera_res,
        scene_option=scene_option,
        mode=mode,
        quality=quality,
        backend=backend,
        device=device,
        frames_per_batch=frames_per_batch,
    ):
        for name, frames in batch.frames.items():
            result[batch.index][name][batch.start : batch.start + len(frames)] = frames
    if output_path is not None:
        save_trajectory_videos(clips, result, output_path)
    return result


def make_renderer(
    mj_model: mujoco.MjModel, cameras: Mapping[str, int | FreeCamera], settings: Settings, choice: Choice
) -> BatchRenderer:
    """A renderer of the kind that was chosen."""
    if choice.backend == "opengl":
        from flytraj.rendering.opengl import OpenGLRenderer

        return OpenGLRenderer(mj_model, cameras, settings, choice.platform)
    from flytraj.rendering.warp import WarpRenderer

    return WarpRenderer(mj_model, cameras, settings, choice.device)


def whole(clips: Sequence[Clip]) -> Iterator[Segment]:
    """All frames, one clip after another."""
    return (Segment(index, 0, clip.n_frames) for index, clip in enumerate(clips))


def pack(segments: Iterable[Segment], batch_size: int) -> Iterator[list[Segment]]:
    """Cut and join segments into batches of `batch_size` frames, the last one smaller."""
    batch: list[Segment] = []
    free = batch_size
    for index, start, end in segments:
        while start < end:
            stop = min(end, start + free)
            batch.append(Segment(index, start, stop))
            free -= stop - start
            start = stop
            if free == 0:
                yield batch
                batch, free = [], batch_size
    if batch:
        yield batch


class LocalSource:
    """Renders the frames of clips in this process.

    Args:
        mj_model: Compiled model.
        clips: What to render, from `as_clips`.
        cameras: From `resolve_cameras`.
        settings: What to render, and how.
        choice: The backend.
    """

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        clips: Sequence[Clip],
        cameras: Mapping[str, int | FreeCamera],
        settings: Settings,
        choice: Choice,
    ) -> None:
        self._clips = clips
        self._names = list(cameras)
        if settings.total_frames is None:
            settings = replace(settings, total_frames=sum(clip.n_frames for clip in clips))
        self._renderer = make_renderer(mj_model, cameras, settings, choice)
        self.batch_size = self._renderer.batch_size

    def stream(self, batches: Iterable[list[Segment]], *, hold: int = 1) -> Iterator[FrameBatch]:
        """The frames of batches of at most `batch_size` frames, segment after segment.

        Args:
            batches: What to render.
            hold: From how many clips in turn the batches come.
        """
        reader = ClipReader(self._clips, hold)
        under_way: Callable[[], Iterator[FrameBatch]] | None = None
        for segments in batches:
            states = reader.read(segments)
            frames = self._renderer.start(states)
            if under_way is not None:
                yield from under_way()
            under_way = functools.partial(self._split, segments, states.time, frames)
        if under_way is not None:
            yield from under_way()

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()

    def _split(
        self, segments: list[Segment], time: NDArray[Any], frames: Callable[[], list[NDArray[Any]]]
    ) -> Iterator[FrameBatch]:
        return split(self._clips, self._names, segments, time, frames())


class ClipReader:
    """Reads the states of segments, larger stretches at a time than are rendered.

    A dataset's chunk holds more frames than a batch, and should be read once.

    Args:
        clips: What is read.
        hold: Of how many clips a stretch is kept for the next call.
    """

    def __init__(self, clips: Sequence[Clip], hold: int = 1) -> None:
        self._clips = clips
        self._hold = hold
        self._held: dict[int, tuple[int, RecordedTrajectory]] = {}

    def read(self, segments: Sequence[Segment]) -> RecordedTrajectory:
        """The states of segments, one after another."""
        return _join([self._read(segment) for segment in segments])

    def _read(self, segment: Segment) -> RecordedTrajectory:
        index, start, stop = segment
        clip = self._clips[index]
        first, kept = self._held.pop(index, (start, None))
        if kept is not None:
            kept = kept.read(start - first, kept.n_frames) if first <= start else None
        end = start + (kept.n_frames if kept is not None else 0)
        if kept is None or stop > end:
            row_bytes = 8 * (1 + clip.nq + 7 * clip.nmocap)
            length = max(stop - end, min(_MOST_STATES, _STATE_BYTES // (row_bytes * self._hold)))
            further = clip.read(end, min(clip.n_frames, end + length))
            kept = further if kept is None else _join([kept, further])
        self._held[index] = start, kept
        while len(self._held) > self._hold:
            del self._held[next(iter(self._held))]
        return kept.read(0, stop - start)


def _join(parts: Sequence[RecordedTrajectory]) -> RecordedTrajectory:
    """Frames of several clips, or stretches of one, as if they were one."""
    parts = [part for part in parts if part.n_frames] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    with_mocap = parts[0].mocap_pos is not None
    return RecordedTrajectory(
        time=np.concatenate([part.time for part in parts]),
        qpos=np.concatenate([part.qpos for part in parts]),
        output_fps=parts[0].output_fps,
        playback_speed=parts[0].playback_speed,
        mocap_pos=np.concatenate([np.asarray(part.mocap_pos) for part in parts]) if with_mocap else None,
        mocap_quat=np.concatenate([np.asarray(part.mocap_quat) for part in parts]) if with_mocap else None,
    )


def split(
    clips: Sequence[Clip],
    names: Sequence[str],
    segments: Sequence[Segment],
    time: NDArray[Any],
    frames: Sequence[NDArray[Any]],
) -> Iterator[FrameBatch]:
    """The frames of a batch, one segment at a time."""
    row = 0
    for index, start, stop in segments:
        rows = slice(row, row := row + stop - start)
        pictures = {name: pixels[rows] for name, pixels in zip(names, frames)}
        yield FrameBatch(index, clips[index].world_id, start, time[rows], pictures)
