"""Recovery of the frames that a killed recording left in its block files."""

from __future__ import annotations

import contextlib
import datetime
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flytraj.block import Block, BlockHeader, read_block_header
from flytraj.store.commit import write_frames
from flytraj.store.description import Description
from flytraj.store.engine import SCRATCH, Engine, is_unfinished

__all__ = [
    "FramesSetAsideWarning",
    "Recovery",
    "aside_folder",
    "find_recoverable",
    "find_untrusted",
    "recover",
    "warn_set_aside",
]


class FramesSetAsideWarning(UserWarning):
    """Block files hold frames that cannot be trusted, or do not belong to the dataset: they were set aside."""


@dataclass(frozen=True)
class Recovery:
    """What a recovery did.

    Attributes:
        description: The dataset, recovered frames committed.
        n_frames: Number of frames recovered.
        set_aside: Block files with frames that were not committed, where they lie now.
    """

    description: Description
    n_frames: int
    set_aside: tuple[Path, ...] = ()


def recover(engine: Engine, description: Description) -> Recovery:
    """Commit what the block files of a killed recording hold, and remove them.

    A file from before the machine was started anew is not trusted: after a power loss the count of its frames
    may have reached the disk and the frames not. It is set aside, as is one that does not go on from the
    committed frames.

    Args:
        engine: The store, locked.
        description: The dataset as committed.
    """
    if engine.folder is None:
        return Recovery(description, 0)
    before = description.n_frames
    files = list(_block_files(engine.folder, description))
    for path, header in files:
        if header is not None and _goes_on(header, description):
            description = _commit_block(engine, description, path, header)
    set_aside = []
    aside = engine.folder / aside_folder()
    for path, header in files:
        if header is not None and _holds_more(header, description):
            aside.mkdir(exist_ok=True)
            set_aside.append(path.rename(aside / path.name))
        else:
            path.unlink()
    with contextlib.suppress(OSError):
        (engine.folder / SCRATCH).rmdir()
    if files:
        engine.delete(key for key in list(engine.all_keys()) if is_unfinished(key))
    return Recovery(description, description.n_frames - before, tuple(set_aside))


def find_recoverable(engine: Engine, description: Description) -> int:
    """Number of frames that `recover` would commit."""
    if engine.folder is None:
        return 0
    n_frames = description.n_frames
    for _, header in _block_files(engine.folder, description):
        if header is not None and _goes_on(header, description.with_frames(n_frames)):
            n_frames = header.index * description.layout.block_frames + header.n_frames
    return n_frames - description.n_frames


def find_untrusted(engine: Engine, description: Description) -> list[Path]:
    """Block files that `recover` would set aside."""
    if engine.folder is None:
        return []
    recovered = description.with_frames(description.n_frames + find_recoverable(engine, description))
    return [
        path
        for path, header in _block_files(engine.folder, description)
        if header is not None and _holds_more(header, recovered)
    ]


def warn_set_aside(recovery: Recovery) -> None:
    """Say which block files were set aside, if any."""
    for path in recovery.set_aside:
        warnings.warn(
            f"A block file with frames that were not committed was set aside as {path}: it is from before the "
            "machine was started anew, so they may be damaged, or does not go on from what is committed. "
            "Delete it if they are not missed.",
            FramesSetAsideWarning,
            stacklevel=3,
        )


def aside_folder() -> str:
    """Name, in a dataset's folder, for what is taken out of the dataset now."""
    return f"{SCRATCH}/aside-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%fZ}"


def _commit_block(engine: Engine, description: Description, path: Path, header: BlockHeader) -> Description:
    d = description
    block = Block(d.schema, d.n_worlds, d.layout.block_frames, path=path, readonly=True)
    arrays = {name: array[: header.n_frames].swapaxes(0, 1) for name, array in block.arrays.items()}
    return write_frames(engine, d, block.first_frame, block.time[: header.n_frames], arrays)


def _block_files(folder: Path, description: Description) -> Iterator[tuple[Path, BlockHeader | None]]:
    """The block files in the order of their frames; without a header where nothing was recorded."""
    d = description
    found = [
        (path, read_block_header(path, d.schema, d.n_worlds, d.layout.block_frames))
        for path in (folder / SCRATCH).glob("block-*")
    ]
    yield from sorted(found, key=lambda item: -1 if item[1] is None else item[1].index)


def _goes_on(header: BlockHeader, description: Description) -> bool:
    """Whether a block begins where the committed frames end, or before, and holds more."""
    if not (header.fits and header.trusted):
        return False
    first = header.index * description.layout.block_frames
    return first <= description.n_frames < first + header.n_frames


def _holds_more(header: BlockHeader, description: Description) -> bool:
    """Whether a block holds frames that are not committed."""
    if not header.fits:
        return header.n_frames != 0
    last = header.index * description.layout.block_frames + header.n_frames
    return header.n_frames > 0 and last > description.n_frames
