"""What a dataset is, at a glance."""

from __future__ import annotations

from typing import Any

__all__ = ["as_table", "summarize"]


def summarize(ds: Any) -> dict[str, Any]:
    """What people ask first of a dataset, for scripts, without reading its state.

    Args:
        ds: A dataset as `open_dataset` gives it.
    """
    from flytraj.store.folder_engine import FolderEngine
    from flytraj.store.recover import find_recoverable

    handle = ds.encoding["flytraj"]
    engine, description = handle.engine, handle.description
    folder = isinstance(engine, FolderEngine)
    on_disk = _bytes_on_disk(engine.folder) if folder else None
    being_written = folder and engine.is_being_written()
    n_frames = ds.sizes["frame"]
    time = ds["time"].isel(frame=[0, -1]).values.tolist() if n_frames else [0.0, 0.0]
    arrays = [*ds.data_vars, "sim_time", "episode", "time"]
    return {
        "path": ds.attrs["store"],
        "worlds": ds.sizes["world"],
        "frames": n_frames,
        "first_second": time[0],
        "last_second": time[1],
        "episodes": int(ds["episode"].isel(frame=-1).values.sum()) + ds.sizes["world"] if n_frames else 0,
        "output_fps": ds.attrs["output_fps"],
        "playback_speed": ds.attrs["playback_speed"],
        "timestep": ds.attrs["timestep"],
        "fields": {
            name: {
                "dims": list(map(str, array.dims[2:])),
                "shape": list(array.shape[2:]),
                "dtype": str(array.dtype),
            }
            for name, array in ds.data_vars.items()
        },
        "model": {
            "fingerprint": ds.attrs["fingerprint"],
            "embedded": [part for part in ("xml", "mjb") if f"model/{part}" in description.documents],
        },
        "compression": description.compression,
        "bytes_of_values": sum(ds[name].nbytes for name in arrays),
        "bytes_on_disk": on_disk,
        "created": ds.attrs["created"],
        "versions": dict(description.info.get("versions", {})),
        "being_written": being_written,
        "recoverable_frames": 0 if being_written else find_recoverable(engine, description),
    }


def as_table(ds: Any, facts: dict[str, Any]) -> str:
    """What `ds.traj.summary()` says, and the state the dataset is in."""
    from flytraj.summary import Summary

    if facts["being_written"]:
        state = "being recorded now"
    elif facts["recoverable_frames"]:
        state = f"{facts['recoverable_frames']} more frames can be recovered: flytraj repair {facts['path']}"
    else:
        state = "complete; flytraj validate reads and checks everything"
    return str(Summary((*ds.traj.summary().rows, ("state", state))))


def _bytes_on_disk(folder: Any) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
