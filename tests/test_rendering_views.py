"""Rendering of lazy views of a dataset on disk."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import flytraj as ft
from flytraj.errors import InvalidArgumentError
from flytraj.rendering.notebook import RenderedVideos
from flytraj.testing import pendulum, tiny_model
from flytraj.trajectory import RecordedTrajectory
from tests.rendering_parts import RES, read_video, record

DRAFT: dict[str, Any] = {"camera_res": RES, "quality": "draft"}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return tiny_model().compile()


@pytest.fixture(scope="module")
def trajectories(model: mujoco.MjModel) -> list[RecordedTrajectory]:
    return [record(model, 30, world_id) for world_id in range(5)]


@pytest.fixture(scope="module")
def store(model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("views") / "d.zarr"
    arrays: dict[str, Any] = {
        name: np.stack([getattr(trajectory, name) for trajectory in trajectories])
        for name in ("qpos", "time", "mocap_pos", "mocap_quat")
    }
    ft.write_dataset(path, model, **arrays)
    return path


def test_chosen_worlds_and_frames_of_a_view(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], store: Path, tmp_path: Path
) -> None:
    with ft.open_dataset(store) as ds:
        view = ds.sel(world=[3, 1]).isel(frame=slice(10, 22))
        frames = ft.render_trajectories(model, view, ["tracking"], tmp_path, **DRAFT)
        chosen = [trajectories[world].read(10, 22) for world in (3, 1)]
        expected = ft.render_trajectories(model, chosen, ["tracking"], **DRAFT)
        for a, b in zip(frames, expected):
            np.testing.assert_array_equal(a["tracking"], b["tracking"])
        assert (tmp_path / "traj0000_world3" / "tracking.mp4").exists()
        assert (tmp_path / "traj0001_world1" / "tracking.mp4").exists()
        batches = list(ft.iter_frames(model, view, "fixed", **DRAFT))
        assert [batch.world_id for batch in batches if batch.start == 0] == [3, 1]
        np.testing.assert_array_equal(batches[0].time, trajectories[3].time[10 : 10 + len(batches[0].time)])


def test_a_view_of_another_model_is_refused(store: Path) -> None:
    with ft.open_dataset(store) as ds, pytest.raises(ft.errors.ModelMismatchError):
        ft.render_videos(pendulum().compile(), ds, "front", "nowhere")


def test_a_view_without_all_coordinates_is_refused(store: Path, model: mujoco.MjModel) -> None:
    with (
        ft.open_dataset(store) as ds,
        pytest.raises(ft.errors.ModelMismatchError, match="leaves coordinates out"),
    ):
        ft.render_videos(model, ds.isel(nq=[0]), "fixed", "nowhere")


@pytest.mark.parametrize("name", ["x.mp4", "videos", "deeper/videos"])
def test_videos_do_not_go_into_a_dataset(store: Path, model: mujoco.MjModel, name: str) -> None:
    before = sorted(store.rglob("*"))
    with ft.open_dataset(store) as ds, pytest.raises(InvalidArgumentError, match="would lie in the dataset"):
        ft.render_videos(model, ds, "fixed", store / name)
    assert sorted(store.rglob("*")) == before


def test_a_notebook_shows_the_video(store: Path, tmp_path: Path) -> None:
    with ft.open_dataset(store) as ds:
        shown = ds.sel(world=[0, 4]).traj.render(output_path=tmp_path / "two.mp4", **DRAFT)
        video = read_video(tmp_path / "two.mp4")
        assert (len(video.frames), video.height, video.width) == (30, 48, 2 * 66 - 2)
        data = re.search(r'src="data:video/mp4;base64,([^"]+)"', shown._repr_html_())
        assert data is not None
        assert base64.b64decode(data[1]) == (tmp_path / "two.mp4").read_bytes()
        (path,) = ds.isel(world=[2]).traj.render("tracking", **DRAFT).paths
        assert path.name == "tracking.mp4"
        assert len(read_video(path).frames) == 30


def test_a_notebook_is_spared_a_large_video_and_a_strange_name(tmp_path: Path) -> None:
    path = tmp_path / "<b>.mp4"
    with path.open("wb") as file:
        file.truncate(40_000_000)
    shown = RenderedVideos([path])._repr_html_()
    assert "too large" in shown
    assert "<b>" not in shown
    assert len(shown) < 1000
