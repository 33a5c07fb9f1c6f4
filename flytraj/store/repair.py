"""Mending a dataset: to the longest stretch of frames, from the first on, of which every checksum is right."""

from __future__ import annotations

from typing import Any

from flytraj.errors import WriteError
from flytraj.store.commit import clear_tail, commit, to_json
from flytraj.store.description import ROOT, Description
from flytraj.store.engine import Engine, is_unfinished, open_engine
from flytraj.store.leftovers import frame_shards
from flytraj.store.recover import aside_folder, recover
from flytraj.store.report import Problem, Report
from flytraj.store.validate import examine, read_levelled

__all__ = ["repair"]


def repair(store: Any) -> Report:
    """Mend a dataset.

    Frames that a killed recording left in its block files are committed. Frames from the first damaged one on are
    cut, in all worlds, and what is behind the last frame is cleared, so that no later append brings it back. What
    is cut is kept in the dataset's folder, under `.flytraj/aside-<time>/`, by the names it had: copying that over
    the dataset undoes the cut. Values (quaternions, times) and damaged labels or models are reported and left alone.
    Killed at any moment, it can be run again.

    Args:
        store: Path or Zarr store.

    Returns:
        What was done, and the problems that remain.

    Raises:
        DatasetNotFoundError: Nothing is there.
        DatasetLockedError: A recorder is writing to the dataset.
        FormatError: It is no flytraj dataset, or of a newer format, or its root document is damaged.
        WriteError: Writing failed, or a shard could not be read for a reason that says nothing of the data.
    """
    engine = open_engine(store)
    read_levelled(engine)
    engine.lock()
    try:
        return _repair(engine)
    finally:
        engine.unlock()


def _repair(engine: Engine) -> Report:
    description, problems = read_levelled(engine)
    actions: list[str] = []
    if problems:
        description = _level(engine, description, actions)
    problems = examine(engine, description)
    _refuse_unreadable(problems)
    if problems:
        description = _cut(engine, description, problems, actions)
        description = _recover(engine, description, actions)
        _tidy(engine, description, problems, actions)
    if actions:
        problems = examine(engine, description)
    return Report(str(engine), description.n_worlds, description.n_frames, tuple(problems), tuple(actions))


def _refuse_unreadable(problems: list[Problem]) -> None:
    for problem in problems:
        if problem.kind == "unreadable":
            raise WriteError(
                f"Nothing was repaired, since what cannot be read now may still be whole: {problem}. Make it "
                "readable, or copy the dataset to a disk that works, and repair it there."
            )


def _level(engine: Engine, description: Description, actions: list[str]) -> Description:
    folder = aside_folder()
    engine.keep([ROOT], folder)
    actions.append(
        f"The root document's lengths disagreed: {description.n_frames} frames, the least, now count for all arrays; "
        f"the old one is kept in {folder}."
    )
    return commit(engine, description)


def _cut(
    engine: Engine, description: Description, problems: list[Problem], actions: list[str]
) -> Description:
    """Cut what is damaged and clear what is behind the last frame; all of it is kept aside first."""
    damaged = [
        problem.frames[0] for problem in problems if problem.kind in ("missing", "corrupt") and problem.frames
    ]
    n_frames = min([description.n_frames, *damaged])
    behind = any(problem.kind == "tail" for problem in problems)
    if n_frames == description.n_frames and not behind:
        return description
    shards = list(frame_shards(engine, description))
    folder = aside_folder()
    engine.keep([ROOT, *(key for _, key, frames in shards if frames.stop > n_frames)], folder)
    shorter = description.with_frames(n_frames)
    if n_frames < description.n_frames:
        commit(engine, shorter)
        actions.append(
            f"Cut from {description.n_frames} to {n_frames} frames, the last before the first damaged one; "
            f"what was cut is kept in {folder}: copied over the dataset, it brings back how it was."
        )
    if behind:
        actions.append(f"Cleared what was written behind the last committed frame; it is kept in {folder}.")
    clear_tail(engine, shorter)
    engine.delete(key for _, key, frames in shards if frames.start >= n_frames)
    return shorter


def _recover(engine: Engine, description: Description, actions: list[str]) -> Description:
    recovery = recover(engine, description)
    if recovery.n_frames:
        actions.append(f"Recovered {recovery.n_frames} frames that a killed recording had left.")
    actions += [
        f"Set aside {path}: it holds frames that cannot be trusted, or do not go on from what is committed."
        for path in recovery.set_aside
    ]
    return recovery.description


def _tidy(engine: Engine, description: Description, problems: list[Problem], actions: list[str]) -> None:
    if any(problem.kind in ("length", "metadata") for problem in problems):
        for name, document in description.documents.items():
            engine.replace(f"{name}/{ROOT}", to_json(document))
        actions.append("Rewrote the arrays' own documents after the root's.")
    if any(problem.kind == "unfinished" for problem in problems):
        engine.delete([key for key in engine.all_keys() if is_unfinished(key)])
        actions.append("Removed files that were being written when their writer died.")
