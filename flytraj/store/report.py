"""What looking a dataset over has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Problem", "Report", "merged"]

Range = tuple[int, int]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        kind: `"missing"` or `"corrupt"` (a shard), `"unreadable"` (the machine could not read it), `"length"`
            or `"metadata"` (an array's own document), `"tail"` (frames that were written and not committed),
            `"recoverable"` or `"untrusted"` (block files of a recording that was killed), `"unfinished"` (a file
            that was being written), `"quaternion"` (not of unit length), `"time"` (goes back, or is no number).
        array: Path of the array, or `""`.
        worlds: Places along `world`, the first and one past the last; None where it is no matter of worlds.
        frames: Frames, the first and one past the last; likewise.
        message: What was found.
    """

    kind: str
    array: str
    worlds: Range | None
    frames: Range | None
    message: str

    def __str__(self) -> str:
        where = [self.array] if self.array else []
        where += [f"worlds {_shown(self.worlds)}"] if self.worlds else []
        where += [f"frames {_shown(self.frames)}"] if self.frames else []
        return f"{self.kind}: {', '.join(where)}{': ' if where else ''}{self.message}"


@dataclass(frozen=True)
class Report:
    """What `validate` has found, or what `repair` has done and could not mend.

    Attributes:
        store: The dataset.
        n_worlds: Its worlds.
        n_frames: Its committed frames.
        problems: What is wrong with it.
        actions: What was done about it, in sentences.
    """

    store: str
    n_worlds: int
    n_frames: int
    problems: tuple[Problem, ...]
    actions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.store}: {_counted(self.n_worlds, 'world')}, {_counted(self.n_frames, 'frame')}"]
        lines += [f"  {action}" for action in self.actions]
        lines += [f"  {problem}" for problem in self.problems]
        return "\n".join(lines if self.problems else [*lines, "  No problem found."])


def merged(problems: Iterable[Problem]) -> list[Problem]:
    """Problems of one kind and array put together where their worlds, then where their frames adjoin."""
    result: list[Problem] = []
    for problem in problems:
        _put(result, problem, "worlds", "frames")
    by_worlds, result = result, []
    for problem in sorted(by_worlds, key=lambda p: (p.kind, p.array, p.worlds or (0, 0), p.frames or (0, 0))):
        _put(result, problem, "frames", "worlds")
    return result


def _put(result: list[Problem], problem: Problem, along: str, same: str) -> None:
    if result:
        last = result[-1]
        a, b = getattr(last, along), getattr(problem, along)
        alike = (last.kind, last.array, getattr(last, same)) == (
            problem.kind,
            problem.array,
            getattr(problem, same),
        )
        if alike and a and b and a[1] == b[0]:
            both = (a[0], b[1])
            result[-1] = replace(last, worlds=both) if along == "worlds" else replace(last, frames=both)
            return
    result.append(problem)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _shown(bounds: Range) -> str:
    first, last = bounds[0], bounds[1] - 1
    return str(first) if first == last else f"{first} to {last}"
