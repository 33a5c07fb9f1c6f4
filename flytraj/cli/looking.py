"""Commands that only look."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

import typer

from flytraj.cli.exits import NOT_POSSIBLE_HERE
from flytraj.cli.options import DatasetPath, Json, ModelFile, Time, Worlds
from flytraj.errors import InvalidArgumentError, WriteError

__all__ = ["register"]

_PICTURES = (".png", ".pdf", ".svg")


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(epilog="Example: flytraj info demo.zarr")(info)
    app.command(epilog="Example: flytraj plot demo.zarr -o height.png --joint fly/z --world 0-7")(plot)
    app.command(epilog="Example: flytraj view demo.zarr --world 0-3 --joint fly/z")(view)
    app.command(epilog="Example: flytraj doctor")(doctor)


def doctor(as_json: Json = False) -> None:
    """Try out what this machine can do: OpenGL, Warp, ffmpeg, codecs. What is missing comes with a remedy."""
    from flytraj.cli.doctor import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = {True: "ok", False: "--", None: "  "}[finding.works]
            typer.echo(f"{mark}  {finding.name:{width}}  {finding.found}")
            if finding.remedy:
                typer.echo(f"    {'':{width}}  {finding.remedy}")
    works = {finding.name: finding.works for finding in findings}
    can_render = works["OpenGL"] or works.get("Warp cpu")
    if not (can_render and works["ffmpeg"]):
        raise typer.Exit(NOT_POSSIBLE_HERE)


def info(path: DatasetPath, as_json: Json = False) -> None:
    """Show what a dataset is: worlds, frames, seconds, episodes, fields, model, size."""
    from flytraj.cli.info import as_table, summarize
    from flytraj.dataset import open_dataset

    ds = open_dataset(path)
    facts = summarize(ds)
    typer.echo(json.dumps(facts, indent=2) if as_json else as_table(ds, facts))


def plot(
    path: DatasetPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .pdf or .svg file.")],
    joint: Annotated[
        list[str],
        typer.Option(help='What to plot: "neck", "fly/z" or "qvel[neck]"; repeat it for more panels.'),
    ],
    world: Worlds = None,
    time: Time = None,
    x: Annotated[str, typer.Option(help="time, sim_time, or a coordinate for a phase plot.")] = "time",
) -> None:
    """Plot coordinates over time: a line for each of a few worlds, median and bands of many."""
    from flytraj.cli.selection import select
    from flytraj.dataset import open_dataset
    from flytraj.outputs import outside_datasets

    if output.suffix not in _PICTURES:
        raise InvalidArgumentError(f"--output must end in {', '.join(_PICTURES)}, found {output}.")
    with contextlib.suppress(ImportError):
        import matplotlib

        matplotlib.use("agg")
    output = outside_datasets(output)
    panels = select(open_dataset(path), world, time).traj.plot(*joint, x=x)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        panels[0].figure.savefig(output, dpi=150)
    except OSError as error:
        raise WriteError(f"The plot {output} cannot be written: {error.strerror or error}.") from error
    typer.echo(output)


def view(
    path: DatasetPath,
    world: Worlds = None,
    joint: Annotated[
        list[str] | None, typer.Option(help="What to plot, as for plot; repeat it for more.")
    ] = None,
    model: ModelFile = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen at. Default: 8080, or the next free one.", min=1, max=65535),
    ] = None,
) -> None:
    """Show worlds in 3D on a page in the browser, with a time slider and plots. Ctrl-C ends it."""
    from flytraj.cli.options import choose_model
    from flytraj.cli.selection import select
    from flytraj.dataset import open_dataset

    ds = open_dataset(path)
    worlds = None if world is None else select(ds, world)["world"].values.tolist()
    mj_model = choose_model(ds, model)
    with ds.traj.view(mj_model, worlds=worlds, names=joint or (), host=host, port=port) as page:
        typer.echo(f"{path} is shown at {page.url} until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            page.wait()
