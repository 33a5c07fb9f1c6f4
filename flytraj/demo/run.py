"""The run behind `flytraj demo`: simulate, record, reopen, pick worlds, render them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from flytraj.demo.fly import fly_spec
from flytraj.demo.worlds import Floats, FlyWorlds
from flytraj.errors import DatasetExistsError, FlytrajError

__all__ = ["pick_worlds", "record_demo", "run_demo", "what_is_left"]

_OUTPUT_FPS = 25
_CAMERA_RES = (300, 400)
_ON_ITS_FEET = 0.7
_PICKED = 4


def run_demo(
    directory: Path,
    *,
    n_worlds: int = 256,
    seconds: float = 6.0,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Record many worlds to `demo.zarr`, and render four of them to `demo.mp4` and `demo.png`.

    Args:
        directory: Where the three go; made if missing.
        n_worlds: Number of worlds, at least 4.
        seconds: Simulated seconds.
        overwrite: Replace what is there.
        say: Takes each line for the user.

    Raises:
        DatasetExistsError: One of the three is there, and is not to be replaced.
        RenderError: Nothing renders here.
        WriteError: The dataset cannot be written.
        VideoError: A video or picture cannot be written.
    """
    from flytraj.dataset import open_dataset
    from flytraj.rendering.grid import contact_sheet
    from flytraj.rendering.videos import render_videos

    path, video, sheet = (directory / f"demo.{ending}" for ending in ("zarr", "mp4", "png"))
    in_the_way = [file for file in (path, video, sheet) if file.exists()]
    if in_the_way and not overwrite:
        raise DatasetExistsError(
            f"There is already {in_the_way[0]}: name another folder, or add --overwrite to replace it."
        )
    for old in (video, sheet):
        old.unlink(missing_ok=True)
    say(f"Simulating {n_worlds} worlds for {seconds:g} s, recording to {path} …")
    record_demo(path, n_worlds=n_worlds, seconds=seconds, overwrite=overwrite)

    with open_dataset(path) as ds:
        megabytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
        say(f"{ds.sizes['frame']} frames of {ds.sizes['world']} worlds: {megabytes:.1f} MB on disk.")
        picked = pick_worlds(ds)
        for world, story in picked.items():
            say(f"  world {world:3d} {story}")
        say("Rendering these four …")
        view = ds.sel(world=list(picked))
        model = view.traj.model()
        render_videos(model, view, "side", video, camera_res=_CAMERA_RES, grid="auto")
        moments = np.linspace(0, view.sizes["frame"] - 1, 4).round().astype(int).tolist()
        contact_sheet(model, view, "side", sheet, moments=moments, camera_res=_CAMERA_RES)
    say(_what_next(path, video, sheet, list(picked), seconds))


def record_demo(path: Path, *, n_worlds: int, seconds: float, overwrite: bool = False) -> None:
    """Simulate flies and stream their states to a dataset.

    Args:
        path: The dataset.
        n_worlds: Number of worlds.
        seconds: Simulated seconds.
        overwrite: Replace a dataset that is there.

    Raises:
        DatasetExistsError: There is one, and it is not to be replaced.
        WriteError: It cannot be written.
    """
    from flytraj.recording import BatchTrajectoryRecorder

    spec = fly_spec()
    model = spec.compile()
    worlds = FlyWorlds(model, n_worlds)
    with BatchTrajectoryRecorder(
        model,
        n_worlds,
        playback_speed=1.0,
        output_fps=_OUTPUT_FPS,
        store=path,
        mode="w" if overwrite else "w-",
        spec=spec,
    ) as recorder:
        for _ in tqdm(range(round(seconds / worlds.dt)), desc="simulating", unit="step", disable=None):
            worlds.step()
            recorder.record_as_needed(worlds.source)


def what_is_left(directory: Path) -> str:
    """Tell what an interrupted demo has left behind."""
    from flytraj.dataset import open_dataset

    path, video = directory / "demo.zarr", directory / "demo.mp4"
    try:
        with open_dataset(path) as ds:
            n_frames = ds.sizes["frame"]
    except FlytrajError:
        return "Nothing was recorded."
    made = f"{video} is complete" if video.exists() else "no video was made"
    return f"{path} is a valid dataset with {n_frames} frames of every world; {made}."


def pick_worlds(ds: Any) -> dict[int, str]:
    """Four worlds worth a look, each with its story."""
    root, episode = ds["qpos"].isel(nq=slice(0, 7)).values, ds["episode"].values
    upright = 1 - 2 * (root[..., 4] ** 2 + root[..., 5] ** 2)
    on_its_feet = upright > _ON_ITS_FEET
    new_run = np.diff(episode, axis=1, prepend=-1) != 0
    steps = np.linalg.norm(np.diff(root[..., :2], axis=1, prepend=root[:, :1, :2]), axis=-1)
    walked: Floats = (steps * on_its_feet * ~new_run).sum(axis=1)
    frame = np.arange(upright.shape[1])
    last_fall = np.maximum.accumulate(np.where(upright < 0, frame, -1), axis=1)
    run_start = np.maximum.accumulate(np.where(new_run, frame, 0), axis=1)
    got_up = (on_its_feet & (last_fall >= run_start)).sum(axis=1)
    on_its_back = (upright < 0).mean(axis=1)
    stories = [
        (walked, 0, "walked farthest after its lure: {:.1f} m"),
        (on_its_back, 0, "lay on its back for {:.0%} of the time"),
        (got_up / _OUTPUT_FPS, 0, "fell, got up, and stayed on its feet for {:.1f} s"),
        (episode[:, -1] + 1, 1, "was started {} times"),
        *((walked, -1, "walked {:.1f} m") for _ in range(_PICKED)),
    ]
    picked: dict[int, str] = {}
    worlds = ds["world"].values.tolist()
    for score, least, story in stories:
        row = next((i for i in np.argsort(-score, kind="stable") if worlds[i] not in picked), None)
        if len(picked) < _PICKED and row is not None and score[row] > least:
            picked[worlds[row]] = story.format(score[row])
    return picked


def _what_next(path: Path, video: Path, sheet: Path, worlds: list[int], seconds: float) -> str:
    a, b = worlds[:2]
    start, stop = round(seconds / 6, 1), round(seconds / 2, 1)
    return f"""
The dataset  {path}
A video      {video}
A picture    {sheet}

Try next, in Python:

    import flytraj as ft
    ds = ft.open_dataset("{path}")
    print(ds.traj.episodes())
    view = ds.sel(world=[{a}, {b}], time=slice({start}, {stop}))
    ft.render_videos(view.traj.model(), view, "above", "{path.parent / "above.mp4"}", grid="auto")

or in the shell:

    flytraj info {path}
    flytraj render {path} -o {path.parent / "more.mp4"} --world {a},{b} --time {start}:{stop} --camera above"""
