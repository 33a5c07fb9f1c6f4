from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from flytraj import errors
from flytraj.cli import exits, run
from flytraj.cli.selection import parse_numbers, parse_time, select


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = ["warp", "mujoco_warp", "xarray", "zarr", "tensorstore", "PIL"]
    code = f"import flytraj.cli, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
