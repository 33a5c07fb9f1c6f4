from __future__ import annotations

import glob
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import xarray as xr
from PIL import Image

import flytraj as ft
from flytraj import errors
from flytraj.cli import exits, run
from flytraj.cli.main import app
from flytraj.cli.selection import parse_numbers, parse_time, select
from flytraj.demo.run import record_demo
from flytraj.rendering import render_trajectories
from flytraj.testing import pendulum


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = ["warp", "mujoco_warp", "xarray", "zarr", "tensorstore", "PIL"]
    code = f"import flytraj.cli, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [["doctor"], ["info", "none.zarr"]])
def test_a_value_of_mujoco_gl_that_mujoco_refuses_is_named(command: list[str]) -> None:
    environment = {**os.environ, "MUJOCO_GL": "crayons"}
    done = subprocess.run(
        [sys.executable, "-m", "flytraj", *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == exits.NOT_POSSIBLE_HERE
    assert done.stderr.startswith("flytraj: MuJoCo cannot be imported with MUJOCO_GL=crayons")
    assert done.stderr.count("\n") == 1


def test_a_ctrl_c_that_became_an_import_error_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("numpy could not be loaded") from error

    monkeypatch.setattr(sys.modules["flytraj.cli.main"], "app", interrupted)
    assert run(["info", "a.zarr"]) == exits.INTERRUPTED
    assert capsys.readouterr().err == "Stopped.\n"


def test_worlds_are_read_in_order_each_once() -> None:
    assert parse_numbers("3,7,40-43", "--world") == [3, 7, 40, 41, 42, 43]
    assert parse_numbers("5, 5,4-6", "--world") == [5, 4, 6]


@pytest.mark.parametrize("text", ["", "a", "3-", "7-3", "1,,2", "-1", "1.5", "0-99999999999"])
def test_worlds_that_cannot_be_read(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="--world"):
        parse_numbers(text, "--world")


def test_times() -> None:
    assert parse_time("0.5:1.5") == (0.5, 1.5)
    assert parse_time(":2") == (None, 2.0)
    assert parse_time("1e-1:") == (0.1, None)


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "a:b", "2:1", "nan:1", "0:inf"])
def test_times_that_cannot_be_read(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="--time"):
        parse_time(text)


def _view() -> xr.Dataset:
    qpos = np.arange(3 * 4).reshape(3, 4, 1)
    coords = {"world": [2, 5, 9], "time": ("frame", [0.0, 0.1, 0.2, 0.3])}
    return xr.Dataset({"qpos": (("world", "frame", "nq"), qpos)}, coords).set_xindex("time")


def test_select_takes_worlds_and_seconds_both_ends_included() -> None:
    part = select(_view(), "9,2", "0.1:0.2")
    assert part["qpos"].values[..., 0].tolist() == [[9, 10], [1, 2]]


def test_select_names_worlds_that_are_not_there() -> None:
    with pytest.raises(
        errors.FieldNotFoundError, match=r"World 3, 4 is not in the dataset, .* 3 worlds from 2 to 9"
    ):
        select(_view(), "2-5")


def test_select_tells_how_long_the_recording_is() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"No frame in --time 1:2.*runs from 0 to 0.3 s"):
        select(_view(), time="1:2")


def test_every_error_of_flytraj_has_an_exit_code() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert {kind.__name__: exits.exit_code(kind("x")) for kind in kinds} == {
        "CorruptDatasetError": 4,
        "DatasetExistsError": 5,
        "DatasetLockedError": 5,
        "DatasetNotFoundError": 3,
        "FieldNotFoundError": 2,
        "FlytrajError": 1,
        "FormatError": 3,
        "InvalidArgumentError": 2,
        "MissingDependencyError": 7,
        "ModelMismatchError": 2,
        "NothingRecordedError": 1,
        "RecorderClosedError": 1,
        "RenderError": 7,
        "RingOverrunError": 1,
        "TrajectoryFileError": 3,
        "VideoError": 6,
        "WriteError": 6,
    }


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flytraj 0.")


def test_doctor_finds_what_this_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    findings = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert findings["ffmpeg"]["works"]
    assert findings["Warp cpu"]["works"]
    assert findings["mujoco"]["found"] == __import__("mujoco").__version__
    assert code == 0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 worlds of the demo, 1.6 s: 40 frames."""
    path = tmp_path_factory.mktemp("cli") / "demo.zarr"
    record_demo(path, n_worlds=48, seconds=1.6)
    return path


def _refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and the one line on stderr of a command that must fail."""
    code = run([str(word) for word in words])
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1, printed.err
    assert printed.err.startswith("flytraj: ")
    return code, printed.err


def test_info_tells_what_xarray_tells(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ds = xr.open_zarr(dataset)
    assert run(["info", str(dataset), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["worlds"], told["frames"]) == (48, 40) == ds["qpos"].shape[:2]
    assert told["episodes"] == sum(len(np.unique(row)) for row in ds["episode"].values) > 48
    assert told["fields"]["mocap_quat"] == {"dims": ["nmocap", "wxyz"], "shape": [1, 4], "dtype": "float64"}
    assert told["bytes_of_values"] == 48 * 40 * 8 * (29 + 3 + 4 + 1.5) + 40 * 8
    assert told["model"]["embedded"] == ["xml", "mjb"]
    assert told["recoverable_frames"] == 0
    assert not told["being_written"]


def test_info_for_people(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(dataset)]) == 0
    rows = dict(line.split("  ", maxsplit=1) for line in capsys.readouterr().out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["worlds × frames"] == "48 × 40"
    assert rows["model"].startswith("XML and MJB embedded")
    assert rows["state"] == "complete; flytraj validate reads and checks everything"


def test_render_into_one_grid(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "two.mp4"
    words = [
        "render",
        dataset,
        "-o",
        out,
        "--world",
        "7,3",
        "--time",
        "0.5:0.7",
        "--size",
        "64x48",
        "--draft",
    ]
    assert run([str(word) for word in words]) == 0
    assert capsys.readouterr().out.split() == [str(out)]
    assert _frames(out, 64 * 2 + 2, 48) == 5


def test_render_apart_by_episode_and_camera(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ft.open_dataset(dataset).traj.episodes()
    world = int(table[table["episode"] == 1]["world"].iloc[0])
    row = table[(table["world"] == world) & (table["episode"] == 1)].iloc[0]
    words = ["render", dataset, "-o", tmp_path / "out", "--world", world, "--episode", "1", "--size", "32x32"]
    words += ["--camera", "above", "--camera", "free", "--draft"]
    assert run([str(word) for word in words]) == 0
    paths = capsys.readouterr().out.split()
    assert paths == [str(tmp_path / "out" / "above.mp4"), str(tmp_path / "out" / "free.mp4")]
    assert _frames(Path(paths[0]), 32, 32) == row["last_frame"] - row["first_frame"] + 1


def test_sheet_takes_the_nearest_frames(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    words = ["sheet", dataset, "-o", out, "--world", "5", "--at", "0.5,1", "--size", "64x48", "--grid", "1x2"]
    assert run([str(word) for word in words]) == 0
    with Image.open(out) as picture:
        assert picture.size == (64 * 2 + 2, 48)
        pixels = np.asarray(picture)
    model = ft.open_dataset(dataset).traj.model()
    one = ft.open_dataset(dataset).sel(world=[5]).isel(frame=[12, 24])
    np.testing.assert_allclose(one["time"], [0.5, 0.98], atol=0.011)
    ((frames,),) = (entry.values() for entry in render_trajectories(model, one, 0, camera_res=(48, 64)))
    label = 16
    np.testing.assert_array_equal(pixels[label:, :64], frames[0][label:])
    np.testing.assert_array_equal(pixels[label:, 66:], frames[1][label:])


def test_export_and_import_give_the_same_back(dataset: Path, tmp_path: Path) -> None:
    assert run(["export", str(dataset), str(tmp_path / "npz"), "--world", "9,4", "--time", "1:"]) == 0
    assert run(["import", str(tmp_path / "npz"), "-o", str(tmp_path / "again.zarr")]) == 0
    again = ft.open_dataset(tmp_path / "again.zarr")
    assert again["world"].values.tolist() == [4, 9]
    original = ft.open_dataset(dataset).sel(world=[4, 9], time=slice(1, None))
    np.testing.assert_array_equal(again["qpos"], original["qpos"])
    np.testing.assert_array_equal(again["mocap_quat"], original["mocap_quat"])


def test_validate_finds_nothing_wrong(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(dataset)]) == 0
    assert "48 worlds, 40 frames" in capsys.readouterr().out
    assert run(["validate", str(dataset), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert (told["n_worlds"], told["n_frames"], told["problems"]) == (48, 40, [])


def test_validate_and_repair_a_damaged_dataset(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _torn_copy(dataset, tmp_path / "torn")
    assert run(["validate", str(path), "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert {problem["array"] for problem in told["problems"]} == {"qpos"}
    assert run(["repair", str(path)]) == 0
    assert "0 frames" in capsys.readouterr().out
    assert run(["validate", str(path)]) == 0


def test_repack_within_a_precision(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small.zarr"
    words = [dataset, small, "--precision", "1e-4", "--dtype", "float32", "--layout", "by-time"]
    assert run(["repack", *map(str, words)]) == 0
    assert capsys.readouterr().out.strip() == str(small)
    original, packed = ft.open_dataset(dataset)["qpos"], ft.open_dataset(small)["qpos"]
    assert packed.dtype == np.float32
    assert 0 < np.abs(packed.values - original.values).max() <= 1e-4


def test_plot_makes_a_picture(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "plot.png"
    words = ["plot", dataset, "-o", out, "--joint", "fly/z", "--joint", "neck", "--world", "0-3"]
    assert run([str(word) for word in words]) == 0
    with Image.open(out) as picture:
        assert np.asarray(picture.convert("L")).std() > 10


def test_plot_without_matplotlib_says_how_to_get_it(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, line = _refused(capsys, "plot", dataset, "-o", tmp_path / "plot.png", "--joint", "fly/z")
    assert (code, "flytraj[plot]" in line) == (7, True)
    assert not list(tmp_path.iterdir())


def test_wrong_uses_get_one_sentence_and_their_code(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.mp4"
    other = tmp_path / "other.xml"
    other.write_text(pendulum().to_xml())
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody>")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dir.mp4").mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    ft.RecordedTrajectory(np.zeros(1), np.zeros((1, 1)), 25, 1.0).save(tmp_path / "good.npz")
    newer, headless = (_copy_of(dataset, tmp_path / name) for name in ("newer", "headless"))
    root = (newer / "zarr.json").read_text()
    (newer / "zarr.json").write_text(root.replace('"format": 1', '"format": 99'))
    (headless / "zarr.json").unlink()
    cut = _copy_of(dataset, tmp_path / "cut")
    (cut / "zarr.json").write_text(root[:100])
    torn = _torn_copy(dataset, tmp_path / "torn")
    render = ("render", dataset, "-o", out)
    cases: list[tuple[int, str, tuple[object, ...]]] = [
        (3, "no dataset at", ("info", tmp_path / "missing")),
        (3, "folder", ("info", tmp_path / "folder")),
        (3, "has format 99", ("info", newer)),
        (3, "no flytraj dataset", ("info", headless)),
        (4, "'qpos'", ("export", torn, tmp_path / "npz")),
        (2, "has 48 worlds to render", render),
        (2, "World 48 is not in the dataset", (*render, "--world", "48")),
        (2, "--world takes numbers", (*render, "--world", "first")),
        (2, "No frame in --time 7:8", (*render, "--world", "0", "--time", "7:8")),
        (2, "--time takes seconds", (*render, "--world", "0", "--time", "now")),
        (2, "has episode 9", (*render, "--world", "0", "--episode", "9")),
        (2, "'nose' not found", (*render, "--world", "0", "--camera", "nose")),
        (2, "--camera free works", (*render, "--world", "0", "--camera", "nose")),
        (2, "--size takes", (*render, "--world", "0", "--size", "big")),
        (2, "--grid takes", (*render, "--world", "0", "--grid", "2by2")),
        (2, "do not fit in a grid", (*render, "--world", "0-3", "--grid", "1x2")),
        (2, "makes 2 videos", (*render, "--world", "0,1", "--grid", "none")),
        (2, "would lie in the dataset", ("render", dataset, "-o", dataset / "x.mp4", "--world", "0")),
        (2, "would lie in the dataset", ("sheet", dataset, "-o", dataset / "x.png", "--world", "0")),
        (2, "would lie in the dataset", ("plot", dataset, "-o", dataset / "x.png", "--joint", "fly/z")),
        (2, "would lie in the dataset", ("export", dataset, dataset / "npz")),
        (2, "would lie in the dataset", ("repack", dataset, dataset / "new.zarr")),
        (2, "Videos are .mp4 files", ("render", dataset, "-o", tmp_path / "x.avi", "--world", "0")),
        (3, "it is no JSON", ("info", cut)),
        (2, "recorded with another model", (*render, "--world", "0", "--model", other)),
        (2, "cannot load the model", (*render, "--world", "0", "--model", broken)),
        (3, "No model file", (*render, "--world", "0", "--model", tmp_path / "none.xml")),
        (3, "has format 99", ("validate", newer)),
        (3, "no dataset at", ("repair", tmp_path / "missing")),
        (2, "precision must be positive", ("repack", dataset, tmp_path / "new.zarr", "--precision", "0")),
        (5, str(dataset), ("repack", dataset, dataset)),
        (2, "must end in .png", ("plot", dataset, "-o", out, "--joint", "fly/z")),
        (2, "no 'wing' to plot", ("plot", dataset, "-o", tmp_path / "x.svg", "--joint", "wing")),
        (2, "must end in .png", ("sheet", dataset, "-o", out, "--world", "0")),
        (2, "No frame at 9 s", ("sheet", dataset, "-o", tmp_path / "x.png", "--world", "0", "--at", "9")),
        (3, "text.npz", ("import", tmp_path / "text.npz", "-o", tmp_path / "new.zarr")),
        (5, "exists already: choose another path.", ("import", tmp_path / "good.npz", "-o", dataset)),
        (5, "--overwrite", ("demo", dataset.parent)),
        (6, "text.npz is a file: name a folder", ("export", dataset, tmp_path / "text.npz", "--world", "0")),
        (
            6,
            "text.npz is a file, and no .mp4",
            ("render", dataset, "-o", tmp_path / "text.npz", "--world", "0"),
        ),
        (6, "is a folder: name another", ("render", dataset, "-o", tmp_path / "dir.mp4", "--world", "0")),
        (6, "/proc/none", ("demo", "/proc/none")),
        (2, "names more than 1,000,000", (*render, "--world", "0-99999999999")),
        (2, "is no range from low to high", (*render, "--world", "7-3")),
        (2, "Camera 7 not found in the model. It has: ", (*render, "--world", "0", "--camera", "7")),
        (2, "--size must be WIDTHxHEIGHT, from one pixel", (*render, "--world", "0", "--size", "0x9")),
        (2, "Name what to plot, such as fly/x", ("plot", dataset, "-o", tmp_path / "x.svg", "--joint", "")),
        (2, "--at takes seconds", ("sheet", dataset, "-o", tmp_path / "x.png", "--world", "0", "--at", "")),
        (
            2,
            "float32 cannot hold",
            ("repack", dataset, tmp_path / "new.zarr", "--precision", "1e-12", "--dtype", "float32"),
        ),
    ]
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for expected, words, command in cases:
        code, line = _refused(capsys, *command)
        assert words in line, line
        assert code == expected, line
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def _copy_of(dataset: Path, path: Path) -> Path:
    shutil.copytree(dataset, path)
    return path


def _torn_copy(dataset: Path, path: Path) -> Path:
    _copy_of(dataset, path)
    for shard in (path / "qpos").rglob("c*"):
        if shard.is_file():
            shard.write_bytes(shard.read_bytes()[:1000])
    return path


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    with pytest.raises(errors.DatasetNotFoundError):
        run(["info", str(tmp_path / "missing"), "--debug"])


def _examples() -> list[str]:
    examples = []
    for command in app.registered_commands:
        assert command.epilog is not None
        assert command.epilog.startswith("Example: flytraj ")
        examples.append(command.epilog.removeprefix("Example: flytraj "))
    return examples


@pytest.mark.slow
def test_every_example_runs(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(dataset, tmp_path / "demo.zarr")
    monkeypatch.chdir(tmp_path)
    for example in _examples():
        words = [found for word in shlex.split(example) for found in (sorted(glob.glob(word)) or [word])]
        if words[0] == "view" or (words[0] == "plot" and not importlib.util.find_spec("matplotlib")):
            continue  # `view` goes on until Ctrl-C: tests/test_viewing.py runs its example
        if words[0] == "demo":
            words += ["--worlds", "4", "--seconds", "0.4"]
        assert run(words) == 0, capsys.readouterr().err
        assert run([words[0], "--help"]) == 0
        assert example.split()[-1] in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_leaves_a_valid_dataset_and_no_half_video(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flytraj.cli", "demo", str(tmp_path / "d"), "--worlds", "32"]
    with subprocess.Popen([*command, "--seconds", "600"], stderr=subprocess.PIPE, text=True) as process:
        scratch = tmp_path / "d" / "demo.zarr"
        deadline = time.monotonic() + 60
        while not scratch.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read() if process.stderr else ""
    assert process.returncode == 130, said
    n_frames = ft.open_dataset(scratch).sizes["frame"]
    assert n_frames > 1
    assert f"is a valid dataset with {n_frames} frames of every world; no video was made." in said
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["demo.zarr"]


def _frames(path: Path, width: int, height: int) -> float:
    """Number of frames of that size in a video, by ffmpeg itself."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path)]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    return len(subprocess.run(command, capture_output=True, check=True).stdout) / (width * height * 3)
