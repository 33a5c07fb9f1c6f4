"""Where results may go."""

from __future__ import annotations

import os
from pathlib import Path

from flytraj.errors import InvalidArgumentError

__all__ = ["outside_datasets"]


def outside_datasets(path: str | os.PathLike[str]) -> Path:
    """The path of a file or folder to be written, with `~` replaced.

    Raises:
        InvalidArgumentError: It is a dataset, or lies in one.
    """
    output = Path(path).expanduser()
    for folder in (output, *output.absolute().parents):
        try:
            is_dataset = b'"flytraj"' in (folder / "zarr.json").read_bytes()
        except OSError:
            continue
        if is_dataset:
            raise InvalidArgumentError(
                f"What is written to {output} would lie in the dataset {folder}: write it somewhere else."
            )
    return output
