"""Looking a dataset over: reads everything, with its checksums, a few shards at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flytraj.errors import DatasetNotFoundError, FormatError
from flytraj.schema import Variable
from flytraj.store.create import read_description
from flytraj.store.description import ATTRIBUTE, ROOT, Description
from flytraj.store.engine import Engine, open_engine
from flytraj.store.leftovers import document_problems, file_problems, tail_problems
from flytraj.store.lock import is_locked
from flytraj.store.report import Problem, Report, merged
from flytraj.store.shards import boxes, damage_kind, damaged_shards, read_or_error, shard_shape, stretches
from flytraj.store.values import EpisodeCheck, QuaternionCheck, TimeCheck, quaternion_columns

__all__ = ["examine", "read_levelled", "validate"]


def validate(store: Any) -> Report:
    """Look a dataset over: read all of it, with its checksums, and check what was recorded.

    Reported are lost and damaged shards (by array, worlds and frames), arrays whose lengths disagree, frames that
    were written and not committed, frames that can be recovered from a killed recording, files that were being
    written, quaternions that are not of unit length, and time that goes back. Memory stays within a few shards.
    While the dataset is being recorded, only what is committed is looked at.

    Args:
        store: Path or Zarr store.

    Raises:
        DatasetNotFoundError: Nothing is there.
        FormatError: It is no flytraj dataset, or of a newer format, or its root document is damaged.
    """
    engine = open_engine(store)
    description, problems = read_levelled(engine)
    at_rest = engine.folder is None or not is_locked(engine.folder)
    problems += examine(engine, description, at_rest=at_rest)
    return Report(str(engine), description.n_worlds, description.n_frames, tuple(problems))


def read_levelled(engine: Engine) -> tuple[Description, list[Problem]]:
    """Read a dataset's description; where the root's arrays disagree in length, the shortest counts.

    Raises:
        DatasetNotFoundError: Nothing is there.
        FormatError: It is no flytraj dataset, of a newer format, or damaged beyond that.
    """
    try:
        return read_description(engine), []
    except FormatError:
        levelled = _levelled(engine.read(ROOT))
        if levelled is None:
            raise
        data, lengths = levelled
        description = Description.from_json(data, str(engine))
        shown = ", ".join(f"{name} {length}" for name, length in sorted(lengths.items()))
        message = f"the root document gives different numbers of frames: {shown}; the least counts."
        return description, [Problem("length", "", None, None, message)]


def examine(engine: Engine, description: Description, *, at_rest: bool = True) -> list[Problem]:
    """Everything that is wrong with a dataset.

    Args:
        engine: The store.
        description: The dataset as committed.
        at_rest: Whether nobody writes: then nothing that is not committed should lie there.
    """
    problems = [*_static_problems(engine, description), *_time_problems(engine, description)]
    for variable in description.schema.variables:
        if variable.row_bytes:
            problems += _variable_problems(engine, description, variable)
    problems += _episode_problems(engine, description)
    if at_rest:
        problems += document_problems(engine, description)
        problems += tail_problems(engine, description)
        problems += file_problems(engine, description)
    return problems


def _levelled(data: bytes | None) -> tuple[bytes, dict[str, int]] | None:
    """The root document with all arrays cut to the shortest, and the lengths found; None if they agree."""
    try:
        root = json.loads(data or b"")
        attributes = root["attributes"][ATTRIBUTE]
        members = root["consolidated_metadata"]["metadata"]
        axes = {
            name: member["dimension_names"].index("frame")
            for name, member in members.items()
            if "frame" in member.get("dimension_names", ())
        }
        lengths = {name: int(members[name]["shape"][axis]) for name, axis in axes.items()}
        lengths["(committed)"] = int(attributes["n_frames"])
        shortest = min(lengths.values())
        attributes["n_frames"] = shortest
        for name, axis in axes.items():
            members[name]["shape"][axis] = shortest
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        return None
    return (json.dumps(root).encode(), lengths) if len(set(lengths.values())) > 1 else None


def _static_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    for name, document in description.arrays.items():
        if "frame" in document["dimension_names"]:
            continue
        try:
            if document["data_type"] == "string":
                engine.read_labels(name, document)
            else:
                for part in stretches(document["shape"][0], shard_shape(document)[0]):
                    engine.read_array(name, document, (part,))
            if name == "model/layout":
                quaternion_columns(engine, description, description.schema["qpos"])
        except DatasetNotFoundError:
            raise
        except (OSError, ValueError) as error:
            yield Problem(damage_kind(error), name, None, None, str(error))


def _time_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    check, document = TimeCheck(), description.documents["time"]
    for frames in stretches(description.n_frames, shard_shape(document)[0]):
        values = read_or_error(engine, "time", document, (frames,))
        if isinstance(values, OSError):
            yield from damaged_shards(engine, "time", document, (frames,))
        else:
            check.see(values, frames.start)
    yield from check.problems()


def _variable_problems(engine: Engine, description: Description, variable: Variable) -> list[Problem]:
    name, document = variable.name, description.documents[variable.name]
    check = _quaternion_check(engine, description, variable)
    damage: list[Problem] = []
    for box in boxes(description, variable):
        values = read_or_error(engine, name, document, box)
        if isinstance(values, OSError):
            damage += damaged_shards(engine, name, document, box)
        elif check is not None:
            check.see(values, box[0].start, box[1].start)
    return [*merged(damage), *(check.problems() if check is not None else ())]


def _quaternion_check(engine: Engine, description: Description, variable: Variable) -> QuaternionCheck | None:
    if variable.name not in ("qpos", "mocap_quat"):
        return None
    try:
        return QuaternionCheck(variable.name, quaternion_columns(engine, description, variable))
    except (OSError, ValueError):
        return None  # The layout is reported with the other arrays that have no frames.


def _episode_problems(engine: Engine, description: Description) -> Iterator[Problem]:
    check = EpisodeCheck()
    for box in boxes(description, description.schema["sim_time"]):
        times, episodes = (
            read_or_error(engine, name, description.documents[name], box) for name in ("sim_time", "episode")
        )
        # What cannot be read is reported where all variables are.
        if not (isinstance(times, OSError) or isinstance(episodes, OSError)):
            check.see(times, episodes, box[0].start, box[1].start)
    yield from check.problems()
