"""One writer a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["FolderLock"]

if sys.platform == "win32":
    import msvcrt

    def _open_locked(folder: Path) -> int | None:
        file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            os.close(file)
            return None
        return file
else:
    import fcntl

    def _open_locked(folder: Path) -> int | None:
        file = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        return file


_held: dict[Path, FolderLock] = {}


class FolderLock:
    """Lock on a folder, held by at most one object of one process.

    Args:
        folder: The folder; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it."""
        if self._folder in _held:
            return False
        self._file = _open_locked(self._folder)
        if self._file is not None:
            _held[self._folder] = self
        return self._file is not None

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            _held.pop(self._folder, None)


def _forget_in_child() -> None:
    # The child has a copy of each open file; closing it leaves the parent's lock alone.
    for lock in list(_held.values()):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
