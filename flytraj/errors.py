"""Every error flytraj raises on purpose.

All derive from `FlytrajError`, and each is also the standard exception a caller would expect, so
`except ValueError` keeps working. A message says which thing, what was expected, what was found and what
to do.
"""

from __future__ import annotations

__all__ = [
    "CorruptDatasetError",
    "DatasetExistsError",
    "DatasetLockedError",
    "DatasetNotFoundError",
    "FieldNotFoundError",
    "FlytrajError",
    "FormatError",
    "InvalidArgumentError",
    "MissingDependencyError",
    "ModelMismatchError",
    "NothingRecordedError",
    "RecorderClosedError",
    "RenderError",
    "RingOverrunError",
    "TrajectoryFileError",
    "VideoError",
    "WriteError",
]


class FlytrajError(Exception):
    """Base of every error that flytraj raises on purpose."""


class InvalidArgumentError(FlytrajError, ValueError):
    """An argument has a value, shape or type that cannot be used."""


class ModelMismatchError(FlytrajError, ValueError):
    """A trajectory or dataset belongs to another model than the one given."""


class TrajectoryFileError(FlytrajError, ValueError):
    """A file is no trajectory archive, or its arrays do not fit together."""


class FormatError(FlytrajError, ValueError):
    """A store is no flytraj dataset, or one of a format this version does not read."""


class FieldNotFoundError(FlytrajError, KeyError):
    """A field, channel, world, joint or episode that does not exist was asked for."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DatasetNotFoundError(FlytrajError, FileNotFoundError):
    """There is no dataset, or no file, at the path given."""


class DatasetExistsError(FlytrajError, FileExistsError):
    """Something is already at the path where a new dataset was to be made."""


class DatasetLockedError(FlytrajError, BlockingIOError):
    """Another recorder or process is writing to the dataset."""


class CorruptDatasetError(FlytrajError, OSError):
    """Committed data is missing or fails its checksum."""


class WriteError(FlytrajError, OSError):
    """Writing failed (disk full, permission lost …); what was committed stays."""


class NothingRecordedError(FlytrajError, RuntimeError):
    """A trajectory was asked for before any frame was recorded."""


class RecorderClosedError(FlytrajError, RuntimeError):
    """A recorder was used after `close()`, or in a forked child that does not own it."""


class RingOverrunError(FlytrajError, RuntimeError):
    """More frames were enqueued on the device than its ring holds before `drain()`."""


class RenderError(FlytrajError, RuntimeError):
    """No renderer works here, or rendering failed."""


class VideoError(FlytrajError, OSError):
    """A video could not be encoded or written."""


class MissingDependencyError(FlytrajError, ImportError):
    """An optional package is needed for what was asked."""
