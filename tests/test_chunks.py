"""Small boxes, read chunk by chunk: what TensorStore reads, and nothing where a chunk is not whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flytraj as ft
from flytraj.errors import CorruptDatasetError
from flytraj.store.chunks import ChunkReader
from flytraj.store.create import read_description
from flytraj.store.engine import open_engine
from tests.damage import flip

SHAPE = (150, 200, 3, 5)
VALUES = np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)
"""In shards of 256 x 128 worlds and frames, chunks of 16 x 64."""
COMPRESSIONS = ["lz4", "zstd", "none"]


def write(folder: Path, compression: Any) -> Path:
    ft.write_dataset(
        folder,
        None,
        qpos=np.zeros((*SHAPE[:2], 2)),
        time=np.arange(SHAPE[1]) * 0.02,
        channels={"touch": VALUES, "on": VALUES[..., 0, 0] > 0},
        block_frames=128,
        compression=compression,
    )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write(tmp_path_factory.mktemp(name) / "a.zarr", name) for name in COMPRESSIONS}


def reader(folder: Path, name: str = "touch") -> ChunkReader:
    found = ChunkReader.of(folder / name, read_description(open_engine(folder)).documents[name])
    assert found is not None
    return found


def ranges(size: int) -> st.SearchStrategy[slice]:
    return st.tuples(st.integers(0, size), st.integers(0, size)).map(lambda ends: slice(*sorted(ends)))


def places(size: int) -> st.SearchStrategy[NDArray[np.int64]]:
    return st.lists(st.integers(0, size - 1), max_size=6).map(lambda listed: np.array(listed, np.int64))


@given(data=st.data(), compression=st.sampled_from(COMPRESSIONS), axis=st.integers(0, 4))
def test_a_box_has_the_values_that_were_written(
    folders: dict[str, Path], data: st.DataObject, compression: str, axis: int
) -> None:
    """Of ranges, or with an array of places along one dim (none for axis 4), in any order and repeated."""
    box: tuple[Any, ...] = tuple(
        data.draw(places(size) if i == axis else ranges(size)) for i, size in enumerate(SHAPE)
    )
    values = reader(folders[compression]).read(box)
    assert values is not None
    assert np.array_equal(values, VALUES[box])
    assert values.dtype == VALUES.dtype
    flags = reader(folders[compression], "on").read(box[:2])
    assert flags is not None
    assert flags.dtype == np.bool_
    assert np.array_equal(flags, VALUES[box[:2]][..., 0, 0] > 0)


def test_it_tells_how_many_chunks_a_box_touches(folders: dict[str, Path]) -> None:
    everything = slice(0, 3), slice(0, 5)
    count = reader(folders["lz4"]).n_chunks
    assert count((slice(15, 16), slice(64, 65), *everything)) == 1
    assert count((slice(15, 17), slice(63, 129), *everything)) == 2 * 3
    assert count((np.array([149, 3, 0]), slice(0, 200), *everything)) == 2 * 4
    assert count((slice(7, 7), slice(0, 200), *everything)) == 0


def _without_a_shard(folder: Path, shard: Path) -> None:
    shard.unlink()


def _cut_short(folder: Path, shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-7])


def _empty(folder: Path, shard: Path) -> None:
    shard.write_bytes(b"")


def _with_a_wrong_bit(folder: Path, shard: Path) -> None:
    flip(shard, 100)


def _with_a_wrong_bit_in_the_index(folder: Path, shard: Path) -> None:
    flip(shard, len(shard.read_bytes()) - 20)


@pytest.mark.parametrize(
    "harm", [_without_a_shard, _cut_short, _empty, _with_a_wrong_bit, _with_a_wrong_bit_in_the_index]
)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_chunk_that_is_not_whole_is_never_read(
    tmp_path: Path, compression: str, harm: Callable[[Path, Path], None]
) -> None:
    folder = write(tmp_path / "a.zarr", compression)
    shards = [folder / "touch" / f"c.0.{number}.0.0" for number in (0, 1)]
    assert all(shard.exists() for shard in shards)
    harm(folder, shards[0])
    everything = slice(0, 3), slice(0, 5)
    assert reader(folder).read((slice(0, 2), slice(60, 64), *everything)) is None
    ds = ft.open_dataset(folder)
    with pytest.raises(CorruptDatasetError):
        ds.touch[0, 0].load()
    assert np.array_equal(ds.touch[3:5, 128:].values, VALUES[3:5, 128:])


def test_arrays_of_another_making_are_left_to_tensorstore(folders: dict[str, Path]) -> None:
    documents = read_description(open_engine(folders["lz4"])).documents
    assert ChunkReader.of(folders["lz4"] / "time", documents["time"]) is None
    document = documents["touch"]
    inner = document["codecs"][0]["configuration"]["codecs"]
    other = [*inner[:-2], {"name": "gzip", "configuration": {"level": 5}}, inner[-1]]
    codecs = [
        {
            "name": "sharding_indexed",
            "configuration": {**document["codecs"][0]["configuration"], "codecs": other},
        }
    ]
    assert ChunkReader.of(folders["lz4"] / "touch", {**document, "codecs": codecs}) is None


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc/self/io")
def test_one_value_reads_one_chunk(folders: dict[str, Path]) -> None:
    ds = ft.open_dataset(folders["none"])

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    assert ds.touch[20, 70, 1, 2] == VALUES[20, 70, 1, 2]
    assert 16 * 64 * 60 <= bytes_read() - before < 16 * 64 * 60 + 2000
