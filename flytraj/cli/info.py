"""What a dataset is, at a glance."""

from __future__ import annotations

from typing import Any

__all__ = ["as_table", "summarize"]


def summarize(ds: Any) -> dict[str, Any]:
    """What people ask first of a dataset, without reading its state.

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


def as_table(summary: dict[str, Any]) -> str:
    """The same for people."""
    s = summary
    fields = [
        f"{name} {'x'.join(map(str, field['shape'])) or 'scalar'} {field['dtype']}"
        for name, field in s["fields"].items()
    ]
    embedded = " and ".join(part.upper() for part in s["model"]["embedded"])
    values = s["bytes_of_values"] / 1e6
    size = f"{values:.1f} MB of values, compression {s['compression']}"
    if s["bytes_on_disk"]:
        ratio = s["bytes_of_values"] / s["bytes_on_disk"]
        size = f"{s['bytes_on_disk'] / 1e6:.1f} MB on disk for {size} (ratio {ratio:.2f})"
    versions = ", ".join(f"{name} {version}" for name, version in s["versions"].items())
    if s["being_written"]:
        state = "being recorded now"
    elif s["recoverable_frames"]:
        state = f"{s['recoverable_frames']} more frames can be recovered: flytraj repair {s['path']}"
    else:
        state = "complete; flytraj validate reads and checks everything"
    rows = {
        "dataset": s["path"],
        "worlds": s["worlds"],
        "frames": f"{s['frames']} at {s['output_fps']:g} fps, playback speed {s['playback_speed']:g}",
        "time": f"{s['first_second']:g} to {s['last_second']:g} s, timestep {s['timestep']:g} s",
        "episodes": s["episodes"],
        "fields": ", ".join(fields),
        "model": f"{'embedded as ' + embedded if embedded else 'not embedded'}, "
        f"fingerprint {s['model']['fingerprint'][:12]}",
        "size": size,
        "created": f"{s['created']} by {versions}",
        "state": state,
    }
    return "\n".join(f"{name:9} {value}" for name, value in rows.items())


def _bytes_on_disk(folder: Any) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
