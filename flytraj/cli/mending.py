"""Commands that check, mend and rewrite datasets."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flytraj.cli.exits import DAMAGED
from flytraj.cli.options import DatasetPath, Json

if TYPE_CHECKING:
    from flytraj.store.report import Report

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(epilog="Example: flytraj validate demo.zarr")(validate)
    app.command(epilog="Example: flytraj repair demo.zarr")(repair)
    app.command(epilog="Example: flytraj repack demo.zarr small.zarr --precision 1e-5")(repack)


def validate(path: DatasetPath, as_json: Json = False) -> None:
    """Read and check everything: what is lost, damaged or left unfinished is named. Exit code 4 if anything is."""
    from flytraj.store.validate import validate

    _tell(validate(path), as_json)


def repair(path: DatasetPath, as_json: Json = False) -> None:
    """Recover what a killed recording left, and cut all arrays before the first damaged frame.

    flytraj validate tells what is damaged, and changes nothing. What is cut is kept in .flytraj/aside-TIME in the
    dataset's folder; copied over the dataset, it brings back how it was. Exit code 4 if something is left that
    cannot be mended.
    """
    from flytraj.store.repair import repair

    _tell(repair(path), as_json)


def repack(
    path: DatasetPath,
    output: Annotated[str, typer.Argument(help="The new dataset.", metavar="OUTPUT")],
    layout: Annotated[
        Literal["by-world", "by-time"],
        typer.Option(help="Fast for whole runs of single worlds, or for moments of all."),
    ] = "by-world",
    compression: Annotated[
        Literal["zstd", "lz4", "none"], typer.Option(help="How bytes are packed.")
    ] = "zstd",
    dtype: Annotated[
        Literal["float32", "float64"] | None, typer.Option(help="Type of the numbers. Default: theirs.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Largest error of a stored value, such as 1e-5. Default: exact.")
    ] = None,
) -> None:
    """Rewrite a dataset for analysis or archive, and verify the copy. Interrupted, it goes on when run again."""
    from tqdm import tqdm

    from flytraj.store.repack import repack

    with tqdm(desc="repacking", unit="block", disable=None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        repack(
            path,
            output,
            layout=layout,
            compression=compression,
            dtype=dtype,
            precision=precision,
            progress=show,
        )
    typer.echo(output)


def _tell(report: Report, as_json: bool) -> None:
    typer.echo(json.dumps({**asdict(report), "ok": report.ok}, indent=2) if as_json else str(report))
    if not report.ok:
        raise typer.Exit(DAMAGED)
