"""What to render and how, in a form that can be sent to another process."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError

__all__ = ["Mode", "Quality", "Settings"]

Mode = Literal["rgb", "depth", "segmentation"]
"""What a pixel holds: a colour, the distance along the camera's axis, or the object seen there."""

Quality = Literal["normal", "draft"]
"""`draft` leaves out shadows, reflections and multisampling."""

_MOST_PIXELS = 1 << 27
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True)
class Settings:
    """What to render, and how.

    Attributes:
        camera_res: `(height, width)` in pixels.
        mode: What a pixel holds.
        quality: "normal" or "draft".
        frames_per_batch: Most frames of a camera in memory at a time; None lets the size decide.
        total_frames: How many frames of a camera there are in all, if known; no batch is larger.
        option: Contents of the caller's MjvOption, by attribute.

    Raises:
        InvalidArgumentError: One has a value that cannot be used.
    """

    camera_res: tuple[int, int] = (240, 320)
    mode: Mode = "rgb"
    quality: Quality = "normal"
    frames_per_batch: int | None = None
    total_frames: int | None = None
    option: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            height, width = map(operator.index, self.camera_res)
        except (TypeError, ValueError):
            height = width = 0
        if height < 1 or width < 1 or height * width > _MOST_PIXELS:
            raise InvalidArgumentError(
                "camera_res must be (height, width), from one pixel each to "
                f"{_MOST_PIXELS:,} pixels a picture, found {self.camera_res!r}."
            )
        object.__setattr__(self, "camera_res", (height, width))
        for name, allowed in (("mode", get_args(Mode)), ("quality", get_args(Quality))):
            if getattr(self, name) not in allowed:
                raise InvalidArgumentError(
                    f"{name} must be one of {', '.join(allowed)}, found {getattr(self, name)!r}."
                )
        if self.frames_per_batch is not None and self.frames_per_batch < 1:
            raise InvalidArgumentError(f"A batch needs at least one frame, found {self.frames_per_batch}.")

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame of one camera."""
        return self.camera_res + {"rgb": (3,), "depth": (), "segmentation": (2,)}[self.mode]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a pixel's numbers."""
        return np.dtype({"rgb": np.uint8, "depth": np.float32, "segmentation": np.int32}[self.mode])

    def batch_size(self, n_cameras: int, most: int = 8) -> int:
        """How many frames of each camera are rendered at a time; without a wish, at most `most`."""
        n_bytes = n_cameras * math.prod(self.frame_shape) * self.dtype.itemsize
        wish = min(most, _BATCH_BYTES // n_bytes) if self.frames_per_batch is None else self.frames_per_batch
        return max(1, wish if self.total_frames is None else min(wish, self.total_frames))

    def empty(self, n_frames: int) -> NDArray[Any]:
        """An array for frames of one camera, not filled."""
        return np.empty((n_frames, *self.frame_shape), self.dtype)

    def scene_option(self) -> mujoco.MjvOption:
        """A new MjvOption with the contents of the caller's."""
        result = mujoco.MjvOption()
        for name, value in self.option.items():
            if isinstance(value, np.ndarray):
                getattr(result, name)[:] = value
            else:
                setattr(result, name, value)
        return result


def option_contents(option: mujoco.MjvOption | None) -> dict[str, Any]:
    """Contents of an MjvOption, by attribute; it cannot be pickled itself."""
    names = [name for name in dir(option) if not name.startswith("_")] if option is not None else []
    values = {name: getattr(option, name) for name in names}
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
