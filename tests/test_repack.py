"""Repacking: nothing lost, proven precision, unit quaternions, going on after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flytraj as ft
from flytraj import testing
from flytraj.errors import CorruptDatasetError, DatasetExistsError, DatasetNotFoundError, InvalidArgumentError
from flytraj.model import kinematic_layout
from flytraj.schema import make_schema
from flytraj.store import repack as repack_module
from flytraj.store.engine import Part
from flytraj.store.rounding import quaternion_starts, round_within

MODEL = testing.tiny_model().compile()
N_WORLDS, N_FRAMES = 9, 70


def states(dtype: Any = np.float64) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    qpos = rng.normal(size=(N_WORLDS, N_FRAMES, MODEL.nq))
    quat = rng.normal(size=(N_WORLDS, N_FRAMES, 1, 4))
    for start in (3, 7):
        qpos[..., start : start + 4] /= np.linalg.norm(qpos[..., start : start + 4], axis=-1, keepdims=True)
    return {
        "qpos": qpos.astype(dtype),
        "mocap_pos": rng.normal(size=(N_WORLDS, N_FRAMES, 1, 3)).astype(dtype),
        "mocap_quat": (quat / np.linalg.norm(quat, axis=-1, keepdims=True)).astype(dtype),
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("repack") / "a.zarr"
    time = np.arange(N_FRAMES) % 40 * 0.02
    ft.write_dataset(
        path,
        MODEL,
        time=time,
        channels={
            "step": np.tile(np.arange(N_FRAMES), (N_WORLDS, 1)),
            "reward": np.full((N_WORLDS, N_FRAMES), np.pi),
        },
        world_ids=range(20, 29),
        block_frames=8,
        **states(),
    )
    return path


@pytest.mark.parametrize("layout", ["by-world", "by-time"])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_nothing_is_lost(source: Path, tmp_path: Path, layout: Any, compression: Any) -> None:
    steps: list[tuple[int, int]] = []
    ft.repack(
        source,
        tmp_path / "b",
        layout=layout,
        compression=compression,
        progress=lambda i, n: steps.append((i, n)),
    )
    old, new = ft.open_dataset(source), ft.open_dataset(tmp_path / "b")
    xr.testing.assert_equal(old.load(), new.load())
    new.traj.check_model(MODEL)
    assert new.traj.model().nq == MODEL.nq
    assert old.traj.episodes().equals(new.traj.episodes())
    assert {k: old.attrs[k] for k in ("created", "output_fps", "fingerprint")} == {
        k: new.attrs[k] for k in ("created", "output_fps", "fingerprint")
    }
    assert steps == [(i + 1, len(steps)) for i in range(len(steps))]
    assert np.array_equal(xr.open_zarr(tmp_path / "b").qpos.values, old.qpos.values)


def test_the_layouts_suit_what_they_are_called_after(source: Path, tmp_path: Path) -> None:
    for layout in ("by-world", "by-time"):
        ft.repack(source, tmp_path / layout, layout=layout)
    chunks = {}
    for layout in ("by-world", "by-time"):
        document = ft.open_dataset(tmp_path / layout).encoding["flytraj"].description.documents["qpos"]
        chunks[layout] = document["codecs"][0]["configuration"]["chunk_shape"]
    assert chunks["by-world"][1] >= N_FRAMES
    assert chunks["by-time"][:2] == [16, 1]


@pytest.mark.parametrize("precision", [1e-2, 1e-5])
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_precision_is_kept_for_every_value_and_quaternions_stay_unit(
    source: Path, tmp_path: Path, precision: float, dtype: str | None
) -> None:
    ft.repack(source, tmp_path / "b", precision=precision, dtype=dtype)
    old, new = ft.open_dataset(source).load(), ft.open_dataset(tmp_path / "b").load()
    for name in ("qpos", "mocap_pos", "mocap_quat", "reward"):
        assert np.abs(new[name].values.astype(float) - old[name].values).max() <= precision
        assert new[name].dtype == (dtype or "float64")
    assert np.array_equal(new.sim_time.values, old.sim_time.values)
    assert np.array_equal(new.step.values, old.step.values)
    tolerance = 1e-6 if dtype else 1e-12
    for quat in (new.qpos.values[..., 3:7], new.qpos.values[..., 7:11], new.mocap_quat.values):
        np.testing.assert_allclose(np.linalg.norm(quat.astype(float), axis=-1), 1.0, atol=tolerance)

    def size(path: Path) -> int:
        return sum(f.stat().st_size for f in (path / "qpos").rglob("*") if f.is_file())

    ft.repack(source, tmp_path / "exact", dtype=dtype)
    assert size(tmp_path / "b") < 0.9 * size(tmp_path / "exact")


def test_where_quaternions_are() -> None:
    variables = {v.name: v for v in make_schema(MODEL, fields=("xquat", "qvel")).variables}
    layout = kinematic_layout(MODEL)
    assert quaternion_starts(variables["qpos"], layout) == [3, 7]
    assert quaternion_starts(variables["xquat"], layout) == [0]
    assert quaternion_starts(variables["qvel"], layout) == []
    assert quaternion_starts(variables["qpos"], None) == []


@settings(max_examples=200, deadline=None)
@given(
    values=hnp.arrays(np.float64, (3, 5), elements=st.floats(-1e4, 1e4, allow_subnormal=False)),
    exponent=st.integers(-9, 0),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_rounding_keeps_its_word_or_says_it_cannot(values: np.ndarray, exponent: int, dtype: Any) -> None:
    precision = 10.0**exponent
    try:
        rounded = round_within(values, precision, np.dtype(dtype), [])
    except InvalidArgumentError:
        assert np.abs(values.astype(dtype).astype(float) - values).max() > precision
        return
    assert rounded.dtype == dtype
    assert np.abs(rounded.astype(float) - values).max() <= precision


@settings(max_examples=200, deadline=None)
@given(
    quat=hnp.arrays(np.float64, (4,), elements=st.floats(-1, 1, allow_subnormal=False)).filter(
        lambda q: np.linalg.norm(q) > 1e-3
    ),
    exponent=st.integers(-7, -1),
)
def test_any_unit_quaternion_stays_unit_and_near(quat: np.ndarray, exponent: int) -> None:
    unit = quat / np.linalg.norm(quat)
    rounded = round_within(unit[np.newaxis], 10.0**exponent, np.dtype(np.float64), [0])[0]
    assert np.abs(rounded - unit).max() <= 10.0**exponent
    np.testing.assert_allclose(np.linalg.norm(rounded), 1.0, atol=1e-12)


def test_what_is_not_finite_or_not_unit_is_kept() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(round_within(values, 1e-3, np.dtype(np.float64), [0]), values, equal_nan=True)


def test_a_precision_the_dtype_cannot_hold_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="float16 cannot hold"):
        ft.repack(source, tmp_path / "b", dtype="float16", precision=1e-6)
    assert not (tmp_path / "b").exists()
    ft.repack(source, tmp_path / "b", precision=1e-6)


def test_an_interrupted_repack_goes_on(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = repack_module._copy

    def interrupted(convert: Any, engine: Any, new: Any, first: int, last: int) -> None:
        if len(copied) == 2:
            raise KeyboardInterrupt
        copied.append(first)
        copy(convert, engine, new, first, last)

    with monkeypatch.context() as patch:
        patch.setattr(repack_module, "_copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ft.repack(source, tmp_path / "b", layout="by-time")
    assert ft.open_dataset(tmp_path / "b").sizes["frame"] == 64
    with pytest.raises(DatasetExistsError, match="holds another dataset"):
        ft.repack(source, tmp_path / "b", layout="by-world")
    ft.repack(source, tmp_path / "b", layout="by-time")
    assert copied == [0, 32]
    xr.testing.assert_equal(ft.open_dataset(source).load(), ft.open_dataset(tmp_path / "b").load())
    with pytest.raises(DatasetExistsError, match="is done already"):
        ft.repack(source, tmp_path / "b", layout="by-time")


def test_what_was_written_wrong_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = repack_module._copy

    def wrong(convert: Any, engine: Any, new: Any, first: int, last: int) -> None:
        copy(convert, engine, new, first, last)
        if first == 32:
            part = next(iter(engine_parts))
            part.values[2, 5] += 1
            engine.write([part])

    engine_parts: list[Any] = []

    def kept(*arguments: Any) -> Any:
        part = Part(*arguments)
        if part.name == "qpos" and part.start[1] == 32:
            engine_parts.append(part)
        return part

    monkeypatch.setattr(repack_module, "Part", kept)
    monkeypatch.setattr(repack_module, "_copy", wrong)
    with pytest.raises(CorruptDatasetError, match="qpos of worlds 0 to 8, frames 32 to 63"):
        ft.repack(source, tmp_path / "b", layout="by-time")


def test_arguments_that_cannot_be_used(source: Path, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"layout": "sideways"},
        {"compression": "rar"},
        {"precision": 0.0},
        {"dtype": "int32"},
    ]
    for arguments in wrong:
        with pytest.raises(InvalidArgumentError):
            ft.repack(source, tmp_path / "b", **arguments)
    with pytest.raises(DatasetNotFoundError):
        ft.repack(tmp_path / "nothing", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_frames_can_be_appended_to_a_repacked_dataset(source: Path, tmp_path: Path) -> None:
    ft.repack(source, tmp_path / "b")
    mocap = {name: values[:, :5] for name, values in states().items() if name != "qpos"}
    ft.write_dataset(
        tmp_path / "b",
        MODEL,
        qpos=states()["qpos"][:, :5],
        time=np.arange(5) * 0.02,
        channels={"step": np.zeros((9, 5), int), "reward": np.zeros((9, 5))},
        world_ids=range(20, 29),
        mode="a",
        **mocap,
    )
    ds = ft.open_dataset(tmp_path / "b")
    assert ds.sizes["frame"] == N_FRAMES + 5
    assert np.array_equal(ds.qpos.values[:, :N_FRAMES], states()["qpos"])
    assert np.array_equal(ds.qpos.values[:, N_FRAMES:], states()["qpos"][:, :5])
