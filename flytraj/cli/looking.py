"""Commands that only look."""

from __future__ import annotations

import json

import typer

from flytraj.cli.exits import NOT_POSSIBLE_HERE
from flytraj.cli.options import DatasetPath, Json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(epilog="Example: flytraj info demo.zarr")(info)
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
