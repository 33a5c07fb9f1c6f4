"""Views: what is read and what is not, xarray's own selection against NumPy, plain Zarr beside it."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore

import flytraj as ft
from flytraj import testing
from flytraj.dataset import DamagedLabelsWarning
from flytraj.errors import (
    CorruptDatasetError,
    DatasetNotFoundError,
    FieldNotFoundError,
    FormatError,
    InvalidArgumentError,
    ModelMismatchError,
)
from flytraj.model import check_fingerprint, kinematic_layout

N_WORLDS, N_FRAMES, NQ = 10, 50, 13
MODEL = testing.tiny_model().compile()


def states(n_worlds: int = N_WORLDS, n_frames: int = N_FRAMES) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "qpos": rng.normal(size=(n_worlds, n_frames, NQ)).astype(np.float32),
        "mocap_pos": rng.normal(size=(n_worlds, n_frames, 1, 3)).astype(np.float32),
        "mocap_quat": rng.normal(size=(n_worlds, n_frames, 1, 4)).astype(np.float32),
    }


STATES = states()
TIME = np.arange(N_FRAMES) * 0.02


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset") / "a.zarr"
    ft.write_dataset(path, MODEL, time=TIME, **STATES, block_frames=16)
    return path


@pytest.fixture
def ds(path: Path) -> xr.Dataset:
    return ft.open_dataset(path)


class CountingStore(MemoryStore):
    """A store that notes each key it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self.reads[key] += 1
        return await super().get(key, prototype, byte_range)


@pytest.fixture
def counted() -> CountingStore:
    store = CountingStore()
    ft.write_dataset(store, MODEL, time=TIME, **STATES, block_frames=16)
    store.reads.clear()
    return store


def test_opening_reads_the_root_and_the_labels_only(counted: CountingStore) -> None:
    ft.open_dataset(counted)
    arrays = {key.split("/")[0] for key in counted.reads if "/" in key}
    assert counted.reads["zarr.json"] == 1
    assert arrays == {"world", "nq", "nmocap", "xyz", "wxyz"}


def test_a_slice_reads_its_shards_only(counted: CountingStore) -> None:
    ds = ft.open_dataset(counted)
    counted.reads.clear()
    part = ds.isel(frame=slice(20, 30))
    assert not counted.reads
    assert np.array_equal(part.qpos.values, STATES["qpos"][:, 20:30])
    assert {key for key in counted.reads if not key.endswith("zarr.json")} == {"qpos/c.0.1.0"}


def test_a_slice_of_a_folder_reads_a_part_of_its_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    qpos = rng.normal(size=(512, 64, 64)).astype(np.float32)
    ft.write_dataset(tmp_path / "a", None, qpos=qpos, time=np.arange(64) * 0.02, block_frames=32)
    ds = ft.open_dataset(tmp_path / "a")

    def bytes_read() -> int:
        name = "/tensorstore/kvstore/file/bytes_read"
        metrics = tensorstore.experimental_collect_matching_metrics(name)
        return int(metrics[0]["values"][0]["value"])

    before = bytes_read()
    assert np.array_equal(ds.qpos.isel(world=[5], frame=slice(3, 7)).values, qpos[[5], 3:7])
    assert bytes_read() - before < 0.01 * qpos.nbytes
    before = bytes_read()
    assert np.array_equal(ds.qpos.values, qpos)
    assert 0.8 * qpos.nbytes < bytes_read() - before < 1.1 * qpos.nbytes


def test_a_view_has_the_designs_names(ds: xr.Dataset) -> None:
    assert dict(ds.sizes) == {"world": 10, "frame": 50, "nq": 13, "nmocap": 1, "xyz": 3, "wxyz": 4}
    assert set(ds.coords) == {"world", "time", "sim_time", "episode", "nq", "nmocap", "xyz", "wxyz"}
    assert set(ds.data_vars) == {"qpos", "mocap_pos", "mocap_quat"}
    assert ds.qpos.dims == ("world", "frame", "nq")
    assert ds.mocap_quat.dims == ("world", "frame", "nmocap", "wxyz")
    assert ds.time.dtype == ds.sim_time.dtype == np.float64
    assert ds.episode.dtype == np.int32
    assert ds.attrs["output_fps"] == 25
    assert ds.attrs["playback_speed"] == 0.5


def test_time_selects_by_the_recordings_clock(ds: xr.Dataset) -> None:
    assert np.array_equal(ds.sel(time=slice(0.3, 0.5)).qpos.values, STATES["qpos"][:, 15:26])
    assert np.array_equal(ds.sel(time=0.411, method="nearest").qpos.values, STATES["qpos"][:, 21])
    assert ds.sel(time=slice(5, 6)).sizes["frame"] == 0
    again = ds.isel(frame=slice(10, 40, 2)).sel(time=slice(0.3, 0.5))
    assert np.array_equal(again.qpos.values, STATES["qpos"][:, 16:26:2])
    with pytest.raises(KeyError):
        ds.sel(time=0.411)


def test_worlds_and_labels_select_by_name(ds: xr.Dataset) -> None:
    assert np.array_equal(ds.sel(world=[3, 7]).qpos.values, STATES["qpos"][[3, 7]])
    assert np.array_equal(ds.sel(nq="hip").qpos.values, STATES["qpos"][..., 11])
    assert np.array_equal(ds.sel(nq=["root/z", "root/x"]).qpos.values, STATES["qpos"][..., [2, 0]])
    with pytest.raises(KeyError):
        ds.sel(world=[99])


def _indexers(size: int) -> st.SearchStrategy[Any]:
    places = st.integers(-size, size - 1)
    masks = st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)
    return st.one_of(
        places, st.slices(size), st.lists(places, max_size=6).map(lambda p: np.array(p, int)), masks
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(world=_indexers(N_WORLDS), frame=_indexers(N_FRAMES), nq=_indexers(NQ), again=_indexers(3))
def test_any_indexer_gives_what_numpy_gives(
    ds: xr.Dataset, world: Any, frame: Any, nq: Any, again: Any
) -> None:
    expected = xr.Variable(("world", "frame", "nq"), STATES["qpos"]).isel(world=world, frame=frame, nq=nq)
    view = ds.qpos.isel(world=world, frame=frame, nq=nq)
    assert view.dims == expected.dims
    if "frame" in view.dims and view.sizes["frame"] >= 3:
        expected = expected.isel(frame=slice(0, 3)).isel(frame=again)
        view = view.isel(frame=slice(0, 3)).isel(frame=again)
    assert np.array_equal(view.values, expected.values)


def test_points_of_worlds_and_frames(ds: xr.Dataset) -> None:
    worlds, frames = xr.DataArray([3, 0, 9], dims="pick"), xr.DataArray([49, 16, 2], dims="pick")
    picked = ds.qpos.isel(world=worlds, frame=frames)
    assert np.array_equal(picked.values, STATES["qpos"][[3, 0, 9], [49, 16, 2]])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(data=st.data(), memory=st.booleans())
def test_any_points_give_what_numpy_gives(
    ds: xr.Dataset, counted: CountingStore, data: st.DataObject, memory: bool
) -> None:
    n = data.draw(st.integers(0, 5))
    length = data.draw(st.integers(1, 4))

    def places(size: int, *shape: int) -> Any:
        drawn = data.draw(
            st.lists(st.integers(-size, size - 1), min_size=(total := int(np.prod(shape))), max_size=total)
        )
        return np.array(drawn, int).reshape(shape)

    indexers: dict[str, Any] = {
        "world": xr.Variable("pick", places(N_WORLDS, n)),
        "frame": data.draw(
            st.sampled_from(
                [
                    xr.Variable(("pick", "step"), places(N_FRAMES, n, length)),
                    xr.Variable("step", places(N_FRAMES, length)),
                    slice(40, 3, -3),
                ]
            )
        ),
        "nq": data.draw(
            st.sampled_from([slice(None), slice(9, 2, -2), 3, xr.Variable("step", places(NQ, length))])
        ),
    }
    view = (ft.open_dataset(counted) if memory else ds).qpos
    whole = xr.Variable(("world", "frame", "nq"), STATES["qpos"])
    if data.draw(st.booleans()):
        view, whole = view.isel(frame=slice(None, None, -1)), whole.isel(frame=slice(None, None, -1))
    expected = whole.isel(indexers)
    got = view.isel(indexers)
    assert got.dims == expected.dims
    assert np.array_equal(got.values, expected.values)


def test_places_out_of_bounds_are_index_errors_and_slices_are_clipped(ds: xr.Dataset) -> None:
    for indexers in ({"frame": 50}, {"world": -11}, {"frame": [0, 50]}, {"nq": np.array([13])}):
        with pytest.raises(IndexError):
            ds.qpos.isel(indexers).load()
    with pytest.raises(IndexError):
        ds.qpos.isel(world=xr.Variable("p", [0, 10]), frame=xr.Variable("p", [0, 0])).load()
    assert ds.isel(frame=slice(40, 99)).sizes["frame"] == 10
    assert ds.isel(frame=slice(60, 99)).qpos.values.shape == (10, 0, 13)


def test_dask_only_on_request(path: Path, ds: xr.Dataset) -> None:
    assert ds.chunks == {}
    chunked = ft.open_dataset(path, chunks={"frame": 16})
    assert chunked.chunks["frame"] == (16, 16, 16, 2)
    assert np.array_equal(chunked.qpos[:, ::7].compute(), STATES["qpos"][:, ::7])


def test_xarray_opens_it_by_engine_and_plainly(path: Path, ds: xr.Dataset) -> None:
    with xr.open_dataset(path, engine="flytraj") as by_engine:
        xr.testing.assert_identical(by_engine.load(), ds.load())
    with xr.open_dataset(path, engine="flytraj", drop_variables=["mocap_pos"]) as fewer:
        assert "mocap_pos" not in fewer
    plain = xr.open_zarr(path, chunks=None)
    assert set(plain.coords) == set(ds.coords)
    for name in ("qpos", "mocap_pos", "mocap_quat", "sim_time", "episode", "time"):
        assert np.array_equal(plain[name].values, ds[name].values), name
        assert plain[name].dtype == ds[name].dtype
    assert plain.nq.values.tolist() == ds.nq.values.tolist()


def test_arrays_own_metadata_follows_the_commit(path: Path) -> None:
    plain = xr.open_zarr(path, chunks=None, consolidated=False)
    assert plain.sizes["frame"] == N_FRAMES
    assert np.array_equal(plain.qpos.values, STATES["qpos"])


def test_a_view_travels_to_another_process(ds: xr.Dataset) -> None:
    view = pickle.loads(pickle.dumps(ds.isel(world=slice(2, 4))))
    assert np.array_equal(view.qpos.values, STATES["qpos"][2:4])
    assert view.traj.trajectory(3).n_frames == N_FRAMES


def test_a_view_can_be_saved_elsewhere(ds: xr.Dataset, tmp_path: Path) -> None:
    loaded = ds.isel(frame=slice(5)).drop_encoding()
    loaded.to_zarr(tmp_path / "copy.zarr", consolidated=False, zarr_format=3)
    assert np.array_equal(
        xr.open_zarr(tmp_path / "copy.zarr", consolidated=False).qpos, STATES["qpos"][:, :5]
    )


def test_trajectories_of_a_view(ds: xr.Dataset) -> None:
    view = ds.sel(world=[8, 2], time=slice(0.1, 0.3))
    both = view.traj.trajectories()
    assert [t.world_id for t in both] == [8, 2]
    for trajectory in (both[1], view.traj.trajectory(2), view.isel(world=1).traj.trajectory()):
        assert np.array_equal(trajectory.qpos, STATES["qpos"][2, 5:16])
        assert np.array_equal(trajectory.time, TIME[5:16])
        assert np.array_equal(np.asarray(trajectory.mocap_quat), STATES["mocap_quat"][2, 5:16])
        assert (trajectory.output_fps, trajectory.playback_speed) == (25, 0.5)
    with pytest.raises(FieldNotFoundError, match=r"World 3 is not in the view \(8, 2\)"):
        view.traj.trajectory(3)
    with pytest.raises(InvalidArgumentError, match="2 worlds"):
        view.traj.trajectory()
    with pytest.raises(InvalidArgumentError, match="'qpos'"):
        view[["mocap_pos"]].traj.trajectories()


def test_clips_read_a_stretch_at_a_time(counted: CountingStore) -> None:
    clip = ft.open_dataset(counted).traj.clips()[4]
    counted.reads.clear()
    assert (clip.world_id, clip.n_frames, clip.nq, clip.nmocap, clip.output_fps) == (4, 50, 13, 1, 25)
    assert not counted.reads
    part = clip.read(17, 20)
    assert np.array_equal(part.qpos, STATES["qpos"][4, 17:20])
    shards = {key for key in counted.reads if "/c." in key}
    assert shards == {"qpos/c.0.1.0", "mocap_pos/c.0.1.0.0", "mocap_quat/c.0.1.0.0", "sim_time/c.0.1"}


def test_episodes_of_a_view_against_a_slow_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import flytraj.episodes

    rng = np.random.default_rng(1)
    starts = rng.random((7, 60)) < 0.1
    starts[:, 0] = False
    episode = starts.cumsum(axis=1)
    age = np.zeros((7, 60))
    for frame in range(1, 60):
        age[:, frame] = np.where(starts[:, frame], 0, age[:, frame - 1] + 1)
    ft.write_dataset(tmp_path / "a", None, qpos=np.zeros((7, 60, 1)), time=age * 0.1, block_frames=8)
    ds = ft.open_dataset(tmp_path / "a")
    # A frame whose time did not go back begins no episode, so starts at age 0 after age 0 are not seen.
    assert np.array_equal(ds.episode.values, ((np.diff(age, axis=1, prepend=0) < 0).cumsum(axis=1)))
    monkeypatch.setattr(flytraj.episodes, "_SCAN_BYTES", 12 * 7 * 9)
    view = ds.isel(world=slice(1, 6), frame=slice(3, None))
    episode = view.episode.values
    expected = []
    for i, world in enumerate(range(1, 6)):
        for number in np.unique(episode[i]):
            frames = np.flatnonzero(episode[i] == number)
            times = view.sim_time.values[i, frames]
            expected.append((world, number, frames[0], frames[-1], round(times[-1] - times[0], 9)))
    table = view.traj.episodes().round(9)
    assert list(table.itertuples(index=False, name=None)) == expected
    assert list(table.columns) == ["world", "episode", "first_frame", "last_frame", "duration"]


def test_episodes_read_no_state(counted: CountingStore) -> None:
    ds = ft.open_dataset(counted)
    counted.reads.clear()
    ds.traj.episodes()
    assert {key.split("/")[0] for key in counted.reads} == {"episode", "sim_time"}


def test_the_embedded_model_comes_back(ds: xr.Dataset, tmp_path: Path) -> None:
    check_fingerprint(kinematic_layout(MODEL), ds.traj.model(), what="it")
    ds.traj.check_model(MODEL)
    with pytest.raises(ModelMismatchError, match="First difference"):
        ds.isel(frame=slice(3)).traj.check_model(testing.pendulum().compile())
    ft.write_dataset(tmp_path / "b", MODEL, time=TIME, **STATES, embed_model=False)
    with pytest.raises(FormatError, match="holds no model"):
        ft.open_dataset(tmp_path / "b").traj.model()


def test_a_spec_is_embedded_with_its_assets(tmp_path: Path) -> None:
    spec = testing.mesh_model()
    model = spec.compile()
    qpos = np.zeros((1, 2, model.nq))
    ft.write_dataset(tmp_path / "a", model, qpos=qpos, time=[0, 0.1], spec=spec, embed_model=False)
    loaded = ft.open_dataset(tmp_path / "a").traj.model()
    assert np.array_equal(loaded.mesh_vert, model.mesh_vert)


def test_what_is_no_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="nothing"):
        ft.open_dataset(tmp_path / "nothing")
    with pytest.raises(FormatError, match="no flytraj dataset"):
        ft.open_dataset(tmp_path)
    xr.Dataset({"a": ("x", [1.0])}).to_zarr(tmp_path / "other", zarr_format=3, consolidated=False)
    with pytest.raises(FormatError, match="no flytraj dataset"):
        ft.open_dataset(tmp_path / "other")
    with pytest.raises(InvalidArgumentError, match="a path, a URL or a Zarr store"):
        ft.open_dataset(3)
    with pytest.raises(InvalidArgumentError, match="Protocol not known: carrier-pigeon"):
        ft.open_dataset("carrier-pigeon://coop/a")
    (tmp_path / "zarr.json").write_text('{"attributes": {"flytraj": {"form')
    with pytest.raises(FormatError, match="it is no JSON"):
        ft.open_dataset(tmp_path)


def test_a_path_may_begin_with_the_home_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    monkeypatch.setenv("USERPROFILE", str(path.parent))
    assert ft.open_dataset(f"~/{path.name}").sizes["frame"] == 50


def test_a_dataset_is_not_made_in_another(path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="would lie in the dataset"):
        ft.write_dataset(path / "inner", MODEL, time=TIME, **STATES)
    assert not (path / "inner").exists()


def test_a_newer_format_is_refused(path: Path, tmp_path: Path) -> None:
    root = (path / "zarr.json").read_text()
    (tmp_path / "zarr.json").write_text(root.replace('"format": 1', '"format": 2'))
    with pytest.raises(FormatError, match="format 2; this flytraj reads format 1"):
        ft.open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"n_frames": 50', '"n_frames": 51'),
        ('"n_frames": 50', '"n_frames": -1'),
        ('"n_frames": 50', '"n_frames": "many"'),
        ('"qpos": {', '"../../qpos": {'),
        ('"qpos": {', '"qpis": {'),
        ('"block_frames": 16', '"block_frames": 0'),
        ('"dimension_names"', '"names"'),
    ],
)
def test_damaged_metadata_is_an_error_before_anything_is_read(
    path: Path, tmp_path: Path, old: str, new: str
) -> None:
    root = (path / "zarr.json").read_text()
    assert old in root
    (tmp_path / "zarr.json").write_text(root.replace(old, new))
    with pytest.raises(FormatError):
        ft.open_dataset(tmp_path)


def test_a_lost_shard_is_an_error_and_not_zeros(tmp_path: Path) -> None:
    ft.write_dataset(tmp_path / "a", MODEL, time=TIME, **STATES, block_frames=16)
    (tmp_path / "a" / "qpos" / "c.0.1.0").unlink()
    ds = ft.open_dataset(tmp_path / "a")
    assert np.array_equal(ds.qpos[:, :16].values, STATES["qpos"][:, :16])
    with pytest.raises(CorruptDatasetError, match="'qpos'"):
        ds.qpos[:, 10:20].load()


def test_a_flipped_bit_is_an_error(tmp_path: Path) -> None:
    ft.write_dataset(tmp_path / "a", MODEL, time=TIME, **STATES, block_frames=16)
    shard = tmp_path / "a" / "qpos" / "c.0.1.0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 4
    shard.write_bytes(data)
    with pytest.raises(CorruptDatasetError):
        ft.open_dataset(tmp_path / "a").qpos[:, 16:32].load()


def test_all_zero_and_all_nan_frames_are_kept(tmp_path: Path) -> None:
    qpos = np.zeros((2, 20, 3))
    qpos[:, 8:16] = np.nan
    ft.write_dataset(tmp_path / "a", None, qpos=qpos, time=np.arange(20) * 0.1, block_frames=8)
    assert np.array_equal(ft.open_dataset(tmp_path / "a").qpos.values, qpos, equal_nan=True)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_compression_and_dtype_round_trips(tmp_path: Path, compression: Any, dtype: str) -> None:
    qpos = STATES["qpos"].astype(dtype)
    ft.write_dataset(tmp_path / "a", None, qpos=qpos, time=TIME, compression=compression)
    loaded = ft.open_dataset(tmp_path / "a").qpos
    assert loaded.dtype == dtype
    assert loaded.values.tobytes() == qpos.tobytes()
    assert xr.open_zarr(tmp_path / "a").qpos.values.tobytes() == qpos.tobytes()


def test_lost_names_cost_no_frames(tmp_path: Path) -> None:
    ft.write_dataset(tmp_path / "a", MODEL, time=TIME, **STATES)
    shutil.rmtree(tmp_path / "a" / "nq")
    with pytest.warns(DamagedLabelsWarning, match="'nq'.* has no names here"):
        ds = ft.open_dataset(tmp_path / "a")
    assert "nq" not in ds.coords
    assert "nmocap" in ds.coords
    assert np.array_equal(ds.qpos.values, STATES["qpos"])
    with pytest.raises(FieldNotFoundError, match="no names"):
        ds.traj.joint("hip")
    assert "nq" in str(ft.validate(tmp_path / "a"))
