"""MCAP: a message a frame that holds all worlds, in lz4 chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader
from mcap.writer import CompressionType, Writer

from benchmarks.data import INTERVAL, Frames
from benchmarks.peers import count_equal

PACKAGES = ("mcap", "lz4")
SYNCS = False


def record(path: Path, frames: Frames) -> None:
    """Add a message for each frame."""
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.LZ4)
        writer.start()
        schema = writer.register_schema("qpos", "", b"")
        channel = writer.register_channel("/qpos", "float32", schema)
        for i, states in enumerate(frames):
            nanoseconds = round(i * INTERVAL * 1e9)
            writer.add_message(channel, nanoseconds, states.tobytes(), nanoseconds, i)
        writer.finish()


def surviving_frames(path: Path, frames: Frames) -> int:
    """Read messages from the start of the file until it breaks off."""
    found = []
    with path.open("rb") as file:
        try:
            for _, _, message in NonSeekingReader(file).iter_messages(log_time_order=False):
                found.append(np.frombuffer(message.data, frames.states.dtype).reshape(frames.shape[1:]))
        except McapError:
            pass
    return count_equal(np.array(found), frames) if found else 0
