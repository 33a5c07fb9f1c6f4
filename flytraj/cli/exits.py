"""Exit codes, and errors in one sentence."""

from __future__ import annotations

from flytraj import errors

__all__ = ["EXIT_CODES", "INTERRUPTED", "exit_code", "sentence"]

FAILED = 1
USAGE = 2
NOT_FOUND = 3
DAMAGED = 4
IN_THE_WAY = 5
NOT_WRITTEN = 6
NOT_POSSIBLE_HERE = 7
INTERRUPTED = 130

EXIT_CODES = {
    0: "done",
    FAILED: "failed for another reason",
    USAGE: "wrong arguments: an unknown option, a value out of range, a world or camera that is not there",
    NOT_FOUND: "nothing at the path, or no dataset of this format",
    DAMAGED: "the dataset is damaged, or needs repair",
    IN_THE_WAY: "something is already there, or another process is writing to it",
    NOT_WRITTEN: "the result could not be written",
    NOT_POSSIBLE_HERE: "this machine lacks something: a renderer or a package",
    INTERRUPTED: "stopped by Ctrl-C",
}
"""What each exit code says."""

_IN_PYTHON = {
    ', or mode="a" to append, "w" to replace': "",
    "camera_res must be (height, width)": "--size must be WIDTHxHEIGHT",
    "FreeCamera() works": "--camera free works",
    " (ds.traj.model() where it is embedded)": ", or leave --model out where it is embedded",
}
"""What the library advises in Python, and how the command line says it."""

_CODES: list[tuple[tuple[type[BaseException], ...], int]] = [
    ((errors.DatasetNotFoundError, errors.FormatError, errors.TrajectoryFileError), NOT_FOUND),
    ((errors.CorruptDatasetError,), DAMAGED),
    ((errors.DatasetExistsError, errors.DatasetLockedError), IN_THE_WAY),
    ((errors.WriteError, errors.VideoError), NOT_WRITTEN),
    ((errors.RenderError, errors.MissingDependencyError), NOT_POSSIBLE_HERE),
    ((errors.InvalidArgumentError, errors.FieldNotFoundError, errors.ModelMismatchError), USAGE),
    ((OSError,), NOT_WRITTEN),
]


def exit_code(error: BaseException) -> int:
    """Exit code for an error; one of the file system's own mostly means that a result has no place to go."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)


def sentence(error: BaseException) -> str:
    """An error on one line; one that flytraj did not raise on purpose is named."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.FlytrajError):
        for python, here in _IN_PYTHON.items():
            text = text.replace(python, here)
        return text
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return f"{type(error).__name__}: {text or 'no message'} (flytraj --debug shows where)"
