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

from flytraj.errors import InvalidArgumentError
from flytraj.rendering.backend import Backend, choose_backend
from flytraj.rendering.frames import LocalSource, pack
from flytraj.rendering.grid import Grid
from flytraj.rendering.paths import video_paths
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
    grid: Grid | None = None,
    labels: bool | None = None,
    progress: bool | None = None,
    crf: int = DEFAULT_CRF,
    preset: str = DEFAULT_PRESET,
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
        grid: `(rows, columns)` or "auto" puts all trajectories side by side in one video. One that ends
            before the others stays at its last frame.
        labels: Write world and time in each picture; None does so in a grid.
        progress: Show a progress bar; None does so on a terminal.
        crf: Quality of the encoding, from 0 (lossless) to 51.
        preset: Speed of the encoder, from "ultrafast" to "veryslow".

    Returns:
        Paths of the videos, trajectory after trajectory.

    Raises:
        InvalidArgumentError: An argument cannot be used, or a trajectory has no frames.
        ModelMismatchError: A trajectory belongs to another model.
        RenderError: Nothing renders here, or rendering failed.
        VideoError: A video could not be written.
    """
    from tqdm import tqdm

    clips = as_clips(mj_model, trajectories)
    resolved = resolve_cameras(mj_model, cameras)
    settings = Settings(camera_res, quality=quality, option=option_contents(scene_option))
    for i, clip in enumerate(clips):
        if clip.n_frames == 0:
            raise InvalidArgumentError(
                f"Trajectory {i} (world {clip.world_id}) has no frames to make a video of."
            )
    sink = _make_sink(clips, list(resolved), Path(output_path), settings, grid, labels, crf, preset)
    total = sum(clip.n_frames for clip in clips) * len(resolved)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(sink))
        source = LocalSource(mj_model, clips, resolved, settings, choose_backend(backend))
        stack.enter_context(contextlib.closing(source))
        hidden = None if progress is None else not progress
        bar = stack.enter_context(tqdm(total=total, unit="frame", desc="rendering", disable=hidden))
        for batch in source.stream(pack(sink.segments(), source.batch_size), hold=sink.hold):
            sink.add(batch)
            bar.update(len(batch.time) * len(resolved))
        sink.finish()
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


def _make_sink(
    clips: Sequence[Clip],
    cameras: Sequence[str],
    output: Path,
    settings: Settings,
    grid: Grid | None,
    labels: bool | None,
    crf: int,
    preset: str,
) -> SeparateVideos | GridVideos:
    codec = {"crf": crf, "preset": preset}
    if grid is None:
        return SeparateVideos(clips, cameras, output, settings, bool(labels), codec)
    return GridVideos(clips, cameras, output, settings, labels is not False, codec, grid)
