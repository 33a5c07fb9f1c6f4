"""The page in the browser: what it reads, where it puts the worlds, what people see and do."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import flytraj as ft
from flytraj.cli.main import app
from flytraj.demo.run import record_demo
from flytraj.store.folder_engine import FolderEngine
from flytraj.testing import pendulum, tiny_model

viser = pytest.importorskip("viser", reason="the page needs viser: pip install 'flytraj[view]'")
pytest.importorskip("mjviser", reason="the page needs mjviser: pip install 'flytraj[view]'")

from flytraj.viewing.page import _PANEL_WIDTH  # noqa: E402
from flytraj.viewing.plots import Plots, names_to_plot  # noqa: E402
from flytraj.viewing.scene import WorldsScene, free_bodies  # noqa: E402
from flytraj.viewing.tracks import BLOCK_FRAMES, Blocks, choose_tracks  # noqa: E402
from tests.browser import Browser, chromium, open_browser  # noqa: E402

Pixels = NDArray[np.int64]

_WIDTH = 400


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def swings(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """4 worlds 10, 20, 30, 40 of 300 frames of 0.02 s; qpos is world + frame / 1000; 20 was reset at 120 and 200."""
    path = tmp_path_factory.mktemp("swings") / "swings.zarr"
    frame = np.arange(300)
    qpos = np.array([10, 20, 30, 40])[:, np.newaxis] + frame / 1000
    sim_time = np.tile(0.02 * frame, (4, 1))
    sim_time[1] = 0.02 * np.concatenate([np.arange(120), np.arange(80), np.arange(100)])
    model = pendulum().compile()
    reward = np.full((4, 300), np.nan)
    reward[:, 100:] = frame[100:]
    ft.write_dataset(
        path,
        model,
        qpos=qpos[..., np.newaxis],
        time=sim_time,
        world_ids=[10, 20, 30, 40],
        channels={"reward": reward},
        output_fps=50,
        playback_speed=1.0,
    )
    return ft.open_dataset(path)


@pytest.fixture(scope="module")
def flies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 worlds of the demo, 1.2 s: 30 frames."""
    path = tmp_path_factory.mktemp("flies") / "demo.zarr"
    record_demo(path, n_worlds=6, seconds=1.2)
    return path


@pytest.fixture
def server() -> Iterator[Any]:
    with contextlib.redirect_stdout(None):
        made = viser.ViserServer("127.0.0.1", 0, verbose=False)
        yield made
        made.stop()


def test_an_episode_begins_at_its_first_frame_and_stays_at_its_last(swings: xr.Dataset) -> None:
    tracks = choose_tracks(swings, [20, 10], 1)
    assert [(t.clip.world_id, t.row, t.first, t.n_frames) for t in tracks] == [(20, 1, 120, 80)]
    assert [tracks[0].frame(place) for place in (0, 79, 80, 500)] == [120, 199, 199, 199]
    (whole,) = choose_tracks(swings, [20], None)
    assert (whole.first, whole.n_frames) == (0, 300)
    assert [whole.episode(frame) for frame in (0, 119, 120, 199, 200, 299)] == [0, 0, 1, 1, 2, 2]


def test_worlds_and_episodes_that_are_not_there(swings: xr.Dataset) -> None:
    with pytest.raises(
        ft.errors.FieldNotFoundError, match="World 7 is not here; there are 4 worlds from 10 to 40"
    ):
        choose_tracks(swings, [10, 7], None)
    with pytest.raises(ft.errors.FieldNotFoundError, match="None of the worlds chosen has an episode 1"):
        choose_tracks(swings, [10, 30], 1)


def test_blocks_hold_the_frames_asked_for_within_their_bytes(swings: xr.Dataset) -> None:
    tracks = choose_tracks(swings, [10, 20, 30, 40], None)
    row_bytes = 2 * 8
    blocks = Blocks(most_bytes=3 * BLOCK_FRAMES * row_bytes)
    for frame in np.random.default_rng(0).permutation(300).tolist():
        for track in tracks:
            block, at = blocks.read(track.clip, frame)
            assert block.qpos[at, 0] == track.clip.world_id + frame / 1000
            assert block.n_frames <= BLOCK_FRAMES
            assert 0 < blocks.n_bytes <= 3 * BLOCK_FRAMES * row_bytes
    small = Blocks(most_bytes=1)
    small.read(tracks[0].clip, 0)
    block, at = small.read(tracks[0].clip, 299)
    assert block.qpos[at, 0] == 10.299
    assert small.n_bytes == block.n_frames * row_bytes == 44 * row_bytes


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 worlds of 40,000 frames; qpos is world + frame / 100,000."""
    path = tmp_path_factory.mktemp("long") / "long.zarr"
    frame = np.arange(40_000)
    qpos = (np.arange(8)[:, np.newaxis] + frame / 100_000)[..., np.newaxis]
    ft.write_dataset(
        path, pendulum().compile(), qpos=qpos, time=0.02 * frame, output_fps=50, playback_speed=1.0
    )
    return path


def test_scrubbing_reads_blocks_around_the_slider_and_no_more(
    long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_array = FolderEngine.read_array

    def counting(self: FolderEngine, name: str, document: Any, box: Any) -> Any:
        values = read_array(self, name, document, box)
        if name == "qpos":
            read.append(values.size)
        return values

    monkeypatch.setattr(FolderEngine, "read_array", counting)
    with ft.open_dataset(long).traj.view(worlds=[0, 3, 5]) as page:
        until(lambda: bool(page.controls.rows))
        at_first = sum(read)
        for frame in (39_999, 12_345, 12_346, 20_000, 777):
            page.controls.frame.value = frame
            until(lambda: all(row[3] == pytest.approx(0.02 * frame) for row in page.controls.rows))  # noqa: B023
    # A window of 1000 frames for the plot and a block of 64 for the picture, of 3 worlds each, at 5 places.
    assert at_first == 3 * (1000 + BLOCK_FRAMES)
    assert max(read) == 1000
    assert sum(read) == 3 * (1000 + BLOCK_FRAMES) * 5
    assert sum(read) < 0.05 * 8 * 40_000


def _states(model: mujoco.MjModel, n: int) -> tuple[ft.RecordedTrajectory, list[mujoco.MjData]]:
    """Random states of a model, and MuJoCo's own data for each."""
    rng = np.random.default_rng(1)
    data = []
    for _ in range(n):
        one = mujoco.MjData(model)
        one.qpos[:] += rng.normal(scale=0.3, size=model.nq)
        mujoco.mj_normalizeQuat(model, one.qpos)
        one.mocap_pos[:] += rng.normal(size=(model.nmocap, 3))
        mujoco.mj_forward(model, one)
        data.append(one)
    states = ft.RecordedTrajectory(
        np.zeros(n),
        np.stack([one.qpos for one in data]),
        25,
        1.0,
        0,
        np.stack([one.mocap_pos for one in data]),
        np.stack([one.mocap_quat for one in data]),
    )
    return states, data


def test_worlds_stand_where_mujoco_puts_them_side_by_side(server: Any) -> None:
    model = tiny_model().compile()
    states, data = _states(model, 3)
    scene = WorldsScene(server, model, (states, 0))
    scene.label(["a", "b", "c"])
    scene.place([(states, 0), (states, 1), (states, 2)], spacing=2.0, follow=None)
    cells = np.array([[-1, 1, 0], [1, 1, 0], [-1, -1, 0]])
    for name in ("target", "torso", "head", "leg", "foot"):
        body = model.body(name).id
        handle = server.scene.get_handle_by_name(f"/bodies/{body}/opaque0")
        expected = np.stack([one.xpos[body] for one in data]) + cells
        np.testing.assert_allclose(handle.batched_positions, expected, atol=1e-6)
        np.testing.assert_allclose(
            handle.batched_wxyzs, np.stack([one.xquat[body] for one in data]), atol=1e-6
        )
    ends = [[one.site("tip").xpos, one.site("sole").xpos] for one in data]
    np.testing.assert_allclose(
        server.scene.get_handle_by_name("/tendons").points, np.array(ends) + cells[:, np.newaxis], atol=1e-6
    )
    assert [server.scene.get_handle_by_name(f"/labels/{i}").text for i in range(3)] == ["a", "b", "c"]
    assert server.scene.get_handle_by_name("/floor/grid").visible


def test_a_followed_body_stays_in_the_middle_and_the_floor_passes_under_it(server: Any) -> None:
    model = tiny_model().compile()
    states, data = _states(model, 2)
    assert free_bodies(model) == {"torso": model.body("torso").id}
    torso = model.body("torso").id
    scene = WorldsScene(server, model, (states, 0))
    scene.label(["a", "b"])
    scene.place([(states, 0), (states, 1)], spacing=1.0, follow=torso)
    handle = server.scene.get_handle_by_name(f"/bodies/{torso}/opaque0")
    np.testing.assert_allclose(handle.batched_positions[:, :2], [[-0.5, 0], [0.5, 0]], atol=1e-6)
    np.testing.assert_allclose(
        handle.batched_positions[:, 2], [one.xpos[torso, 2] for one in data], atol=1e-6
    )
    lines = server.scene.get_handle_by_name("/floor/lines").points
    across = lines[np.ptp(lines[..., 0], axis=1) < 1e-6][:, 0, 0]
    assert len(across) > 6
    tile = np.diff(across).min(where=np.diff(across) > 1e-6, initial=1)
    assert round(float(tile), 5) in (0.05, 0.1, 0.2)
    for cell, one in zip((-0.5, 0.5), data, strict=True):
        in_world = across[np.abs(across - cell) < 0.5] - cell + one.xpos[torso, 0]
        tiles = in_world / tile
        np.testing.assert_allclose(tiles, np.round(tiles), atol=1e-5)
    scene.label(["a"])
    scene.place([(states, 1)], spacing=1.0, follow=torso)
    assert server.scene.get_handle_by_name("/floor/grid").visible
    np.testing.assert_allclose(
        server.scene.get_handle_by_name("/floor/grid").position, [*-data[1].xpos[torso, :2], 0], atol=1e-6
    )
    assert not server.scene.get_handle_by_name("/labels/1").visible


def test_geoms_have_the_colour_mujoco_gives_them(server: Any) -> None:
    spec = mujoco.MjSpec.from_string("""
        <mujoco>
          <asset><material name="glass" rgba="0 0 1 0.5"/></asset>
          <worldbody>
            <geom name="of the material" type="sphere" size="1" material="glass"/>
            <geom name="its own" type="sphere" size="1" material="glass" rgba="1 0 0 0.25"/>
            <geom name="hidden" type="sphere" size="1" group="3" rgba="1 1 1 0.5"/>
          </worldbody>
        </mujoco>""")
    model = spec.compile()
    WorldsScene(server, model, (ft.RecordedTrajectory(np.zeros(1), np.zeros((1, 0)), 25, 1.0), 0))
    shown = {i: server.scene.get_handle_by_name(f"/bodies/0/geom{i}") for i in range(3)}
    assert shown[0].batched_colors.tolist() == [0, 0, 255]
    assert shown[0].opacity == 0.5
    assert shown[1].batched_colors.tolist() == [255, 0, 0]
    assert shown[1].opacity == 0.25
    assert shown[2] is None
    assert model.geom_matid.tolist() == [0, 0, -1]


def test_plots_show_the_recorded_values_and_the_place(server: Any, swings: xr.Dataset) -> None:
    assert names_to_plot(swings) == ["swing", "reward"]
    plots = Plots(server, server.gui.add_folder("Plots"), swings, None)
    plots.add("swing")
    plots.follow(choose_tracks(swings, [20, 40], None), from_start=False)
    plots.show(150)
    x, first, second, mark = plots.handles[0].data
    at = np.flatnonzero(np.isfinite(mark))
    np.testing.assert_allclose(x[at], swings["time"].values[150])
    np.testing.assert_array_equal(np.delete(x, at[0]), swings["time"].values)
    np.testing.assert_array_equal(np.delete(first, at[0]), swings["qpos"].values[1, :, 0])
    np.testing.assert_array_equal(np.delete(second, at[0]), swings["qpos"].values[3, :, 0])
    low, high = plots.handles[0].scales["y"]["range"]
    assert mark[at].tolist() == [low, high]
    assert low < 20 < 40.299 < high
    plots.follow(choose_tracks(swings, [10, 20], 0), from_start=True)
    plots.add("reward")
    plots.show(0)
    x, _, second, _ = plots.handles[0].data
    np.testing.assert_allclose(x[1:], 0.02 * np.arange(300), atol=1e-12)
    assert np.isfinite(second[1:]).sum() == 120
    low, high = plots.handles[1].scales["y"]["range"]
    assert low < 100 < 299 < high < 350
    plots.clear()
    plots.show(0)
    assert [handle.visible for handle in plots.handles] == [False, False]


def test_a_wrong_choice_is_told_and_the_worlds_stay(swings: xr.Dataset) -> None:
    with swings.traj.view(worlds=[10, 20]) as page:
        for text, words in (("10,", "3,7,40-47, found"), ("10,50", "World 50"), ("0-99", "1 to 64 worlds")):
            page.controls.worlds.value = text
            until(lambda: page.controls.notice != "")
            assert words in page.controls.notice
            assert [row[1] for row in page.controls.rows] == [10, 20]
            page.controls.worlds.value = "10,20"
            until(lambda: page.controls.notice == "")
        page.controls.worlds.value = "20,40"
        until(lambda: [row[1] for row in page.controls.rows] == [20, 40])
        page.controls.episode.value = "2"
        until(lambda: [row[1:3] for row in page.controls.rows] == [(20, 2)])
        assert page.controls.frame.max == 99


def test_playing_goes_on_at_the_speed_chosen(swings: xr.Dataset) -> None:
    with swings.traj.view() as page:
        page.controls.frame.value = 100
        until(lambda: page.controls.rows[:1] != [] and page.controls.rows[0][3] == pytest.approx(2.0))
        page.controls.play(True)
        began = time.monotonic()
        time.sleep(1)
        place, elapsed = page.controls.frame.value, time.monotonic() - began
        page.controls.play(False)
    assert place - 100 == pytest.approx(50 * elapsed, abs=10)


def test_what_cannot_be_viewed(swings: xr.Dataset) -> None:
    with pytest.raises(ft.errors.InvalidArgumentError, match="no frames"):
        swings.isel(frame=slice(0)).traj.view()
    with pytest.raises(ft.errors.FieldNotFoundError, match="'wing'"):
        swings.traj.view(names=["wing"])
    with pytest.raises(ft.errors.ModelMismatchError):
        swings.traj.view(tiny_model().compile())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ft.errors.InvalidArgumentError, match=f"127.0.0.1:{port}: .*in use.* another host or port"
        ):
            swings.traj.view(port=port)
    with pytest.raises(ft.errors.InvalidArgumentError, match=r"No page can be served at 203\.0\.113\.7"):
        swings.traj.view(host="203.0.113.7")


def test_nothing_is_left_listening(swings: xr.Dataset) -> None:
    with swings.traj.view() as page:
        port = int(page.url.rpartition(":")[2])
        with urllib.request.urlopen(page.url, timeout=10) as answer:
            assert b"<html" in answer.read()
    page.close()
    page.wait()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_without_viser_the_extra_is_named(flies: Path) -> None:
    without = "import sys; sys.modules['viser'] = None; from flytraj.cli import run;"
    code = f"{without} sys.exit(run(['view', {str(flies)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7
    assert (
        done.stderr == "flytraj: The page needs viser, which is not installed: pip install 'flytraj[view]'.\n"
    )


def test_the_command_serves_this_machine_until_ctrl_c(flies: Path) -> None:
    (epilog,) = (
        c.epilog for c in app.registered_commands if c.callback is not None and c.callback.__name__ == "view"
    )
    assert epilog is not None
    words = shlex.split(epilog.removeprefix("Example: flytraj "))
    command = [sys.executable, "-u", "-m", "flytraj.cli", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=flies.parent, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = r"demo.zarr is shown at (http://127\.0\.0\.1:(\d+)) until Ctrl-C\.\n"
        match = re.fullmatch(said, process.stdout.readline())
        assert match is not None
        with urllib.request.urlopen(match[1], timeout=10) as answer:
            assert answer.status == 200
        for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
            address = str(info[4][0])
            if not address.startswith("127."):
                with pytest.raises(OSError, match=r"refused|timed out"):
                    socket.create_connection((address, int(match[2])), timeout=2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = chromium()
    if executable is None:
        pytest.skip("no Chromium or Chrome here")
    # Small, as it is drawn by the processor.
    with open_browser(executable, width=_WIDTH + _PANEL_WIDTH, height=420) as opened:
        yield opened


def _change(before: Pixels, after: Pixels) -> float:
    """Share of the pixels that differ clearly."""
    return float((np.abs(before - after).max(axis=-1) > 40).mean())


def _settled(browser: Browser) -> Pixels:
    """Pixels of the 3D view, once there is something in it that no longer moves."""
    before = None
    for _ in range(60):
        after = browser.screenshot()[:, :_WIDTH].astype(int)
        if (
            before is not None
            and _change(before, after) == 0
            and _change(after, np.full_like(after, 255)) > 0.02
        ):
            return after
        before = after
        time.sleep(0.3)
    raise AssertionError("the worlds never came to rest")


@pytest.mark.slow
def test_in_the_browser_a_world_moves_when_the_slider_moves(browser: Browser, flies: Path) -> None:
    browser.errors.clear()
    with ft.open_dataset(flies).traj.view(worlds=[0, 1], names=["fly/z", "neck"]) as page:
        browser.open(page.url)
        browser.wait_for("document.querySelectorAll('.uplot canvas').length == 2")
        browser.wait_for(_table() + " == '0,1'")
        first = _settled(browser)

        browser.run(_thumb("Frame"))
        browser.press("End", 35)
        until(lambda: page.controls.frame.value == 29)
        last = _settled(browser)
        assert _change(first, last) > 0.01
        browser.press("Home", 36)
        until(lambda: page.controls.frame.value == 0)
        assert _change(first, _settled(browser)) < 0.001

        browser.run(_input("Worlds"))
        browser.type("2-5")
        browser.wait_for(_table() + " == '2,3,4,5'")
        assert _change(first, _settled(browser)) > 0.01

        browser.run(_button("Play"))
        browser.wait_for("[...document.querySelectorAll('button')].some(b => b.innerText.includes('Pause'))")
        until(lambda: page.controls.frame.value > 5)
        browser.run(_button("Pause"))
        browser.run(_button("Remove plots"))
        browser.wait_for("document.querySelectorAll('.uplot canvas').length == 0")
        browser.run(_button("Add plot"))
        browser.wait_for("document.querySelectorAll('.uplot canvas').length == 1")
    assert browser.errors == []


def _table() -> str:
    """The worlds in the table under the slider."""
    return "[...document.querySelectorAll('td:nth-child(2)')].map(cell => cell.innerText).slice(1).join()"


def _button(label: str) -> str:
    return f"[...document.querySelectorAll('button')].find(b => b.innerText.trim() == '{label}').click()"


def _beside(label: str, selector: str) -> str:
    """The first element of a kind that stands beside a label."""
    return f"""(() => {{
        let e = [...document.querySelectorAll('*')].find(e => !e.childElementCount && e.innerText?.trim() == '{label}');
        while (!e.querySelector('{selector}')) e = e.parentElement;
        return e.querySelector('{selector}');
    }})()"""


def _input(label: str) -> str:
    return f"(i => {{ i.focus(); i.select(); }})({_beside(label, 'input:not([type=hidden])')})"


def _thumb(label: str) -> str:
    return f"{_beside(label, '[role=slider]')}.focus()"
