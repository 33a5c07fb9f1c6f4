"""Datasets of known values, and ways to harm them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import flytraj as ft
from flytraj import testing
from flytraj.block import Block
from flytraj.store.create import read_description
from flytraj.store.engine import SCRATCH, open_engine

MODEL = testing.tiny_model().compile()
N_WORLDS = 3


def states(first: int, last: int, n_worlds: int = N_WORLDS) -> dict[str, Any]:
    """State of frames `first` to `last` (exclusive): each value tells world, frame and column."""
    world, frame, column = np.ogrid[:n_worlds, first:last, :13]
    qpos = world * 1000.0 + frame + column / 100
    half = frame[..., 0] / 10.0
    quat = np.stack([np.cos(half), np.sin(half), 0 * half, 0 * half], axis=-1)
    qpos[..., 3:7] = qpos[..., 7:11] = quat
    mocap_quat = np.broadcast_to(quat[:, :, np.newaxis], (n_worlds, last - first, 1, 4))
    return {
        "time": np.arange(first, last) * 0.008,
        "qpos": qpos,
        "mocap_pos": qpos[:, :, np.newaxis, :3],
        "mocap_quat": mocap_quat,
    }


def write(store: Any, first: int, last: int, *, block_frames: int = 8, **options: Any) -> None:
    """Append frames to a dataset, or begin it."""
    ft.write_dataset(
        store,
        MODEL,
        **states(first, last),
        playback_speed=0.2,
        mode="a",
        block_frames=block_frames,
        **options,
    )


def assert_holds(store: Any, n_frames: int) -> None:
    """Check that a dataset holds the first frames, bit for bit, and nothing else."""
    ds = ft.open_dataset(store)
    assert ds.sizes["frame"] == n_frames
    expected = states(0, n_frames)
    for name in ("qpos", "mocap_pos", "mocap_quat"):
        assert ds[name].values.tobytes() == np.ascontiguousarray(expected[name]).tobytes(), name
    assert np.array_equal(ds["sim_time"].values, np.broadcast_to(expected["time"], (N_WORLDS, n_frames)))


def n_committed(path: Path) -> int:
    """Committed frames, by the root document."""
    return int(json.loads((path / "zarr.json").read_bytes())["attributes"]["flytraj"]["n_frames"])


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def leave_block(
    path: Path, index: int, n_frames: int, *, name: str = "block-0", rebooted: bool = False
) -> Path:
    """Put a block file into a dataset, as a killed recording leaves it."""
    description = read_description(open_engine(path))
    size = description.layout.block_frames
    file = path / SCRATCH / name
    file.parent.mkdir(exist_ok=True)
    block = Block(description.schema, description.n_worlds, size, path=file).start(index)
    state = states(index * size, index * size + n_frames)
    for variable in ("qpos", "mocap_pos", "mocap_quat"):
        block.arrays[variable][:n_frames] = state[variable].swapaxes(0, 1)
    block.arrays["sim_time"][:n_frames] = state["time"][:, np.newaxis]
    block.arrays["episode"][:n_frames] = 0
    block.time[:n_frames] = state["time"]
    block.n_frames = n_frames
    if rebooted:
        block._header[3:5] += 1
    return file


def tree(path: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
