"""Numbers and ranges as people type them: `3,7,40-47`."""

from __future__ import annotations

import re

from flytraj.errors import InvalidArgumentError

__all__ = ["parse_numbers"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_NUMBERS = 1_000_000


def parse_numbers(text: str, what: str) -> list[int]:
    """Numbers from `3,7,40-47`, in that order, each once.

    Args:
        text: What was given.
        what: What they are for, such as `--world`; the error begins with it.

    Raises:
        InvalidArgumentError: The text is no such list.
    """
    numbers: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(f"{what} takes numbers and ranges such as 3,7,40-47, found {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InvalidArgumentError(f"{what} {text}: {part.strip()} is no range from low to high.")
        if last - first >= _MOST_NUMBERS:
            raise InvalidArgumentError(
                f"{what} {text}: {part.strip()} names more than {_MOST_NUMBERS:,} numbers."
            )
        numbers |= dict.fromkeys(range(first, last + 1))
    return list(numbers)
