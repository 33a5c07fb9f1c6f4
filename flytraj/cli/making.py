"""Commands that make pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flytraj.cli.exits import INTERRUPTED
from flytraj.cli.options import (
    At,
    BackendOption,
    Cameras,
    DatasetPath,
    Draft,
    Episode,
    GridOption,
    ModelFile,
    Size,
    Time,
    Worlds,
    choose_cameras,
    choose_model,
    parse_grid,
    parse_size,
)
from flytraj.errors import InvalidArgumentError

if TYPE_CHECKING:
    from flytraj.trajectory import Clip

__all__ = ["register"]

_MOST_UNASKED = 16


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(epilog="Example: flytraj demo my-first-demo")(demo)
    app.command(epilog="Example: flytraj render demo.zarr -o four.mp4 --world 3,7,40-41 --time 0.5:1.5")(
        render
    )
    app.command(epilog="Example: flytraj sheet demo.zarr -o sheet.png --world 0-3 --at 0.5,1,1.5")(sheet)


def demo(
    directory: Annotated[Path, typer.Argument(help="Where it goes.", metavar="DIR")] = Path("flytraj-demo"),
    worlds: Annotated[int, typer.Option(min=4, max=100_000, help="Number of worlds.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600, help="Simulated seconds.")] = 6.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a demo that is there.")] = False,
) -> None:
    """Simulate flies in many worlds, record them, and render four of the worlds to a video and a picture."""
    from flytraj.demo.run import run_demo, what_is_left

    try:
        run_demo(directory, n_worlds=worlds, seconds=seconds, overwrite=overwrite, say=typer.echo)
    except KeyboardInterrupt:
        typer.echo(f"\nStopped. {what_is_left(directory)}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def render(
    path: DatasetPath,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="An .mp4 file, or a folder for several videos.")
    ],
    world: Worlds = None,
    time: Time = None,
    episode: Episode = None,
    camera: Cameras = None,
    grid: GridOption = None,
    size: Size = "320x240",
    draft: Draft = False,
    backend: BackendOption = "auto",
    model: ModelFile = None,
) -> None:
    """Render chosen worlds to videos, which are replaced if they exist.

    Several worlds go side by side into one video if the output ends in .mp4, else each into its own.
    """
    from flytraj.cli.selection import select_clips
    from flytraj.rendering import render_videos

    resolution = parse_size(size)
    view = _view(path, world, time)
    clips = select_clips(view, episode)
    _refuse_many(path, clips, world)
    mj_model = choose_model(view, model)
    cameras = choose_cameras(mj_model, camera)
    default_grid = "auto" if output.suffix == ".mp4" and len(clips) > 1 else "none"
    layout = parse_grid(grid or default_grid)
    n_videos = len(cameras) * (1 if layout else len(clips))
    if n_videos > 1 and output.suffix == ".mp4":
        raise InvalidArgumentError(f"This makes {n_videos} videos: let --output name a folder, not {output}.")
    paths = render_videos(
        mj_model,
        clips,
        cameras,
        output,
        camera_res=resolution,
        grid=layout,
        quality="draft" if draft else "normal",
        backend=backend,
    )
    for made in paths:
        typer.echo(made)


def sheet(
    path: DatasetPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .png file.")],
    world: Worlds = None,
    time: Time = None,
    at: At = None,
    camera: Annotated[
        str | None, typer.Option("--camera", help='Name or number, or "free". Default: the first.')
    ] = None,
    grid: GridOption = None,
    size: Size = "320x240",
    draft: Draft = False,
    backend: BackendOption = "auto",
    model: ModelFile = None,
) -> None:
    """Render a contact sheet: one moment of several worlds, or one world over time."""
    from flytraj.cli.selection import nearest_frames, select_clips
    from flytraj.rendering import contact_sheet

    if output.suffix != ".png":
        raise InvalidArgumentError(f"--output must end in .png, found {output}.")
    layout = parse_grid(grid) if grid else "auto"
    if layout is None:
        raise InvalidArgumentError("--grid none makes no sheet: give rows x columns such as 2x3, or auto.")
    resolution = parse_size(size)
    view = _view(path, world, time)
    clips = select_clips(view)
    _refuse_many(path, clips, world)
    mj_model = choose_model(view, model)
    (only,) = choose_cameras(mj_model, [camera] if camera else None)
    contact_sheet(
        mj_model,
        clips,
        only,
        output,
        moments=None if at is None else nearest_frames(view, at),
        grid=layout,
        camera_res=resolution,
        quality="draft" if draft else "normal",
        backend=backend,
    )
    typer.echo(output)


def _view(path: str, world: str | None, time: str | None) -> Any:
    from flytraj.cli.selection import select
    from flytraj.dataset import open_dataset

    return select(open_dataset(path), world, time)


def _refuse_many(path: str, clips: list[Clip], world: str | None) -> None:
    """All worlds of a large dataset are hardly ever meant."""
    if world is None and len(clips) > _MOST_UNASKED:
        example = f"{clips[0].world_id},{clips[1].world_id}"
        raise InvalidArgumentError(
            f"{path} has {len(clips)} worlds to render: choose some, such as --world {example}."
        )
