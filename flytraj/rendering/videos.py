"""Videos of trajectories, encoded while they are rendered."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, RenderError
from flytraj.rendering.backend import Backend, choose_backend
from flytraj.rendering.frames import Failure, LocalSource, Segment, pack
from flytraj.rendering.grid import Grid
from flytraj.rendering.paths import checked_output, video_paths
from flytraj.rendering.pool import RenderPool, count_workers, make_source
from flytraj.rendering.scene import Camera, as_clips, resolve_cameras
from flytraj.rendering.settings import Quality, Settings, option_contents
from flytraj.rendering.sinks import GridVideos, SeparateVideos
from flytraj.trajectory import Clip
from flytraj.video import DEFAULT_CRF, DEFAULT_PRESET, write_video

__all__ = ["render_videos", "save_trajectory_videos"]


def render_videos(
    mj_model: mujoco.MjModel,
    trajectories: Any,
    cameras: Camera | Iterable[Camera],
    output_path: str | os.PathLike[str],
    *,
    camera_res: tuple[int, int] = (240, 320),
    scene_option: mujoco.MjvOption | None = None,
    quality: Quality = "normal",
    backend: Backend = "auto",
    device: str | None = None,
    workers: int | None = None,
    grid: Grid | None = None,
    labels: bool | None = None,
    progress: bool | None = None,
    crf: int = DEFAULT_CRF,
    preset: str = DEFAULT_PRESET,
    skip_existing: bool = False,
) -> list[Path]:
    """Render trajectories to videos, in memory that does not grow with frames, worlds or cameras.

    A video gets its name when it is complete; Ctrl-C leaves those that are, and no half one.

    Args:
        mj_model: Compiled model with the layout the trajectories were recorded with.
        trajectories: A RecordedTrajectory, a list of them, or a view of a dataset, which is read as it goes.
        cameras: Cameras to render.
        output_path: Output file or folder; see `save_trajectory_videos`. With a grid there is one video for
            each camera: the path itself for one camera and `.mp4`, else `{output_path}/{camera}.mp4`.
        camera_res: `(height, width)` of each trajectory's picture, in pixels.
        scene_option: MuJoCo's scene options; None takes the defaults. Warp heeds only the geom groups.
        quality: "draft" leaves out shadows, reflections and multisampling.
        backend: "auto", "opengl" or "warp".
        device: Warp's name of a device, "cpu" or "cuda:0"; None takes Warp's default.
        workers: Number of processes that render, 1 for none but this one; None starts one for each core if
            there is enough to do. The videos are the same.
        grid: `(rows, columns)` or "auto" puts all trajectories side by side in one video. One that ends
            before the others stays at its last frame.
        labels: Write world, episode and time in each picture; None does so in a grid.
        progress: Show a progress bar; None does so on a terminal.
        crf: Quality of the encoding, from 0 (lossless) to 51.
        preset: Speed of the encoder, from "ultrafast" to "veryslow".
        skip_existing: Leave out trajectories whose videos are all there, to go on after an interruption.

    Returns:
        Paths of the videos, trajectory after trajectory, also those left out.

    Raises:
        InvalidArgumentError: An argument cannot be used, or a trajectory has no frames.
        ModelMismatchError: A trajectory belongs to another model.
        RenderError: Nothing renders here, or rendering failed. If it is a process that renders that died, the
            error comes last and names the worlds it cost; all other videos are complete.
        VideoError: A video could not be written.
    """
    clips = as_clips(mj_model, trajectories)
    resolved = resolve_cameras(mj_model, cameras)
    settings = Settings(camera_res, quality=quality, option=option_contents(scene_option))
    for i, clip in enumerate(clips):
        if clip.n_frames == 0:
            raise InvalidArgumentError(
                f"Trajectory {i} (world {clip.world_id}) has no frames to make a video of."
            )
    names, output = list(resolved), checked_output(output_path)
    codec = {"crf": crf, "preset": preset}
    sink: SeparateVideos | GridVideos
    if grid is None:
        sink = SeparateVideos(clips, names, output, settings, bool(labels), codec, skip_existing)
    else:
        sink = GridVideos(clips, names, output, settings, labels is not False, codec, skip_existing, grid)
    with contextlib.closing(sink):
        segments = list(sink.segments())
        if segments:
            n_pictures = len(names) * sum(stop - start for _, start, stop in segments)
            choice = choose_backend(backend, device)
            n_workers = count_workers(workers, n_pictures, choice)
            source = make_source(mj_model, clips, resolved, settings, choice, n_workers)
            with contextlib.closing(source):
                failures = _fill(sink, source, segments, len(names), n_pictures, progress)
            sink.finish()
            _raise_failures(clips, failures)
    return sink.paths


def save_trajectory_videos(
    trajectories: Any,
    frames: Sequence[Mapping[str, NDArray[np.uint8]]],
    output_path: str | os.PathLike[str],
) -> None:
    """Save frames that are in memory as videos.

    One trajectory, one camera and a path that ends in `.mp4` give that file. Otherwise the path is a folder,
    with `{camera}.mp4` in it for one trajectory and `traj{i:04d}_world{world_id}/{camera}.mp4` for several.
    In a camera's name `/` becomes `_`.

    Args:
        trajectories: The trajectories, for their frame rates and worlds.
        frames: For each trajectory `{camera's name: frames}`, as from `render_trajectories`.
        output_path: Output file or folder.

    Raises:
        InvalidArgumentError: Frames and trajectories don't go together.
        VideoError: A video could not be written.
    """
    clips: list[Clip] = [trajectories] if hasattr(trajectories, "n_frames") else list(trajectories)
    if len(clips) != len(frames) or not clips:
        raise InvalidArgumentError(
            f"Frames of {len(frames)} trajectories were given for {len(clips)} trajectories."
        )
    for i, (clip, by_camera) in enumerate(zip(clips, frames)):
        paths = video_paths(output_path, clips, list(by_camera))[i]
        for name, pictures in by_camera.items():
            write_video(paths[name], np.asarray(pictures), clip.output_fps)


def _fill(
    sink: SeparateVideos | GridVideos,
    source: LocalSource | RenderPool,
    segments: list[Segment],
    n_cameras: int,
    n_pictures: int,
    progress: bool | None,
) -> list[Failure]:
    """Render and encode, with a progress bar."""
    from tqdm import tqdm

    failures = []
    hidden = None if progress is None else not progress
    with tqdm(total=n_pictures, unit="frame", desc="rendering", disable=hidden) as bar:
        for item in source.stream(pack(segments, source.batch_size), hold=sink.hold):
            if isinstance(item, Failure):
                sink.drop(item)
                failures.append(item)
            else:
                sink.add(item)
                bar.update(len(item.time) * n_cameras)
    return failures


def _raise_failures(clips: Sequence[Clip], failures: Sequence[Failure]) -> None:
    if failures:
        what = "; ".join(
            f"world {', '.join(str(clips[clip].world_id) for clip in sorted(failure.clips))}: {failure.reason}"
            for failure in failures
        )
        raise RenderError(
            f"Not all was rendered. {what}. All other videos are complete: the same call with "
            "skip_existing=True renders what is missing."
        )
