"""Videos, checked with the ffmpeg that wrote them and by decoding every frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from flytraj.errors import InvalidArgumentError, VideoError
from flytraj.video import VideoWriter, write_png, write_video
from tests.rendering_parts import read_video


def pictures(n: int, height: int, width: int) -> NDArray[np.uint8]:
    """Smooth pictures that differ: ramps whose level moves from frame to frame."""
    level = np.linspace(40, 200, n)[:, np.newaxis, np.newaxis]
    ramp = np.linspace(0, 40, width)[np.newaxis, np.newaxis] + np.zeros((1, height, 1))
    return np.stack([level + ramp, level + 0 * ramp, 240 - level - ramp], axis=3).astype(np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "fps", "n"),
    [(360, 640, 25, 30), (361, 641, 29.97, 30), (1, 1, 60, 7), (48, 64, 25, 1), (16, 16, 1 / 3, 4)],
)
def test_size_count_rate_and_duration(tmp_path: Path, height: int, width: int, fps: float, n: int) -> None:
    frames = pictures(n, height, width)
    write_video(tmp_path / "v.mp4", frames, fps)
    video = read_video(tmp_path / "v.mp4")
    assert (video.height, video.width) == (height + height % 2, width + width % 2)
    assert len(video.frames) == n
    assert video.fps == pytest.approx(fps, abs=0.005)
    assert video.seconds == pytest.approx(n / fps, abs=0.011)
    assert "h264" in video.stream
    assert "yuv420p" in video.stream
    difference = np.abs(video.frames[:, :height, :width].astype(int) - frames)
    assert difference.mean() < 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.mp4"]


@pytest.mark.slow
def test_ten_thousand_frames(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "long.mp4", 16, 16, 29.97, preset="ultrafast") as video:
        for start in range(0, 10_000, 1000):
            video.write(np.full((1000, 16, 16, 3), start // 50, np.uint8))
    read = read_video(tmp_path / "long.mp4")
    assert len(read.frames) == 10_000
    assert read.seconds == pytest.approx(10_000 / 29.97, abs=0.011)
    assert read.fps == pytest.approx(29.97)


def test_an_odd_side_gets_its_edge_once_more(tmp_path: Path) -> None:
    frame = np.zeros((33, 33, 3), np.uint8)
    frame[:, -8:] = 255
    write_video(tmp_path / "v.mp4", frame[np.newaxis], 25, crf=0)
    read = read_video(tmp_path / "v.mp4").frames[0]
    assert read.shape == (34, 34, 3)
    assert (read[:, 26:] > 250).all()
    assert (read[:, :24] < 5).all()


def test_colours_survive(tmp_path: Path) -> None:
    colors = np.array(
        [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [0, 0, 0], [200, 120, 30]], np.uint8
    )
    frames = np.repeat(np.repeat(colors, 16, axis=0)[np.newaxis], 16, axis=0)[np.newaxis]
    write_video(tmp_path / "v.mp4", frames, 25)
    video = read_video(tmp_path / "v.mp4")
    assert "bt709" in video.stream
    assert np.abs(video.frames[0, 8, 8::16].astype(int) - colors).max() <= 6


def test_an_exception_leaves_no_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with VideoWriter(path, 32, 32, 25) as video:
            for _ in range(5):
                video.write(pictures(20, 32, 32))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.mp4"]


def test_ffmpegs_own_words_are_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="hyperfast"):
        write_video(tmp_path / "v.mp4", pictures(300, 64, 64), 25, preset="hyperfast")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="no frames"):
        write_video(tmp_path / "v.mp4", np.zeros((0, 8, 8, 3), np.uint8), 25)
    with pytest.raises(InvalidArgumentError, match="fps"):
        VideoWriter(tmp_path / "v.mp4", 8, 8, 0)
    for crf in (-1, 52):
        with pytest.raises(InvalidArgumentError, match="crf must be from 0"):
            VideoWriter(tmp_path / "v.mp4", 8, 8, 25, crf=crf)
    wrong: Any = np.zeros((1, 8, 9, 3))
    with VideoWriter(tmp_path / "v.mp4", 8, 8, 25) as video:
        with pytest.raises(
            InvalidArgumentError, match=r"\(n, 8, 8, 3\), found float64 of shape \(1, 8, 9, 3\)"
        ):
            video.write(wrong)
        video.abort()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(VideoError, match=r"v\.mp4"):
        VideoWriter(tmp_path / "file" / "v.mp4", 8, 8, 25)
    with pytest.raises(VideoError, match=r"p\.png"):
        write_png(tmp_path / "file" / "p.png", np.zeros((2, 2, 3), np.uint8))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_strange_name_is_only_a_name(tmp_path: Path) -> None:
    write_video(tmp_path / "pipe:1 %03d 'ü.mp4", pictures(3, 8, 8), 25)
    assert len(read_video(tmp_path / "pipe:1 %03d 'ü.mp4").frames) == 3


def test_png(tmp_path: Path) -> None:
    picture = pictures(1, 5, 7)[0]
    write_png(tmp_path / "new" / "p.png", picture)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "new" / "p.png")), picture)
