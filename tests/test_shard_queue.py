"""Few shards are under way at once, whatever is handed over; each part is cut where shards end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given
from hypothesis import strategies as st

from flytraj.store.engine import Part
from flytraj.store.shard_queue import ShardQueue
from flytraj.store.shards import by_shard

LIMIT = 6


class Disk:
    """Begins shards, and ends them when told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.promises: dict[str, Any] = {}

    def begin(self, part: Part) -> Any:
        if part.name.startswith("bad"):
            raise OSError(part.name)
        made: Any = ts.Promise.new()
        promise, future = made
        self.begun.append(part.name)
        self.promises[part.name] = promise
        return future


def part(name: str) -> Part:
    return Part(name, {}, (0,), np.zeros(1))


def test_a_few_are_under_way_and_the_others_follow_in_order() -> None:
    disk = Disk()
    shards = ShardQueue(disk.begin)
    names = [f"{i}" for i in range(20)]
    first = shards.add(map(part, names[:9]))
    second = shards.add(map(part, names[9:]))
    for ended in range(9):
        assert disk.begun == names[: LIMIT + ended]
        assert not first.wait(0.001)
        disk.promises[names[ended]].set_result(None)
        assert first.wait(0.001) == (ended == 8)
    for ended in range(9, 20):
        assert not second.wait(0)
        disk.promises[names[ended]].set_result(None)
    assert second.wait()
    assert disk.begun == names


def test_one_that_ends_early_makes_room() -> None:
    disk = Disk()
    writing = ShardQueue(disk.begin).add(map(part, "abcdefgh"))
    disk.promises["f"].set_result(None)
    assert not writing.wait(0.001)
    assert disk.begun == list("abcdefg")


@pytest.mark.parametrize("bad", ["begins", "ends"])
def test_a_failure_is_raised_when_all_have_ended(bad: str) -> None:
    disk = Disk()
    shards = ShardQueue(disk.begin)
    names = ["bad", *"abcdefgh"] if bad == "begins" else list("abcdefgh")
    writing = shards.add(map(part, names))
    behind = shards.add([part("z")])
    for name in "abcdefg":
        if bad == "ends" and name == "a":
            disk.promises[name].set_exception(OSError("bad"))
        else:
            disk.promises[name].set_result(None)
        assert not writing.wait(0)
    disk.promises["h"].set_result(None)
    for _ in range(2):
        with pytest.raises(OSError, match="bad"):
            writing.wait()
    disk.promises["z"].set_result(None)
    assert behind.wait()


@given(st.data())
def test_parts_are_cut_where_shards_end(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    start = tuple(size * data.draw(st.integers(0, 2)) for size in sizes)
    shape = [data.draw(st.integers(1, 9)) for _ in sizes]
    document = {"chunk_grid": {"configuration": {"chunk_shape": sizes}}}
    whole = Part("a", document, start, np.arange(np.prod(shape)).reshape(shape))
    written = np.full([first + size for first, size in zip(start, shape, strict=True)], -1)
    shards = []
    for one in by_shard(whole):
        written[one.box] = one.values
        shards.append(tuple(first // size for first, size in zip(one.start, sizes, strict=True)))
        assert all(
            (where.stop - 1) // size == where.start // size
            for where, size in zip(one.box, sizes, strict=True)
        )
    assert np.array_equal(written[whole.box], whole.values)
    assert len(set(shards)) == len(shards)
