"""Commands that move data between formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flytraj.cli.options import DatasetPath, Time, Worlds

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("export", epilog="Example: flytraj export demo.zarr npz --world 0-3")(export_npz)
    app.command("import", epilog="Example: flytraj import npz/*.npz -o again.zarr")(import_npz)


def export_npz(
    path: DatasetPath,
    directory: Annotated[Path, typer.Argument(help="Folder for the files; made if missing.", metavar="DIR")],
    world: Worlds = None,
    time: Time = None,
) -> None:
    """Write each chosen world to a .npz file of its own, as flygym reads and writes them."""
    from flytraj.cli.selection import select
    from flytraj.dataset import open_dataset
    from flytraj.npz import export_npz

    for made in export_npz(select(open_dataset(path), world, time), directory):
        typer.echo(made)


def import_npz(
    files: Annotated[list[Path], typer.Argument(help="The files, or one folder of them.", metavar="FILE...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new dataset.")],
    model: Annotated[Path | None, typer.Option("--model", help="MJCF or MJB file of their model.")] = None,
) -> None:
    """Make a dataset of .npz files, a world a file."""
    from flytraj.cli.options import load_model_file
    from flytraj.npz import import_npz

    paths = files[0] if len(files) == 1 else files
    import_npz(paths, output, mj_model=None if model is None else load_model_file(model))
    typer.echo(output)
