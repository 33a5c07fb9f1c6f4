"""Import and export of the documented `.npz` files, one a world."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from flytraj.arrays import write_dataset
from flytraj.errors import DatasetNotFoundError, InvalidArgumentError, TrajectoryFileError, WriteError
from flytraj.outputs import outside_datasets
from flytraj.trajectory import RecordedTrajectory, check_trajectories_match_model

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["export_npz", "import_npz"]


def export_npz(ds: xr.Dataset, directory: str | PathLike[str]) -> list[Path]:
    """Write each world of a view to `world{id:06d}.npz`, one in memory at a time.

    Args:
        ds: A view of any worlds and frames.
        directory: Where to write; made if missing. Files of the same names are replaced.

    Returns:
        The paths written, in the order of the worlds.

    Raises:
        InvalidArgumentError: The folder lies in a dataset, or `ds` is no view of one.
        WriteError: There is a file at `directory`, or one cannot be written.
    """
    if not hasattr(ds, "traj"):
        raise InvalidArgumentError(
            f"A view of a dataset, as open_dataset gives, was expected, found {type(ds).__name__}."
        )
    folder = outside_datasets(directory)
    if folder.is_file():
        raise WriteError(f"{folder} is a file: name a folder for the files.")
    paths = []
    for clip in ds.traj.clips():
        path = folder / f"world{clip.world_id:06d}.npz"
        clip.read(0, clip.n_frames).save(path)
        paths.append(path)
    return paths


def import_npz(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    store: Any,
    *,
    mj_model: mujoco.MjModel | None = None,
) -> None:
    """Make a dataset of `.npz` files, a world a file; they are read into memory.

    Worlds keep their ids where these differ, else they are numbered in the order of the files.

    Args:
        paths: A folder with `.npz` files, one file, or several; all of the same frames, coordinates, mocap
            bodies, frame rate and speed.
        store: Path or Zarr store of the new dataset.
        mj_model: Their model, to store its names, its fingerprint and itself.

    Raises:
        DatasetNotFoundError: There is no such file, or no `.npz` file in the folder.
        TrajectoryFileError: A file is no trajectory, or does not fit the first one.
        ModelMismatchError: A trajectory does not fit the model.
        DatasetExistsError: There is something at `store` already.
    """
    files = _files(paths)
    trajectories = [RecordedTrajectory.from_file(path) for path in files]
    for path, trajectory in zip(files, trajectories, strict=True):
        _check_like(files[0], trajectories[0], path, trajectory)
    if mj_model is not None:
        check_trajectories_match_model(mj_model, trajectories)
    ids = [trajectory.world_id for trajectory in trajectories]
    first = trajectories[0]
    write_dataset(
        store,
        mj_model,
        qpos=np.stack([t.qpos for t in trajectories]),
        time=np.stack([t.time for t in trajectories]),
        mocap_pos=None
        if first.mocap_pos is None
        else np.stack([np.asarray(t.mocap_pos) for t in trajectories]),
        mocap_quat=None
        if first.mocap_quat is None
        else np.stack([np.asarray(t.mocap_quat) for t in trajectories]),
        world_ids=ids if len(set(ids)) == len(ids) else range(len(ids)),
        output_fps=first.output_fps,
        playback_speed=first.playback_speed,
    )


def _files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    if not isinstance(paths, (str, PathLike)):
        files = [Path(path) for path in paths]
        if not files:
            raise InvalidArgumentError("No files given: at least one is needed.")
        return files
    path = Path(paths)
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.npz"))
    if not files:
        raise DatasetNotFoundError(f"There is no .npz file in {path}.")
    return files


def _check_like(
    first_path: Path, first: RecordedTrajectory, path: Path, trajectory: RecordedTrajectory
) -> None:
    for name in ("n_frames", "nq", "nmocap", "output_fps", "playback_speed"):
        expected, found = getattr(first, name), getattr(trajectory, name)
        if expected != found:
            raise TrajectoryFileError(
                f"{path} has {name}={found}, {first_path} {name}={expected}: worlds of one dataset agree in it."
            )
