"""Options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flytraj.errors import DatasetNotFoundError, InvalidArgumentError

__all__ = [
    "At",
    "BackendOption",
    "Cameras",
    "DatasetPath",
    "Draft",
    "Episode",
    "GridOption",
    "Json",
    "ModelFile",
    "Size",
    "Time",
    "Worlds",
    "choose_cameras",
    "choose_model",
    "parse_grid",
    "parse_size",
]

DatasetPath = Annotated[str, typer.Argument(help="The dataset: a path, or a URL.", metavar="PATH")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Worlds = Annotated[str | None, typer.Option("--world", help="Ids and ranges of worlds, such as 3,7,40-47.")]
Time = Annotated[
    str | None, typer.Option("--time", help="Seconds from:to on the recording's clock, such as 0.5:1.5.")
]
Episode = Annotated[
    str | None, typer.Option("--episode", help="Numbers of episodes, such as 0 or 1-3; each apart.")
]
Cameras = Annotated[
    list[str] | None,
    typer.Option("--camera", help='Name or number, or "free"; repeat it for more. Default: the first.'),
]
ModelFile = Annotated[
    Path | None, typer.Option("--model", help="MJCF or MJB file to use instead of the embedded model.")
]
Size = Annotated[str, typer.Option("--size", help="Width x height of each picture, in pixels.")]
GridOption = Annotated[
    str | None, typer.Option("--grid", help="Rows x columns, auto, or none for each world apart.")
]
Draft = Annotated[bool, typer.Option("--draft", help="Faster: no shadows, reflections or smoothing.")]
BackendOption = Annotated[Literal["auto", "opengl", "warp"], typer.Option("--backend", help="What renders.")]
At = Annotated[str | None, typer.Option("--at", help="Moments in seconds, such as 0.5,1,1.5.")]

_PAIR = re.compile(r"(\d{1,6})x(\d{1,6})")


def parse_size(text: str) -> tuple[int, int]:
    """`(height, width)` from `WIDTHxHEIGHT`.

    Raises:
        InvalidArgumentError: The text is no size.
    """
    match = _PAIR.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(f"--size takes width x height in pixels such as 320x240, found {text!r}.")
    return int(match[2]), int(match[1])


def parse_grid(text: str) -> tuple[int, int] | Literal["auto"] | None:
    """`(rows, columns)` from `ROWSxCOLUMNS`, "auto", or None from "none".

    Raises:
        InvalidArgumentError: The text is none of them.
    """
    if text == "none":
        return None
    if text == "auto":
        return "auto"
    match = _PAIR.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(f"--grid takes rows x columns such as 2x3, auto or none, found {text!r}.")
    return int(match[1]), int(match[2])


def choose_model(view: Any, path: Path | None) -> Any:
    """The model in a file, or the one embedded in the dataset.

    Raises:
        DatasetNotFoundError: There is no such file.
        InvalidArgumentError: MuJoCo cannot load it.
        ModelMismatchError: It is not the model of the dataset.
        FormatError: No file is given, and no model is embedded.
    """
    if path is None:
        return view.traj.model()
    model = load_model_file(path)
    view.traj.check_model(model)
    return model


def load_model_file(path: Path) -> Any:
    """Load an MJCF or MJB file.

    Raises:
        DatasetNotFoundError: There is no such file.
        InvalidArgumentError: MuJoCo cannot load it.
    """
    import mujoco

    if not path.is_file():
        raise DatasetNotFoundError(f"No model file at {path}.")
    load = mujoco.MjModel.from_binary_path if path.suffix == ".mjb" else mujoco.MjModel.from_xml_path
    try:
        return load(str(path))
    except ValueError as error:
        raise InvalidArgumentError(f"MuJoCo cannot load the model {path}: {error}") from error


def choose_cameras(model: Any, names: list[str] | None) -> list[Any]:
    """Cameras by name or number; without any, the model's first one, or a free camera if it has none."""
    from flytraj.rendering import FreeCamera

    if not names:
        return [0] if model.ncam else [FreeCamera()]
    known = {model.camera(i).name for i in range(model.ncam)}
    return [
        name if name in known else FreeCamera() if name == "free" else int(name) if name.isdecimal() else name
        for name in names
    ]
