"""Plots show the recorded numbers, with names and units, resets and spread; long recordings lose no peak."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import flytraj as ft
from flytraj import plotting, testing
from flytraj.errors import FieldNotFoundError, InvalidArgumentError

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib (extra plot)")
matplotlib.use("agg")

import matplotlib.pyplot as plt  # noqa: E402

MODEL = testing.tiny_model().compile()
N_WORLDS, N_FRAMES = 3, 50
RESET = 20
"""World 1 is reset before this frame."""


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def own_times() -> tuple[np.ndarray, np.ndarray]:
    time = np.tile(np.arange(N_FRAMES) * 0.02, (N_WORLDS, 1))
    time[1, RESET:] -= time[1, RESET]
    episode = np.zeros((N_WORLDS, N_FRAMES), np.int32)
    episode[1, RESET:] = 1
    return time, episode


QPOS = np.random.default_rng(0).normal(size=(N_WORLDS, N_FRAMES, MODEL.nq))
QVEL = np.random.default_rng(1).normal(size=(N_WORLDS, N_FRAMES, MODEL.nv))
Z, NECK, HIP = 2, slice(7, 11), 11


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    path = tmp_path_factory.mktemp("plots") / "a.zarr"
    time, episode = own_times()
    ft.write_dataset(
        path,
        MODEL,
        qpos=QPOS,
        time=time,
        episode=episode,
        mocap_pos=np.zeros((N_WORLDS, N_FRAMES, 1, 3)),
        mocap_quat=np.tile([1.0, 0, 0, 0], (N_WORLDS, N_FRAMES, 1, 1)),
        fields={"qvel": QVEL},
        channels={"reward": np.arange(N_WORLDS * N_FRAMES).reshape(N_WORLDS, N_FRAMES)},
        world_ids=[4, 5, 9],
    )
    return ft.open_dataset(path)


def lines(panel: Any) -> dict[str, np.ndarray]:
    """Points of each line in the legend, `(n, 2)`."""
    return {line.get_label(): line.get_xydata() for line in panel.lines}


def test_a_line_shows_a_world_broken_at_its_reset(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("root/z")
    shown = lines(panel)
    assert list(shown) == ["world 4", "world 5", "world 9", "new episode"]
    np.testing.assert_allclose(shown["world 4"], np.stack([np.arange(50) * 0.02, QPOS[0, :, Z]], axis=1))
    broken = shown["world 5"]
    assert np.isnan(broken[RESET]).all()
    np.testing.assert_array_equal(np.delete(broken[:, 1], RESET), QPOS[1, :, Z])
    (edges,) = panel.collections
    np.testing.assert_allclose([path.vertices[0, 0] for path in edges.get_paths()], [RESET * 0.02])
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("time (s)", "root/z (m)")


def test_each_worlds_own_time_starts_again(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("hip", x="sim_time")
    shown = lines(panel)["world 5"]
    np.testing.assert_allclose(shown[:RESET, 0], np.arange(RESET) * 0.02)
    np.testing.assert_allclose(shown[RESET + 1 :, 0], np.arange(N_FRAMES - RESET) * 0.02, atol=1e-12)
    assert panel.get_xlabel() == "simulation time (s)"
    assert not panel.collections


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("root/x", ["root/x (m)"]),
        ("root/qw", ["root/qw"]),
        ("neck", ["neck/qw", "neck/qx", "neck/qy", "neck/qz"]),
        ("hip", ["hip (rad)"]),
        ("qpos[hip]", ["qpos[hip] (rad)"]),
        ("qpos[12]", ["qpos[shin] (m)"]),
        ("qvel[root/vx]", ["qvel[root/vx] (m/s)"]),
        ("qvel[neck]", ["qvel[neck/wx] (rad/s)", "qvel[neck/wy] (rad/s)", "qvel[neck/wz] (rad/s)"]),
        ("qvel[hip]", ["qvel[hip] (rad/s)"]),
        ("qvel[shin]", ["qvel[shin] (m/s)"]),
        ("mocap_pos[target, y]", ["mocap_pos[target, y] (m)"]),
        ("mocap_pos", [f"mocap_pos[target, {axis}] (m)" for axis in "xyz"]),
        ("reward", ["reward"]),
    ],
)
def test_names_and_units(ds: xr.Dataset, name: str, labels: list[str]) -> None:
    assert [panel.get_ylabel() for panel in ds.traj.plot(name)] == labels


def test_a_recording_without_a_model_has_numbers_and_no_units(tmp_path: Path) -> None:
    qpos = np.arange(24.0).reshape(2, 4, 3)
    ft.write_dataset(tmp_path / "a.zarr", None, qpos=qpos, time=np.arange(4) * 0.1)
    ds = ft.open_dataset(tmp_path / "a.zarr")
    panels = ds.traj.plot("qpos")
    assert [panel.get_ylabel() for panel in panels] == ["qpos[0]", "qpos[1]", "qpos[2]"]
    np.testing.assert_array_equal(lines(panels[1])["world 1"][:, 1], qpos[1, :, 1])
    with pytest.raises(InvalidArgumentError, match=r"such as qpos\[0\], qpos\[1\]"):
        ds.traj.plot()


def test_what_is_computed_from_positions_can_be_plotted(ds: xr.Dataset) -> None:
    view = ds.isel(world=[0], frame=slice(0, 4))
    (panel,) = view.assign(view.traj.kinematics("xpos")).traj.plot("xpos[torso, z]")
    np.testing.assert_allclose(lines(panel)["world 4"][:, 1], QPOS[0, :4, Z])


def test_spread_is_the_median_and_the_quantiles(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("root/z", spread=True)
    np.testing.assert_allclose(lines(panel)["median of 3 worlds"][:, 1], np.median(QPOS[..., Z], axis=0))
    for band, (low, high) in zip(panel.collections, ((0.25, 0.75), (0.05, 0.95)), strict=True):
        upper, lower = (np.quantile(QPOS[..., Z], q, axis=0) for q in (high, low))
        corners = band.get_paths()[0].vertices
        for time, bottom, top in zip(np.arange(N_FRAMES) * 0.02, lower, upper, strict=True):
            found = corners[np.isclose(corners[:, 0], time), 1]
            np.testing.assert_allclose([found.min(), found.max()], [bottom, top])


def test_spread_over_own_times_joins_frames_of_equal_simulation_time(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("root/z", x="sim_time", spread=True)
    shown = lines(panel)["median of 3 worlds"]
    time, _ = own_times()
    at = sorted({round(value, 6) for value in time.ravel()})
    np.testing.assert_allclose(shown[:, 0], at, atol=1e-9)
    expected = [np.median(QPOS[..., Z][np.isclose(time, value)]) for value in at]
    np.testing.assert_allclose(shown[:, 1], expected)


def test_many_worlds_are_spread_unless_told_otherwise(ds: xr.Dataset) -> None:
    many = xr.concat([ds] * 4, "world", data_vars="minimal", coords="minimal", compat="override")
    many = many.assign_coords(world=np.arange(12))
    many.encoding = ds.encoding
    (panel,) = many.traj.plot("hip")
    assert list(lines(panel)) == ["median of 12 worlds"]
    (panel,) = many.traj.plot("hip", spread=False)
    assert list(lines(panel))[:12] == [f"world {i}" for i in range(12)]


def test_groups_of_worlds_are_compared_in_the_same_axes(ds: xr.Dataset) -> None:
    panels = ds.sel(world=[4, 9]).traj.plot("root/z", "hip", label="with")
    again = ds.sel(world=[5]).traj.plot("root/z", "hip", label="without", axes=panels)
    assert again == panels
    colors = [line.get_color() for line in panels[0].lines if not line.get_label().startswith("new")]
    assert colors[0] == colors[1] != colors[2]
    shown = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert [name for name in shown if name != "new episode"] == ["with", "without"]


def test_a_phase_plot_shows_paths_with_a_mark_at_each_start(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("qvel[hip]", x="hip")
    first, broken, _ = panel.lines
    np.testing.assert_array_equal(first.get_xydata(), np.stack([QPOS[0, :, HIP], QVEL[0, :, 9]], axis=1))
    assert np.isnan(broken.get_xydata()[RESET]).all()
    assert broken.get_markevery() == [0, RESET + 1]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("hip (rad)", "qvel[hip] (rad/s)")
    assert panel.get_aspect() == "auto"
    (above,) = ds.traj.plot("root/y", x="root/x")
    assert above.get_aspect() == 1


def test_a_phase_plot_of_many_worlds_counts_every_frame(ds: xr.Dataset) -> None:
    (panel,) = ds.traj.plot("root/y", x="root/x", spread=True)
    (cells,) = panel.collections
    assert cells.get_array().sum() == N_WORLDS * N_FRAMES


def long_recording(path: Path, n_frames: int) -> tuple[xr.Dataset, np.ndarray]:
    values = np.sin(np.arange(n_frames) * 0.9)[np.newaxis, :, np.newaxis] * np.ones((2, 1, 1))
    values[1, 7_777] = 5
    values[1, 9_001] = -5
    model = testing.pendulum().compile()
    ft.write_dataset(path, model, qpos=values, time=np.arange(n_frames) * 0.02)
    return ft.open_dataset(path), values


def test_a_long_recording_is_thinned_and_no_peak_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds, values = long_recording(tmp_path / "a.zarr", 10_003)
    (whole,) = ds.traj.plot("swing")
    shown = lines(whole)["world 1"]
    assert 1000 < len(shown) <= 2000
    assert shown[:, 1].max() == 5
    assert shown[:, 1].min() == -5
    np.testing.assert_allclose(shown[shown[:, 1] == 5, 0], [7_777 * 0.02])
    frames = np.round(shown[:, 0] / 0.02).astype(int)
    np.testing.assert_array_equal(shown[:, 1], values[1, frames, 0])

    monkeypatch.setattr(plotting, "_STRETCH_VALUES", 1000)
    (by_stretches,) = ds.traj.plot("swing")
    assert by_stretches.lines[0].get_xdata()[-1] == whole.lines[0].get_xdata()[-1]
    assert lines(by_stretches)["world 1"][:, 1].max() == 5


def test_bands_and_paths_of_a_long_recording_are_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds, values = long_recording(tmp_path / "a.zarr", 10_003)
    (panel,) = ds.traj.plot("swing", spread=True)
    (shown,) = panel.lines
    assert shown.get_label() == "median of 2 worlds, 1 frame in 11"
    np.testing.assert_allclose(shown.get_ydata(), np.median(values[:, ::11, 0], axis=0))

    monkeypatch.setattr(plotting, "_PATH_FRAMES", 5002)
    (panel,) = ds.traj.plot("qpos[swing]", x="swing")
    assert {line.get_linestyle() for line in panel.lines} == {"None"}
    np.testing.assert_array_equal(panel.lines[1].get_ydata(), values[1, ::2, 0])


def test_one_world_or_one_frame(ds: xr.Dataset) -> None:
    view = ds.isel(world=1)
    np.testing.assert_array_equal(view.traj.episodes()["first_frame"], [0, RESET])
    (panel,) = view.traj.plot("root/z")
    assert np.isnan(lines(panel)["world 5"][RESET]).all()
    (panel,) = ds.isel(frame=7).traj.plot("root/z")
    np.testing.assert_allclose(lines(panel)["world 9"], [[0.14, QPOS[2, 7, Z]]])


def test_worlds_aligned_by_their_own_time_have_gaps_where_frames_are_missing(ds: xr.Dataset) -> None:
    aligned = ds.traj.sel_sim_time(slice(0, 0.8), episode=0)
    (panel,) = aligned.traj.plot("root/z", x="sim_time")
    shown = lines(panel)["world 5"]
    np.testing.assert_array_equal(np.isfinite(shown[:, 1]).sum(), RESET)
    with pytest.raises(InvalidArgumentError, match="x='sim_time'"):
        aligned.traj.plot("root/z")


@pytest.mark.parametrize(
    ("names", "options", "error", "message"),
    [
        ((), {}, InvalidArgumentError, "such as root/x, root/y"),
        (("elbow",), {}, FieldNotFoundError, "no 'elbow' to plot; there are root/x.* root/qy, …; mocap_pos"),
        (("qvel[elbow]",), {}, FieldNotFoundError, "qvel has no 'elbow' along nv; there are root/vx"),
        (
            ("mocap_pos[target]",),
            {},
            InvalidArgumentError,
            "1 indices; the dims of mocap_pos are: nmocap, xyz",
        ),
        (("qpos",), {}, InvalidArgumentError, "13 panels are too many, 12 fit"),
        (("hip",), {"x": "neck"}, InvalidArgumentError, "'neck' stands for neck/qw, neck/qx"),
        (("hip", "shin"), {"axes": []}, InvalidArgumentError, "2 panels to draw, and 0 axes given"),
    ],
)
def test_what_cannot_be_plotted(
    ds: xr.Dataset, names: tuple[str, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ds.traj.plot(*names, **options)


def test_an_empty_view_cannot_be_plotted(ds: xr.Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="no frames to plot"):
        ds.isel(frame=slice(0, 0)).traj.plot("hip")


def test_nothing_is_shown(ds: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("a window was shown"))
    panels = ds.traj.plot("root/z", "hip")
    assert [panel.figure for panel in panels] == [plt.gcf()] * 2


def test_without_matplotlib_the_extra_is_named(ds: xr.Dataset) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import flytraj as ft\n"
        f"try: ft.open_dataset({ds.attrs['store']!r}).traj.plot('hip')\n"
        "except ft.errors.MissingDependencyError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "flytraj[plot]" in done.stdout
