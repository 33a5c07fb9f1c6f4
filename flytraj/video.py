"""Videos and pictures on disk: the only module that knows the encoder.

Frames are piped to ffmpeg (the binary that imageio-ffmpeg brings) as they come. A video is written under a
temporary name and renamed when it is complete, so whatever has the final name plays to its end.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
import uuid
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError, MissingDependencyError, VideoError

__all__ = ["DEFAULT_CRF", "DEFAULT_PRESET", "VideoWriter", "write_png", "write_video"]

DEFAULT_CRF = 18
DEFAULT_PRESET = "veryfast"

_QUEUED_WRITES = 2
_LARGEST_DENOMINATOR = 100_000


class VideoWriter:
    """Encodes RGB frames to an H.264 MP4 file (yuv420p, BT.709) that browsers play.

    Writing goes on in a thread, at most two batches of frames behind the caller. A frame of even size is kept
    as it is; an odd side gets its last row or column once more, because the format needs even sides. Nothing
    is rescaled.

    Use it in a `with` statement: leaving it normally finishes the video, leaving it by an exception (Ctrl-C
    too) removes what was written.

    Args:
        path: The file to write, replaced when the new video is complete. Missing folders are made.
        height: Height of the frames, in pixels.
        width: Width of the frames, in pixels.
        fps: Frames per second; may be fractional.
        crf: Quality, from 0 (lossless) to 51; smaller is better and larger on disk.
        preset: Speed of the encoder, from "ultrafast" to "veryslow".

    Raises:
        InvalidArgumentError: The size or the frame rate is not positive.
        MissingDependencyError: There is no ffmpeg.
        VideoError: The file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        height: int,
        width: int,
        fps: float,
        *,
        crf: int = DEFAULT_CRF,
        preset: str = DEFAULT_PRESET,
    ) -> None:
        if height < 1 or width < 1:
            raise InvalidArgumentError(f"A frame needs at least one pixel, found {height} x {width}.")
        if not 0 < fps < 100_000:
            raise InvalidArgumentError(f"fps must be positive and below 100000, found {fps!r}.")
        if not 0 <= crf <= 51:
            raise InvalidArgumentError(f"crf must be from 0 (lossless) to 51, found {crf!r}.")
        self.path = Path(path)
        self.n_frames = 0
        self._size = (height, width)
        self._edges = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))
        self._error: VideoError | None = None
        self._closed = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished = _unfinished(self.path)
            self._unfinished.touch(exist_ok=False)
        except OSError as error:
            raise VideoError(
                f"The video {self.path} cannot be written: {error.strerror or error}."
            ) from error
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by abort)
        try:
            self._ffmpeg = subprocess.Popen(
                _ffmpeg_command(self._unfinished, height + height % 2, width + width % 2, fps, crf, preset),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                start_new_session=True,  # Ctrl-C is ours to handle: ffmpeg would end the file early
            )
        except BaseException:
            self._unfinished.unlink(missing_ok=True)
            self._words.close()
            raise
        self._queue: queue.Queue[NDArray[np.uint8] | None] = queue.Queue(_QUEUED_WRITES)
        self._thread = threading.Thread(target=self._feed, name=f"encode {self.path.name}", daemon=True)
        self._thread.start()

    def write(self, frames: NDArray[np.uint8]) -> None:
        """Add frames; the array must not be changed afterwards.

        Args:
            frames: `(n, height, width, 3)` or `(height, width, 3)` uint8.

        Raises:
            InvalidArgumentError: The frames have another size or type.
            VideoError: ffmpeg failed; the message has its own words.
        """
        if self._closed:
            raise VideoError(f"The video {self.path} is closed: no frame can be added.")
        frames = frames[np.newaxis] if frames.ndim == 3 else frames
        if frames.shape[1:] != (*self._size, 3) or frames.dtype != np.uint8:
            raise InvalidArgumentError(
                f"Frames for {self.path} must be uint8 of shape (n, {self._size[0]}, {self._size[1]}, 3), "
                f"found {frames.dtype} of shape {frames.shape}."
            )
        if self._error is not None:
            raise self._error
        self._queue.put(frames)
        self.n_frames += len(frames)

    def close(self) -> None:
        """Finish the video and give it its name.

        Raises:
            VideoError: No frame was written, or ffmpeg failed; the message has its own words.
        """
        if self._closed:
            return
        try:
            self._queue.put(None)
            self._thread.join()
            if self._error is None and self.n_frames == 0:
                self._error = VideoError(f"The video {self.path} has no frames: at least one is needed.")
            if self._error is None and self._ffmpeg.wait() != 0:
                self._error = self._failure()
            if self._error is not None:
                raise self._error
            self._publish()
        finally:
            self.abort()

    def abort(self) -> None:
        """Stop encoding and remove what was written; after `close` it does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._ffmpeg.poll() is None:
            self._ffmpeg.kill()
        self._ffmpeg.wait()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=0.05)
            self._thread.join(0.05)
        self._words.close()
        self._unfinished.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _feed(self) -> None:
        assert self._ffmpeg.stdin is not None
        try:
            with self._ffmpeg.stdin as pipe:
                while (frames := self._queue.get()) is not None:
                    if self._size[0] % 2 or self._size[1] % 2:
                        frames = np.pad(frames, self._edges, mode="edge")
                    pipe.write(np.ascontiguousarray(frames).data)
        except Exception as error:
            self._ffmpeg.wait()
            self._error = self._failure(error)
            while self._queue.get() is not None:
                pass

    def _failure(self, error: Exception | None = None) -> VideoError:
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()
        return VideoError(
            f"ffmpeg could not write the video {self.path} (exit status {self._ffmpeg.returncode}). "
            f"It said: {words or error or 'nothing'}"
        )

    def _publish(self) -> None:
        try:
            self._unfinished.replace(self.path)
        except OSError as error:
            raise VideoError(
                f"The video {self.path} cannot be written: {error.strerror or error}."
            ) from error


def write_video(
    path: str | os.PathLike[str],
    frames: NDArray[np.uint8],
    fps: float,
    *,
    crf: int = DEFAULT_CRF,
    preset: str = DEFAULT_PRESET,
) -> None:
    """Write frames that are all in memory; see `VideoWriter`.

    Args:
        path: The file to write.
        frames: `(n, height, width, 3)` uint8.
        fps: Frames per second; may be fractional.
        crf: Quality, from 0 (lossless) to 51.
        preset: Speed of the encoder, from "ultrafast" to "veryslow".

    Raises:
        InvalidArgumentError: The frames are no such array.
        VideoError: There are no frames, or ffmpeg failed.
    """
    if frames.ndim != 4:
        raise InvalidArgumentError(f"Frames for {path} must be (n, height, width, 3), found {frames.shape}.")
    with VideoWriter(path, frames.shape[1], frames.shape[2], fps, crf=crf, preset=preset) as video:
        for start in range(0, len(frames), 64):
            video.write(frames[start : start + 64])


def write_png(path: str | os.PathLike[str], picture: NDArray[np.uint8]) -> None:
    """Write one RGB picture, replaced whole or not at all.

    Args:
        path: The file to write. Missing folders are made.
        picture: `(height, width, 3)` uint8.

    Raises:
        VideoError: The file cannot be written.
    """
    from PIL import Image

    path = Path(path)
    unfinished = _unfinished(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(unfinished, format="png")
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise VideoError(f"The picture {path} cannot be written: {error.strerror or error}.") from error


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name[:64]}.{uuid.uuid4().hex}.partial")


def _ffmpeg_command(path: Path, height: int, width: int, fps: float, crf: int, preset: str) -> list[Any]:
    import imageio_ffmpeg

    try:
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise MissingDependencyError(
            f"No ffmpeg to write a video with ({error}). Install imageio-ffmpeg's wheel, which brings one, "
            "or set IMAGEIO_FFMPEG_EXE to the path of one."
        ) from error
    rate = Fraction(fps).limit_denominator(_LARGEST_DENOMINATOR)
    command = [ffmpeg, "-y", "-hide_banner", "-loglevel", "error"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", f"{width}x{height}"]
    command += ["-framerate", f"{rate.numerator}/{rate.denominator}", "-i", "pipe:0", "-an"]
    colors = "setparams=color_primaries=bt709:color_trc=bt709"
    command += ["-vf", f"scale=out_color_matrix=bt709:out_range=tv,format=yuv420p,{colors}"]
    command += ["-c:v", "libx264", "-crf", str(crf), "-preset", preset, "-pix_fmt", "yuv420p"]
    # Without "file:" a colon in the name would be read as the end of a protocol.
    return [*command, "-movflags", "+faststart", "-f", "mp4", f"file:{path}"]
