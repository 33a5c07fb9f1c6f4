"""Parquet in the layout of LeRobot's datasets: frames of an episode as rows, files of up to 100 MB.

An episode is written when it is over: here one a world, at the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import INTERVAL, Frames

PACKAGES = ("pyarrow",)
SYNCS = False

_FILE_BYTES = 100 * 10**6


def record(path: Path, frames: Frames) -> None:
    """Keep every frame until the end, then write a row group an episode."""
    n_worlds = frames.shape[1]
    episodes = [states.copy() for states in frames]
    folder = path / "data" / "chunk-000"
    folder.mkdir(parents=True)
    n_files, written, writer = 0, 0, None
    for world in range(n_worlds):
        table = _episode(world, np.stack([states[world] for states in episodes]))
        if writer is None or written + table.nbytes > _FILE_BYTES:
            if writer is not None:
                writer.close()
            file = folder / f"file-{n_files:03d}.parquet"
            writer = pq.ParquetWriter(file, table.schema, compression="snappy", use_dictionary=True)
            n_files, written = n_files + 1, 0
        writer.write_table(table)
        written += table.nbytes
    if writer is not None:
        writer.close()


def surviving_frames(path: Path, frames: Frames) -> int:
    """A file without a footer cannot be read, and there is none before the end."""
    n_frames, n_worlds, nq = frames.shape
    try:
        table = pq.read_table(path / "data")
    except (OSError, pa.ArrowInvalid):
        return 0
    values = table["observation.state"].combine_chunks().flatten().to_numpy().reshape(n_worlds, -1, nq)
    return n_frames if np.array_equal(values.swapaxes(0, 1), frames.states) else 0


def _episode(world: int, states: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> pa.Table:
    n_frames, nq = states.shape
    index = np.arange(n_frames)
    return pa.table(
        {
            "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(states.reshape(-1)), nq),
            "timestamp": (index * INTERVAL).astype(np.float32),
            "frame_index": index,
            "episode_index": np.full(n_frames, world),
            "index": world * n_frames + index,
            "task_index": np.zeros(n_frames, np.int64),
        }
    )
