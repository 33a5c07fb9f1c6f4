"""One writer a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

__all__ = ["LOCK_FILE", "FolderLock", "is_locked"]

LOCK_FILE = ".flytraj-lock"
"""File in a dataset's folder that is locked while the dataset is written; its mere presence means nothing."""

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, shared: bool = False) -> None:
        del shared
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from error
else:
    import fcntl

    def _lock(file: int, *, shared: bool = False) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


_held: dict[str, FolderLock] = {}


class FolderLock:
    """Lock on a folder, held by at most one object of one process.

    Args:
        folder: The folder; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it.

        Raises:
            OSError: The lock file cannot be made.
        """
        key = os.path.realpath(self._folder)
        if key in _held:
            return False
        file = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(file)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError as error:
            warnings.warn(
                f"The file system of {self._folder} knows no locks ({error.strerror}): let no other process "
                "write there.",
                RuntimeWarning,
                stacklevel=2,
            )
        if not self._is_current(file):
            os.close(file)
            return False
        self._file = file
        _held[key] = self
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            # Removed while it is still held: who has opened it meanwhile finds that it is not current any more.
            with contextlib.suppress(OSError):
                (self._folder / LOCK_FILE).unlink()
            self.forget()

    def forget(self) -> None:
        """Close the lock's file only: the lock lives on if another process has it open too."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        for key in [key for key, lock in _held.items() if lock is self]:
            del _held[key]

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._folder / LOCK_FILE))
        except FileNotFoundError:
            return False


def is_locked(folder: Path) -> bool:
    """Whether a process, this one or another, holds the lock of a folder."""
    if os.path.realpath(folder) in _held:
        return True
    try:
        file = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        _lock(file, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _forget_in_child() -> None:
    for lock in list(_held.values()):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
