"""What every store must do for a dataset: one suite, and each engine's data read by the others."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import LocalStore, MemoryStore, ZipStore

import flytraj as ft
from flytraj import testing
from flytraj.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    FormatError,
    InvalidArgumentError,
    WriteError,
)
from flytraj.store.create import read_description
from flytraj.store.engine import Engine, Part, open_engine
from flytraj.store.folder_engine import FolderEngine
from flytraj.store.points import read_points_by_row
from flytraj.store.zarr_engine import ZarrEngine

MODEL = testing.tiny_model().compile()
N_WORLDS, N_FRAMES, BLOCK = 5, 21, 8
Make = Callable[[], Any]


def states(n_frames: int = N_FRAMES) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    quats = rng.normal(size=(N_WORLDS, n_frames, 3, 4))
    quats /= np.linalg.norm(quats, axis=-1, keepdims=True)
    qpos = rng.normal(size=(N_WORLDS, n_frames, 13))
    qpos[..., 3:7], qpos[..., 7:11] = quats[:, :, 0], quats[:, :, 1]
    return {
        "time": np.arange(n_frames) * 0.008,
        "qpos": qpos,
        "mocap_pos": rng.normal(size=(N_WORLDS, n_frames, 1, 3)),
        "mocap_quat": quats[:, :, 2:],
        "channels": {
            "reward": rng.normal(size=(N_WORLDS, n_frames)).astype("float32"),
            "touch": rng.integers(0, 2, (N_WORLDS, n_frames, 3)).astype(bool),
            "nothing": np.zeros((N_WORLDS, n_frames, 0), "int16"),
        },
    }


def write(store: Any, **options: Any) -> dict[str, Any]:
    arrays = states()
    ft.write_dataset(store, MODEL, **arrays, block_frames=BLOCK, **options)
    return arrays


def check(ds: xr.Dataset, arrays: dict[str, Any]) -> None:
    for name, values in {**arrays, **arrays["channels"]}.items():
        if name not in ("time", "channels"):
            assert ds[name].dtype == values.dtype
            assert np.array_equal(ds[name].values, values), name
    assert np.array_equal(ds["sim_time"].values, np.broadcast_to(arrays["time"], (N_WORLDS, N_FRAMES)))


@pytest.fixture(params=["folder", "local store", "memory store", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {
        "folder": lambda: tmp_path / "a.zarr",
        "local store": lambda: LocalStore(tmp_path / "b.zarr"),
        "memory store": MemoryStore,
        "fsspec": lambda: f"memory://{tmp_path.name}",
    }[request.param]()


def test_a_local_store_is_the_folder(tmp_path: Path) -> None:
    assert isinstance(open_engine(LocalStore(tmp_path)), FolderEngine)
    assert isinstance(open_engine(MemoryStore()), ZarrEngine)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_what_is_written_is_read(store: Any, compression: Any) -> None:
    arrays = write(store, compression=compression)
    check(ft.open_dataset(store), arrays)
    assert ft.validate(store).ok


def test_plain_zarr_and_xarray_read_it_alone(store: Any) -> None:
    arrays = write(store)
    check(xr.open_zarr(store, consolidated=True, decode_times=False), arrays)
    for consolidated in (True, False):
        group = zarr.open_group(store, mode="r", use_consolidated=consolidated)
        for name in ("qpos", "mocap_quat"):
            array = group[name]
            assert isinstance(array, zarr.Array)
            assert np.array_equal(np.asarray(array[:]), arrays[name])


def test_each_engine_reads_the_others(tmp_path: Path) -> None:
    memory, folder = MemoryStore(), tmp_path / "a.zarr"
    arrays = write(memory)
    write(folder)
    there = set(open_engine(folder).all_keys())
    assert there == set(open_engine(memory).all_keys())
    other = tmp_path / "b.zarr"
    for key, buffer in memory._store_dict.items():
        (other / key).parent.mkdir(parents=True, exist_ok=True)
        (other / key).write_bytes(buffer.to_bytes())
    check(ft.open_dataset(other), arrays)
    engine = ZarrEngine(LocalStore(folder))
    description = read_description(engine)
    for name in ("qpos", "touch", "reward"):
        document = description.documents[name]
        box = tuple(slice(0, size) for size in document["shape"])
        assert np.array_equal(engine.read_array(name, document, box), {**arrays, **arrays["channels"]}[name])
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.rglob("*"):
            file.write(path, path.relative_to(folder))
    zipped = ZipStore(archive, mode="r")
    check(ft.open_dataset(zipped), arrays)
    assert ft.validate(zipped).ok


def test_appending_goes_on(store: Any) -> None:
    arrays = states()
    for first, last in ((0, 5), (5, 6), (6, 16), (16, 21)):
        part = {
            name: value[:, first:last] for name, value in arrays.items() if name not in ("time", "channels")
        }
        ft.write_dataset(
            store,
            MODEL,
            **part,
            time=arrays["time"][first:last],
            channels={name: value[:, first:last] for name, value in arrays["channels"].items()},
            playback_speed=0.2,
            block_frames=BLOCK,
            mode="a",
        )
        assert ft.open_dataset(store).sizes["frame"] == last
    check(ft.open_dataset(store), arrays)
    assert ft.validate(store).ok


def test_outer_and_pointwise_boxes(store: Any) -> None:
    arrays = write(store)
    engine = open_engine(store)
    document = read_description(engine).documents["qpos"]
    worlds, frames = np.array([4, 0, 3]), np.array([20, 7, 8])
    outer = engine.read_array("qpos", document, (worlds, frames, slice(2, 13, 5)))
    assert np.array_equal(outer, arrays["qpos"][np.ix_(worlds, frames, np.array([2, 7, 12]))])
    points = engine.read_points("qpos", document, (worlds, frames, slice(0, 13)))
    assert np.array_equal(points, arrays["qpos"][worlds, frames])


def test_what_was_written_does_not_change_with_the_block_it_came_from(store: Any) -> None:
    """Blocks are filled anew as soon as their shards are durable."""
    write(store)
    engine = open_engine(store)
    document = read_description(engine).documents["qpos"]
    block = np.random.default_rng(5).normal(size=(BLOCK, N_WORLDS, 13))
    for first in (0, 8, 8, 0):
        block += 1
        before = block.swapaxes(0, 1).copy()
        engine.begin_write([Part("qpos", document, (0, first, 0), block.swapaxes(0, 1))]).wait()
        block[:] = -1e9
        box = (slice(0, N_WORLDS), slice(first, first + BLOCK), slice(0, 13))
        assert np.array_equal(engine.read_array("qpos", document, box), before)
        assert np.array_equal(open_engine(store).read_array("qpos", document, box), before)
        block[:] = before.swapaxes(0, 1)


def test_points_are_read_as_one_box_for_each_row_of_chunks() -> None:
    values = np.arange(6 * 40 * 3).reshape(6, 40, 3)
    rng = np.random.default_rng(0)
    worlds, frames = rng.integers(0, 6, (50, 1)), rng.integers(0, 40, (50, 4))
    boxes: list[tuple[Any, ...]] = []

    def begin(*box: Any) -> Any:
        boxes.append(box)
        return lambda: values[box[0]][:, box[1]]

    found = read_points_by_row(worlds, frames, frames // 8, begin)
    assert np.array_equal(found, values[worlds, frames])
    rows = [range(box[1].start // 8, -(-box[1].stop // 8)) for box in boxes]
    assert sorted(row for touched in rows for row in touched) == [0, 1, 2, 3, 4]
    for distinct, _ in boxes:
        assert np.array_equal(distinct, np.unique(distinct))
    nothing = np.empty((0, 4), int)
    assert read_points_by_row(nothing, nothing, nothing, begin).shape == (0, 4, 3)


def shard(engine: Engine, key: str) -> bytes:
    data = engine.read(key)
    assert data is not None
    return data


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: flipped(data, len(data) // 3),
        lambda data: flipped(data, -7),
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + data[:40],
    ],
    ids=["flipped bit", "flipped bit in the index", "cut", "empty", "too long"],
)
def test_a_damaged_shard_is_an_error(store: Any, damage: Callable[[bytes], bytes]) -> None:
    arrays = write(store)
    engine = open_engine(store)
    engine.replace("qpos/c.0.1.0", damage(shard(engine, "qpos/c.0.1.0")))
    ds = ft.open_dataset(store)
    assert np.array_equal(ds["qpos"][:, :8].values, arrays["qpos"][:, :8])
    with pytest.raises(CorruptDatasetError, match="'qpos'"):
        ds["qpos"][:, 8:16].load()


@pytest.mark.parametrize("name", ["qpos", "touch", "episode"])
def test_a_lost_shard_is_an_error_and_not_fill_values(store: Any, name: str) -> None:
    write(store)
    engine = open_engine(store)
    (key,) = (key for key in engine.all_keys() if key.startswith(f"{name}/c.0.1"))
    engine.delete([key])
    ds = ft.open_dataset(store)
    ds[name][:, :8].load()
    with pytest.raises(CorruptDatasetError, match=name):
        ds[name][:, 7:12].load()


def test_keys_are_replaced_kept_and_deleted(store: Any) -> None:
    engine = open_engine(store, create=True)
    assert engine.read("a/b") is None
    engine.replace("a/b", b"one")
    engine.replace("a/b", b"two", durable=False)
    engine.replace("c", b"three")
    engine.keep(["a/b"], "kept/1")
    engine.replace("a/b", b"four")
    assert engine.read("kept/1/a/b") == b"two"
    engine.delete(["a/b", "a/never"])
    engine.sync()
    assert engine.read("a/b") is None
    assert sorted(engine.all_keys()) == ["c", "kept/1/a/b"]


def test_shards_are_replaced_whole(store: Any) -> None:
    write(store)
    engine = open_engine(store)
    document = read_description(engine).documents["qpos"]
    values = np.full((N_WORLDS, BLOCK, 13), np.nan)
    values[:, :2] = 7
    engine.write([Part("qpos", document, (0, 16, 0), values)])
    read = engine.read_array("qpos", document, (slice(0, N_WORLDS), slice(0, N_FRAMES), slice(0, 13)))
    assert (read[:, 16:18] == 7).all()
    assert np.isnan(read[:, 18:]).all()
    assert np.array_equal(read[:, :16], states()["qpos"][:, :16])


def test_fill_values_are_written(tmp_path: Path) -> None:
    for store in (tmp_path / "a.zarr", memory := MemoryStore()):
        ft.write_dataset(store, None, qpos=np.full((2, 16, 3), np.nan), time=np.arange(16.0), block_frames=8)
        assert np.isnan(ft.open_dataset(store)["qpos"].values).all()
    assert "qpos/c.0.1.0" in memory._store_dict
    assert (tmp_path / "a.zarr" / "qpos" / "c.0.1.0").exists()


def test_archives_and_read_only_stores_are_refused(tmp_path: Path) -> None:
    archive = ZipStore(tmp_path / "a.zip", mode="w")
    with pytest.raises(InvalidArgumentError, match="record to a folder"):
        write(archive)
    for closed in (MemoryStore(read_only=True), LocalStore(tmp_path / "b", read_only=True)):
        with pytest.raises(WriteError, match="read-only"):
            write(closed)
    assert not (tmp_path / "b").exists()


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        ft.open_dataset(ZipStore(tmp_path / "a.zip", mode="r"))
    (tmp_path / "a.zip").write_text("no archive")
    with pytest.raises(FormatError, match="no ZIP archive"):
        ft.validate(ZipStore(tmp_path / "a.zip", mode="r"))


def test_a_folder_engine_travels(tmp_path: Path) -> None:
    arrays = write(tmp_path / "a.zarr")
    engine = pickle.loads(pickle.dumps(open_engine(tmp_path / "a.zarr")))
    document = read_description(engine).documents["qpos"]
    box = (slice(0, N_WORLDS), slice(0, N_FRAMES), slice(0, 13))
    assert np.array_equal(engine.read_array("qpos", document, box), arrays["qpos"])


def test_what_the_machine_cannot_read_is_not_damage(tmp_path: Path) -> None:
    write(tmp_path / "a.zarr")
    ds = ft.open_dataset(tmp_path / "a.zarr")
    ds["qpos"][:, :8].load()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files") as raised:
            ds["qpos"][:, 8:].load()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not isinstance(raised.value, CorruptDatasetError)
    assert raised.value.errno == errno.EMFILE
