"""Videos of the same frames: the same files; and where the size is odd, what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flygym.recording
import numpy as np
import pytest

import flytraj as ft
from tests.peers.fly import CAMERA, recorded
from tests.rendering_parts import read_video

pytestmark = pytest.mark.peers


def noise(cameras: list[str], res: tuple[int, int] = (48, 64)) -> dict[str, Any]:
    """Frames of the 10 that a recording has, by camera."""
    rng = np.random.default_rng(1)
    return {camera: rng.integers(0, 255, (10, *res, 3), np.uint8) for camera in cameras}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("world_ids", "cameras", "output"),
    [
        ([0], [CAMERA], "walk.mp4"),
        ([0], [CAMERA], "walk"),
        ([0], [CAMERA, "above"], "walk.mp4"),
        ([7], [CAMERA, "above"], "walk"),
        ([3, 11], [CAMERA], "walk.mp4"),
        ([3, 3], [CAMERA, "above"], "deep/walk"),
    ],
)
def test_the_same_file_names(tmp_path: Path, world_ids: list[int], cameras: list[str], output: str) -> None:
    theirs = recorded().trajectory
    trajectories = [
        ft.RecordedTrajectory(theirs.time, theirs.qpos, theirs.output_fps, theirs.playback_speed, world_id)
        for world_id in world_ids
    ]
    frames = [noise(cameras) for _ in world_ids]
    flygym.recording.save_trajectory_videos(trajectories, frames, tmp_path / "theirs" / output)
    ft.save_trajectory_videos(trajectories, frames, tmp_path / "ours" / output)
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert len(files(tmp_path / "ours")) == len(world_ids) * len(cameras)


@pytest.mark.parametrize(
    ("res", "our_size", "their_size"),
    [((48, 64), (48, 64), (48, 64)), ((50, 70), (50, 70), (64, 80)), ((49, 71), (50, 72), (64, 80))],
)
def test_difference_the_size_of_a_video(
    tmp_path: Path, res: tuple[int, int], our_size: tuple[int, int], their_size: tuple[int, int]
) -> None:
    """flygym scales to the next multiple of 16; here an odd side gets its edge once more and nothing is scaled."""
    theirs = recorded().trajectory
    frames = [noise([CAMERA], res)]
    flygym.recording.save_trajectory_videos([theirs], frames, tmp_path / "theirs.mp4")
    ft.save_trajectory_videos([theirs], frames, tmp_path / "ours.mp4")
    for name, size in (("ours", our_size), ("theirs", their_size)):
        video = read_video(tmp_path / f"{name}.mp4")
        assert (video.height, video.width) == size
        assert len(video.frames) == 10
        assert video.fps == 25
