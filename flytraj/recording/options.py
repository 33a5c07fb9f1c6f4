"""What all recorders can be asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import mujoco
from numpy.typing import DTypeLike

from flytraj.clock import Sampling
from flytraj.errors import InvalidArgumentError
from flytraj.schema import as_number_dtype
from flytraj.store.create import COMPRESSIONS, Compression, Mode

__all__ = ["Channels", "Options", "OptionsDict", "StorageDict"]

Channels = Mapping[str, tuple[tuple[int, ...], DTypeLike]]


class StorageDict(TypedDict, total=False):
    """Keyword arguments about what is stored and how; see `Options`."""

    mode: Mode
    dtype: DTypeLike | None
    compression: Compression
    embed_model: bool
    spec: mujoco.MjSpec | None
    sampling: Sampling
    flush_interval: float | None
    block_frames: int | None


class OptionsDict(StorageDict, total=False):
    """Keyword arguments that every recorder takes; see `Options`."""

    fields: Iterable[str]
    channels: Channels


@dataclass(frozen=True)
class Options:
    """Keyword arguments that every recorder takes.

    Attributes:
        mode: `"w-"` makes a new dataset and never overwrites, `"w"` replaces one, `"a"` appends to one of the
            same model, worlds, fields and clock, or makes it.
        fields: MjData fields of fixed size to record besides qpos and the mocap poses, by MuJoCo's name.
        channels: The user's own arrays: name to (shape of one world's value, dtype). They are handed over
            with each call, as in `record_as_needed(data, reward=r)`.
        dtype: Dtype of floating-point fields; None keeps the source's (float64 on the CPU, float32 on Warp).
        compression: `"lz4"`, `"zstd"` (smaller, slower) or `"none"`.
        embed_model: Whether the compiled model is stored with the data.
        spec: The model's MjSpec, to store the XML with its assets too.
        sampling: Rule of the frame clock, see `FrameClock`.
        flush_interval: Seconds after which an unfinished block is committed too: what a power loss can cost.
            None commits whole blocks only.
        block_frames: Frames of a block; None lets flytraj choose.
    """

    mode: Mode = "w-"
    fields: Iterable[str] = ()
    channels: Channels = field(default_factory=dict)
    dtype: DTypeLike | None = None
    compression: Compression = "lz4"
    embed_model: bool = True
    spec: mujoco.MjSpec | None = None
    sampling: Sampling = "grid"
    flush_interval: float | None = 30.0
    block_frames: int | None = None

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise InvalidArgumentError(
                f"compression must be one of {', '.join(COMPRESSIONS)}, not {self.compression!r}."
            )
        if self.dtype is not None:
            as_number_dtype("dtype", self.dtype, kinds="f")
        if self.flush_interval is not None and not self.flush_interval > 0:
            raise InvalidArgumentError(
                f"flush_interval must be positive seconds or None, not {self.flush_interval!r}."
            )
        if not isinstance(self.channels, Mapping) or not all(map(_is_channel, self.channels.values())):
            raise InvalidArgumentError(
                'channels names arrays with (shape of one world\'s value, dtype), such as {"reward": ((), "float32")}; '
                f"found {self.channels!r}."
            )


def _is_channel(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], (tuple, list))
