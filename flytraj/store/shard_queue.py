"""Shards on their way to disk, a few at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from flytraj.store.engine import Part

__all__ = ["ShardQueue", "ShardWriting"]

# A shard that is encoded waits in memory for the disk. More would not be written faster: see `_WRITERS` in
# `folder_engine`.
_UNDER_WAY = 6


class ShardQueue:
    """Begins to write shards in the order they come, a few at a time.

    One thread at a time may use it.

    Args:
        begin: Begins to write one shard, and returns TensorStore's future.
    """

    def __init__(self, begin: Callable[[Part], Any]) -> None:
        self._begin = begin
        self._waiting: deque[tuple[Part, ShardWriting]] = deque()
        self._under_way: list[Any] = []

    def add(self, parts: Iterable[Part]) -> ShardWriting:
        """Put shards, a part each, behind those that are waiting."""
        writing = ShardWriting(self)
        for part in parts:
            writing.n_waiting += 1
            self._waiting.append((part, writing))
        self.go_on()
        return writing

    def go_on(self) -> None:
        """Begin as many as there is room for."""
        self._under_way = [future for future in self._under_way if not future.done()]
        while self._waiting and len(self._under_way) < _UNDER_WAY:
            part, writing = self._waiting.popleft()
            writing.n_waiting -= 1
            try:
                future = self._begin(part)
            except Exception as error:
                writing.failures.append(error)
            else:
                self._under_way.append(future)
                writing.futures.append(future)

    def wait_for_one(self, timeout: float | None) -> None:
        """Wait until the one that has been under way longest has ended.

        Raises:
            TimeoutError: It has not.
        """
        if self._under_way:
            self._under_way[0].exception(timeout=timeout)


class ShardWriting:
    """Shards that were added together.

    Attributes:
        n_waiting: How many have not begun.
        futures: Those that have.
        failures: Why some could not begin.
    """

    def __init__(self, shards: ShardQueue) -> None:
        self._shards = shards
        self.n_waiting = 0
        self.futures: list[Any] = []
        self.failures: list[Exception] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all have ended, and let those behind them begin meanwhile.

        Args:
            timeout: Most seconds to wait; None waits to the end.

        Returns:
            Whether they have.

        Raises:
            Exception: The first failure, when all have ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._shards.go_on()
            if not self.n_waiting and all(future.done() for future in self.futures):
                break
            try:
                self._shards.wait_for_one(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return False
        for failure in self.failures:
            raise failure
        for future in self.futures:
            future.result()
        return True
