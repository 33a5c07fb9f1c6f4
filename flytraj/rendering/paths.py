"""Where videos go."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from flytraj.errors import InvalidArgumentError, VideoError
from flytraj.outputs import outside_datasets
from flytraj.trajectory import Clip

__all__ = ["camera_file", "checked_output", "video_paths"]

_NOT_IN_NAMES = re.compile(r"[/\\\x00-\x1f\x7f]")
_LONGEST_NAME = 200
_NO_FOLDERS = {".avi", ".gif", ".jpg", ".m4v", ".mkv", ".mov", ".mpg", ".png", ".webm", ".zarr"}


def camera_file(name: str, suffix: str) -> str:
    """A file name for a camera: separators of folders and control characters become `_`."""
    stem = _NOT_IN_NAMES.sub("_", name)
    while len(stem.encode(errors="replace")) > _LONGEST_NAME:
        stem = stem[:-1]
    return stem + suffix


def video_paths(
    output_path: str | os.PathLike[str], clips: Sequence[Clip], cameras: Sequence[str]
) -> list[dict[str, Path]]:
    """Where the video of each trajectory and camera goes.

    Args:
        output_path: A file, for one trajectory, one camera and a path that ends in `.mp4`; else a folder.
        clips: The trajectories.
        cameras: Names of the cameras.

    Returns:
        For each trajectory, the path for each camera: `{output_path}/{camera}.mp4` for one trajectory,
        `{output_path}/traj{i:04d}_world{world_id}/{camera}.mp4` for several.

    Raises:
        InvalidArgumentError: Two cameras would share a file, or the path can be no folder for videos.
    """
    output = checked_output(output_path)
    if len(clips) == 1:
        return [camera_paths(output, cameras)]
    return [
        {name: output / f"traj{i:04d}_world{clip.world_id}" / path.name for name, path in files.items()}
        for i, clip in enumerate(clips)
        for files in [_camera_files(output, cameras)]
    ]


def checked_output(output_path: str | os.PathLike[str]) -> Path:
    """The path for a video, or a folder of them.

    Raises:
        InvalidArgumentError: It has the suffix of another kind of file, or lies in a dataset.
        VideoError: There is a file where the folder would go.
    """
    output = outside_datasets(output_path)
    if output.suffix.lower() in _NO_FOLDERS:
        raise InvalidArgumentError(f"Videos are .mp4 files: name one, or a folder for them, not {output}.")
    if output.suffix.lower() != ".mp4" and output.is_file():
        raise VideoError(f"{output} is a file, and no .mp4: name an .mp4 file, or a folder.")
    return output


def camera_paths(output: Path, cameras: Sequence[str]) -> dict[str, Path]:
    """Where one video for each camera goes: `output` itself for one camera and `.mp4`, else files in it."""
    if len(cameras) == 1 and output.suffix.lower() == ".mp4":
        if output.is_dir():
            raise VideoError(f"{output} is a folder: name another file for the video.")
        return {cameras[0]: output}
    return _camera_files(output, cameras)


def _camera_files(folder: Path, cameras: Sequence[str]) -> dict[str, Path]:
    files: dict[str, str] = {}
    for name in cameras:
        file = camera_file(name, ".mp4")
        if file in files:
            raise InvalidArgumentError(
                f"Cameras {files[file]!r} and {name!r} would share the file {file}: render them in two calls."
            )
        files[file] = name
    return {name: folder / file for file, name in files.items()}
