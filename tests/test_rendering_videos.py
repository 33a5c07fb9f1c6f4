"""Videos of trajectories: where they go, what is in them, grids, sheets, processes, interruptions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from flytraj import open_dataset, write_dataset
from flytraj.errors import InvalidArgumentError, RenderError
from flytraj.rendering import contact_sheet, render_trajectories, render_videos, save_trajectory_videos
from flytraj.rendering.backend import Choice
from flytraj.rendering.frames import FrameBatch, pack, whole
from flytraj.rendering.grid import Grid, Layout, draw_labels
from flytraj.rendering.paths import camera_file, video_paths
from flytraj.rendering.pool import RenderPool, count_workers
from flytraj.rendering.settings import Settings
from flytraj.testing import nameless_model, pendulum, tiny_model
from flytraj.trajectory import RecordedTrajectory
from tests.rendering_parts import CHOICE, RES, read_video, record, still

DRAFT: dict[str, Any] = {"camera_res": RES, "quality": "draft"}
CAMERAS = ["fixed", "tracking"]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return tiny_model().compile()


@pytest.fixture(scope="module")
def trajectories(model: mujoco.MjModel) -> list[RecordedTrajectory]:
    return [record(model, n, world_id) for n, world_id in ((9, 4), (20, 7), (13, 300))]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rendering_processes() -> list[int]:
    """Children of this process that render; any process may end while it is looked at."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"flytraj.rendering.worker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("kind", [str, Path])
def test_documented_paths(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path, kind: Any
) -> None:
    one = trajectories[0]
    render_trajectories(model, one, "fixed", kind(tmp_path / "a" / "one.MP4"), **DRAFT)
    render_trajectories(model, [one], CAMERAS, kind(tmp_path / "b.mp4"), **DRAFT)
    render_trajectories(model, one, "fixed", kind(tmp_path / "c"), **DRAFT)
    render_trajectories(model, trajectories[:2], "fixed", kind(tmp_path / "d"), **DRAFT)
    assert files(tmp_path) == [
        "a/one.MP4",
        "b.mp4/fixed.mp4",
        "b.mp4/tracking.mp4",
        "c/fixed.mp4",
        "d/traj0000_world4/fixed.mp4",
        "d/traj0001_world7/fixed.mp4",
    ]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("nmf/trackcam", "nmf_trackcam.mp4"),
        ("..", "...mp4"),
        ("../../etc/x", ".._.._etc_x.mp4"),
        ("/abs", "_abs.mp4"),
        ("C:\\x", "C:_x.mp4"),
        ("nul\0byte\n", "nul_byte_.mp4"),
        ("é" * 300, "é" * 100 + ".mp4"),
    ],
)
def test_a_cameras_name_stays_in_the_folder(
    name: str, file: str, tmp_path: Path, model: mujoco.MjModel
) -> None:
    assert camera_file(name, ".mp4") == file
    path = video_paths(tmp_path, [still(model)], [name])[0][name]
    assert path.parent == tmp_path
    path.write_bytes(b"")


def test_two_cameras_never_share_a_file(model: mujoco.MjModel) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'a/b' and 'a_b' would share the file a_b\.mp4"):
        video_paths("out", [still(model)], ["a/b", "a_b"])


def test_save_trajectory_videos(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    frames = render_trajectories(model, trajectories[:2], "fixed", **DRAFT)
    save_trajectory_videos(trajectories[:2], frames, tmp_path / "two")
    save_trajectory_videos(trajectories[0], frames[:1], tmp_path / "one.mp4")
    assert files(tmp_path) == ["one.mp4", "two/traj0000_world4/fixed.mp4", "two/traj0001_world7/fixed.mp4"]
    video = read_video(tmp_path / "two/traj0001_world7/fixed.mp4")
    assert (len(video.frames), video.height, video.width, video.fps) == (20, *RES, 25)
    assert np.abs(video.frames.astype(int) - frames[1]["fixed"]).mean() < 4
    with pytest.raises(InvalidArgumentError, match="2 trajectories were given for 3"):
        save_trajectory_videos(trajectories, frames, tmp_path)


def test_videos_hold_the_frames(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    slow = RecordedTrajectory(**vars(trajectories[1]) | {"output_fps": 12.5})
    paths = render_videos(model, [trajectories[0], slow], CAMERAS, tmp_path, **DRAFT, workers=1)
    frames = render_trajectories(model, [trajectories[0], slow], CAMERAS, **DRAFT)
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "traj0000_world4/fixed.mp4",
        "traj0000_world4/tracking.mp4",
        "traj0001_world7/fixed.mp4",
        "traj0001_world7/tracking.mp4",
    ]
    expected = [by_camera[camera] for by_camera in frames for camera in CAMERAS]
    for path, pictures, fps in zip(paths, expected, (25, 25, 12.5, 12.5)):
        video = read_video(path)
        assert video.fps == fps
        assert video.frames.shape == pictures.shape
        assert np.abs(video.frames.astype(int) - pictures).mean() < 4
    assert files(tmp_path) == sorted(str(path.relative_to(tmp_path)) for path in paths)


def test_a_grid_plays_worlds_side_by_side(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    (path,) = render_videos(
        model, trajectories, "fixed", tmp_path / "g.mp4", grid="auto", labels=False, workers=1, **DRAFT
    )
    frames = [by_camera["fixed"] for by_camera in render_trajectories(model, trajectories, "fixed", **DRAFT)]
    video = read_video(path)
    assert video.frames.shape == (20, 48 * 2 + 2, 64 * 2 + 2, 3)
    cells = [(slice(0, 48), slice(0, 64)), (slice(0, 48), slice(66, 130)), (slice(50, 98), slice(0, 64))]
    for cell, pictures in zip(cells, frames):
        for i in range(20):  # one that is over stays at its last frame
            expected = pictures[min(i, len(pictures) - 1)].astype(int)
            assert np.abs(video.frames[(i, *cell)] - expected).mean() < 5, i
    assert video.frames[:, 52:, 70:].mean() == pytest.approx(24, abs=3)


def test_a_grid_is_refused_where_it_cannot_be(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match="3 pictures do not fit in a grid of 1 x 2"):
        render_videos(model, trajectories, "fixed", tmp_path, grid=(1, 2))
    for grid in ("nice", (1,), (1.5, 2), 3):
        with pytest.raises(InvalidArgumentError, match=r'grid must be \(rows, columns\) or "auto", found'):
            render_videos(model, trajectories, "fixed", tmp_path, grid=grid)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="grid must be"):
            contact_sheet(model, trajectories, "fixed", tmp_path / "a.png", grid=grid)  # type: ignore[arg-type]
    slow = RecordedTrajectory(**vars(trajectories[0]) | {"output_fps": 10})
    with pytest.raises(InvalidArgumentError, match=r"\[10, 25\]"):
        render_videos(model, [trajectories[0], slow], "fixed", tmp_path, grid="auto")
    empty = trajectories[0].read(0, 0)
    with pytest.raises(InvalidArgumentError, match=r"Trajectory 1 \(world 4\) has no frames"):
        render_videos(model, [trajectories[0], empty], "fixed", tmp_path)
    assert not files(tmp_path)


def test_layouts() -> None:
    for n, shape in [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (5, (2, 3)), (64, (8, 8))]:
        layout = Layout(n, "auto", (10, 20))
        assert (layout.rows, layout.columns) == shape
    layout = Layout(5, (2, 3), (10, 20))
    assert layout.canvas(2).shape == (2, 22, 64, 3)
    assert layout.cell(4) == (slice(12, 22), slice(22, 42))


def labelled(
    time: list[float], world_id: int = 12, start: int = 0, shape: tuple[int, int] = (240, 320)
) -> NDArray[np.uint8]:
    """Labels on grey pictures of a trajectory's frames from `start` to its end."""
    clip = RecordedTrajectory(np.array(time), np.zeros((len(time), 1)), 25, 1.0, world_id)
    pictures = np.full((len(time) - start, *shape, 3), 100, np.uint8)
    draw_labels(pictures, clip, FrameBatch(0, world_id, start, clip.time[start:], {}))
    return pictures


def test_labels_say_world_and_time() -> None:
    (picture,) = labelled([1.5])
    assert picture.max() > 240
    assert (picture[40:] == 100).all()
    assert (picture[:, 200:] == 100).all()
    assert (labelled([1.5])[0] == picture).all()
    assert (labelled([1.5], world_id=13)[0] != picture).any()
    assert (labelled([1.501])[0] != picture).any()
    assert labelled([1.0], shape=(5, 7)).shape == (1, 5, 7, 3)


def test_labels_tell_apart_runs_that_are_at_the_same_time() -> None:
    first, _, second, third = labelled([1.5, 2.0, 1.5, 1.5 - 1e-9])
    assert (first == labelled([1.5])[0]).all()
    assert all((one != other).any() for one, other in [(first, second), (second, third), (third, first)])
    assert (labelled([1.5, 2.0, 1.5], start=2)[0] == second).all()


def test_episodes_of_a_clip_are_those_of_the_dataset(tmp_path: Path) -> None:
    sim_time = [[0.0, 0.1, 0.2, 0.3], [0.0, 0.1, 0.0, 0.1]]
    write_dataset(tmp_path / "r.zarr", pendulum().compile(), time=sim_time, qpos=np.zeros((2, 4, 1)))
    ds = open_dataset(tmp_path / "r.zarr")
    calm, reset = ds.traj.clips()
    assert calm.episodes(0, 4).tolist() == [0, 0, 0, 0]
    assert reset.episodes(1, 4).tolist() == [0, 1, 1]
    assert reset.read(0, 4).episodes(1, 4).tolist() == [0, 1, 1]
    (later,) = ds.isel(world=[1], frame=slice(2, 4)).traj.clips()
    assert later.episodes(0, 2).tolist() == [1, 1]
    (unknown,) = ds.isel(world=[1]).drop_vars("episode").traj.clips()
    assert unknown.episodes(2, 4).tolist() == [0, 0]


def test_a_sheet_of_one_moment_of_several_worlds(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    from PIL import Image

    sheet = contact_sheet(model, trajectories, "fixed", tmp_path / "s.png", moments=-1, labels=False, **DRAFT)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "s.png")), sheet)
    frames = [by_camera["fixed"] for by_camera in render_trajectories(model, trajectories, "fixed", **DRAFT)]
    assert sheet.shape == (98, 130, 3)
    np.testing.assert_array_equal(sheet[:48, :64], frames[0][-1])
    np.testing.assert_array_equal(sheet[:48, 66:], frames[1][-1])
    np.testing.assert_array_equal(sheet[50:, :64], frames[2][-1])
    middle = contact_sheet(model, trajectories, "fixed", grid=(1, 3), labels=False, **DRAFT)
    np.testing.assert_array_equal(middle[:, 66:130], frames[1][10])
    with pytest.raises(InvalidArgumentError, match="Trajectory 0 has 9 frames: there is no frame 9"):
        contact_sheet(model, trajectories, "fixed", moments=9)


def test_a_sheet_over_time(model: mujoco.MjModel, trajectories: list[RecordedTrajectory]) -> None:
    frames = [by_camera["fixed"] for by_camera in render_trajectories(model, trajectories, "fixed", **DRAFT)]
    sheet = contact_sheet(model, trajectories[1], "fixed", grid=(2, 2), labels=False, **DRAFT)
    cells = [sheet[:48, :64], sheet[:48, 66:], sheet[50:, :64], sheet[50:, 66:]]
    for cell, frame in zip(cells, (0, 6, 13, 19)):  # 19 / 3 apart, rounded
        np.testing.assert_array_equal(cell, frames[1][frame])
    sheet = contact_sheet(model, trajectories, "fixed", moments=[0, 8], labels=False, **DRAFT)
    assert sheet.shape == (3 * 50 - 2, 2 * 66 - 2, 3)
    np.testing.assert_array_equal(sheet[50:98, 66:], frames[1][8])


def test_the_number_of_processes_changes_no_byte(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    grids: tuple[Grid | None, ...] = (None, "auto")
    for grid in grids:
        one, two = (
            render_videos(
                model, trajectories, CAMERAS, tmp_path / f"{n}{grid}", workers=n, grid=grid, **DRAFT
            )
            for n in (1, 2)
        )
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    assert not rendering_processes()


def test_counting_processes() -> None:
    assert count_workers(5, 1, CHOICE) == 5
    assert count_workers(None, 100, CHOICE) == 1
    assert count_workers(None, 10_000_000, CHOICE) == len(os.sched_getaffinity(0))
    with pytest.raises(InvalidArgumentError, match="workers=0"):
        count_workers(0, 1, CHOICE)


class _Killing:
    """A clip that kills a rendering process when its frames from `at` on are read."""

    def __init__(self, trajectory: RecordedTrajectory) -> None:
        self._trajectory, self.killed = trajectory, 0
        self.world_id, self.n_frames, self.output_fps = 7, trajectory.n_frames, trajectory.output_fps
        self.nq, self.nmocap, self.episodes = trajectory.nq, trajectory.nmocap, trajectory.episodes

    def read(self, start: int, stop: int) -> RecordedTrajectory:
        if stop > 256 and not self.killed:
            (self.killed, *_) = rendering_processes()
            os.kill(self.killed, signal.SIGKILL)
        return self._trajectory.read(start, stop)


def test_a_process_that_dies_costs_its_world_and_no_other(model: mujoco.MjModel, tmp_path: Path) -> None:
    clip = _Killing(still(model, 300))
    clips = [record(model, 20, 1), clip, record(model, 20, 2)]
    with pytest.raises(RenderError, match=r"world 7: .* was killed by SIGKILL.*skip_existing=True") as error:
        render_videos(model, clips, "fixed", tmp_path, workers=2, **DRAFT)
    assert "world 1" not in str(error.value)
    assert "world 2" not in str(error.value)
    assert files(tmp_path) == ["traj0000_world1/fixed.mp4", "traj0002_world2/fixed.mp4"]
    assert not rendering_processes()
    before = (tmp_path / "traj0000_world1/fixed.mp4").stat().st_mtime_ns
    paths = render_videos(model, clips, "fixed", tmp_path, workers=2, skip_existing=True, **DRAFT)
    assert [len(read_video(path).frames) for path in paths] == [20, 300, 20]
    assert (tmp_path / "traj0000_world1/fixed.mp4").stat().st_mtime_ns == before


def test_a_grid_cannot_do_without_a_world(model: mujoco.MjModel, tmp_path: Path) -> None:
    clips = [still(model, 300), _Killing(still(model, 300))]
    with pytest.raises(RenderError, match="No grid without world"):
        render_videos(model, clips, "fixed", tmp_path, workers=2, grid="auto", **DRAFT)
    assert not files(tmp_path)


def test_a_process_that_cannot_start_says_why(model: mujoco.MjModel) -> None:
    choice = Choice("opengl", "vulkan", None, "")
    cameras: dict[str, Any] = {"fixed": 0}
    pool = RenderPool(model, [still(model)], cameras, Settings(RES), choice, 2)
    with contextlib.closing(pool), pytest.raises(RenderError, match="vulkan"):
        list(pool.stream(pack(whole([still(model)]), 1)))


def test_skipping_what_is_there(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path
) -> None:
    grids: tuple[Grid | None, ...] = (None, "auto")
    for grid in grids:
        options: dict[str, Any] = {"grid": grid, "workers": 1, **DRAFT}
        paths = render_videos(model, trajectories, CAMERAS, tmp_path, **options)
        paths[0].unlink()
        times = [path.stat().st_mtime_ns for path in paths[2:]]
        again = render_videos(model, trajectories, CAMERAS, tmp_path, skip_existing=True, **options)
        assert again == paths
        assert all(path.exists() for path in paths)
        assert [path.stat().st_mtime_ns for path in paths[2:]] == times


_ENDLESS = """
import sys
import numpy as np
from flytraj.rendering import render_videos
from flytraj.testing import tiny_model
from flytraj.trajectory import RecordedTrajectory
model = tiny_model().compile()
def still(n, world):
    return RecordedTrajectory(np.arange(n) / 25, np.tile(model.qpos0, (n, 1)), 25, 1.0, world,
                              np.tile([0.6, 0, 0.5], (n, 1, 1)), np.tile([1.0, 0, 0, 0], (n, 1, 1)))
render_videos(model, [still(5, 0), still(100_000, 1)], ["fixed", "tracking"], sys.argv[1],
              camera_res=(48, 64), quality="draft", workers=int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_whole_videos_only(tmp_path: Path, workers: int) -> None:
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path), str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    first = tmp_path / "traj0000_world0"
    with _killed_at_last(process):
        for _ in range(600):
            if (first / "fixed.mp4").exists() and (first / "tracking.mp4").exists():
                break
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        assert any(".partial" in name for name in files(tmp_path))
        os.killpg(process.pid, signal.SIGINT)
        words = process.communicate(timeout=30)[1]
    assert "KeyboardInterrupt" in words
    assert process.returncode == -signal.SIGINT
    assert files(tmp_path) == ["traj0000_world0/fixed.mp4", "traj0000_world0/tracking.mp4"]
    assert len(read_video(first / "fixed.mp4").frames) == 5


@contextlib.contextmanager
def _killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_progress_is_shown_when_asked(
    model: mujoco.MjModel, trajectories: list[RecordedTrajectory], tmp_path: Path, capsys: Any
) -> None:
    render_videos(model, trajectories[0], CAMERAS, tmp_path, progress=True, **DRAFT)
    assert "18/18" in capsys.readouterr().err
    render_videos(model, trajectories[0], CAMERAS, tmp_path, **DRAFT)
    assert capsys.readouterr() == ("", "")  # this is no terminal


def test_nameless_cameras_have_files(tmp_path: Path) -> None:
    model = nameless_model().compile()
    paths = render_videos(model, still(model, 2), [0, 1], tmp_path, **DRAFT)
    assert [path.name for path in paths] == ["camera0.mp4", "camera1.mp4"]
