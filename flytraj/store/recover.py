"""Recovery of the frames that a killed recording left in its block files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flytraj.block import Block, BlockHeader, read_block_header
from flytraj.store.description import Description
from flytraj.store.engine import Engine
from flytraj.store.folder_engine import SCRATCH
from flytraj.store.writer import write_frames

__all__ = ["Recovery", "find_recoverable", "recover"]


@dataclass(frozen=True)
class Recovery:
    """What a recovery did.

    Attributes:
        description: The dataset, recovered frames committed.
        n_frames: Number of frames recovered.
        untrusted: Block files left alone since the machine was started anew after they were written.
    """

    description: Description
    n_frames: int
    untrusted: tuple[Path, ...] = ()


def recover(engine: Engine, description: Description) -> Recovery:
    """Commit what the block files of a killed recording hold, and remove them.

    Args:
        engine: The store, locked.
        description: The dataset as committed.
    """
    if engine.folder is None:
        return Recovery(description, 0)
    before = description.n_frames
    found = _block_files(engine.folder, description)
    for path, header in found:
        if not header.trusted or not _goes_on(header, description):
            continue
        block = Block(
            description.schema,
            description.n_worlds,
            description.layout.block_frames,
            path=path,
            readonly=True,
        )
        arrays = {name: array[: header.n_frames].swapaxes(0, 1) for name, array in block.arrays.items()}
        description = write_frames(
            engine, description, block.first_frame, block.time[: header.n_frames], arrays
        )
    untrusted = tuple(path for path, header in found if not header.trusted and header.n_frames)
    for path in (engine.folder / SCRATCH).glob("block-*"):
        path.unlink()
    return Recovery(description, description.n_frames - before, untrusted)


def find_recoverable(engine: Engine, description: Description) -> int:
    """Number of frames that `recover` would commit."""
    if engine.folder is None:
        return 0
    n_frames = description.n_frames
    for _, header in _block_files(engine.folder, description):
        if header.trusted and _goes_on(header, description.with_frames(n_frames)):
            n_frames = header.index * description.layout.block_frames + header.n_frames
    return n_frames - description.n_frames


def _block_files(folder: Path, description: Description) -> list[tuple[Path, BlockHeader]]:
    found = []
    for path in (folder / SCRATCH).glob("block-*"):
        header = read_block_header(
            path, description.schema, description.n_worlds, description.layout.block_frames
        )
        if header is not None:
            found.append((path, header))
    return sorted(found, key=lambda item: item[1].index)


def _goes_on(header: BlockHeader, description: Description) -> bool:
    """Whether a block begins where the committed frames end, or before, and holds more."""
    first = header.index * description.layout.block_frames
    return first <= description.n_frames < first + header.n_frames
