"""Layouts and codecs: what encoding and decoding a block costs, and how small it gets, on several kinds of states."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import smooth_states
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Settings, interleave, skip_reason

__all__ = ["measure", "run"]

_LZ4 = {"cname": "lz4", "clevel": 1}
_ZSTD = {"cname": "zstd", "clevel": 3}
_VARIANTS: dict[str, dict[str, Any]] = {
    "lz4, shuffle, frames last, 16 KiB": {
        "codec": _LZ4,
        "shuffle": "shuffle",
        "frames_last": True,
        "kib": 16,
    },
    "lz4, shuffle, frames last, 32 KiB": {
        "codec": _LZ4,
        "shuffle": "shuffle",
        "frames_last": True,
        "kib": 32,
    },
    "lz4, shuffle, frames last, 64 KiB": {
        "codec": _LZ4,
        "shuffle": "shuffle",
        "frames_last": True,
        "kib": 64,
    },
    "lz4, shuffle, 64 KiB": {"codec": _LZ4, "shuffle": "shuffle", "frames_last": False, "kib": 64},
    "lz4, bitshuffle, frames last, 64 KiB": {
        "codec": _LZ4,
        "shuffle": "bitshuffle",
        "frames_last": True,
        "kib": 64,
    },
    "lz4, bitshuffle, 32 KiB": {"codec": _LZ4, "shuffle": "bitshuffle", "frames_last": False, "kib": 32},
    "lz4, bitshuffle, 64 KiB": {"codec": _LZ4, "shuffle": "bitshuffle", "frames_last": False, "kib": 64},
    "lz4, bitshuffle, 128 KiB": {"codec": _LZ4, "shuffle": "bitshuffle", "frames_last": False, "kib": 128},
    "zstd, bitshuffle, 64 KiB": {"codec": _ZSTD, "shuffle": "bitshuffle", "frames_last": False, "kib": 64},
    "zstd, shuffle, frames last, 64 KiB": {
        "codec": _ZSTD,
        "shuffle": "shuffle",
        "frames_last": True,
        "kib": 64,
    },
    "no codec, 64 KiB": {"codec": None, "shuffle": "noshuffle", "frames_last": False, "kib": 64},
}
_STATES = {
    "walk": "a random walk, float32",
    "fly32": "the demo's flies, float32",
    "fly64": "the demo's flies, float64",
}
_REPEATS = 3
_BLOCK_FRAMES = 32
_SHARD_WORLDS = 256


def run(settings: Settings) -> list[Table]:
    """Encode and decode the same states in every way, a table for each kind of states."""
    chosen = dict(list(_STATES.items())[:1]) if settings.quick else _STATES
    return [_table(settings, states, label) for states, label in chosen.items()]


def measure(states: str, variant: str, n_worlds: int, n_frames: int) -> dict[str, float]:
    """Write blocks to memory and read them again: CPU seconds, which disks and other processes leave alone."""
    values = _make_states(states, n_worlds, n_frames)
    best_write, best_read, size = np.inf, np.inf, 0
    for _ in range(_REPEATS):
        store = _open(values, **_VARIANTS[variant])
        began = time.process_time()
        for first in range(0, n_frames, _BLOCK_FRAMES):
            block = values[first : first + _BLOCK_FRAMES].swapaxes(0, 1)
            store[:, first : first + _BLOCK_FRAMES].write(block).result()
        best_write = min(best_write, time.process_time() - began)
        began = time.process_time()
        decoded = store.read().result()
        best_read = min(best_read, time.process_time() - began)
        size = sum(len(store.kvstore.read(key).result().value) for key in store.kvstore.list().result())
    if not np.array_equal(decoded.swapaxes(0, 1), values):
        raise ValueError(f"{variant}: other values were read than written.")
    return {
        "encode": values.nbytes / best_write / 1e6,
        "decode": values.nbytes / best_read / 1e6,
        "ratio": values.nbytes / size,
    }


def _make_states(states: str, n_worlds: int, n_frames: int) -> NDArray[Any]:
    """`(n_frames, n_worlds, nq)`."""
    if states == "walk":
        return smooth_states(n_frames, n_worlds, 72)
    from flytraj.demo.fly import fly_spec
    from flytraj.demo.worlds import FlyWorlds

    model = fly_spec().compile()
    worlds = FlyWorlds(model, n_worlds // 4)
    frames = np.empty((n_frames, n_worlds // 4, model.nq))
    qpos = worlds.source.bind("qpos")
    for frame in frames:
        worlds.step()
        frame[...] = qpos
    tiled = np.tile(frames, (1, 4, 1))
    return tiled.astype(np.float32) if states == "fly32" else tiled


def _open(
    values: NDArray[Any], *, codec: Mapping[str, Any] | None, shuffle: str, frames_last: bool, kib: int
) -> Any:
    import tensorstore as ts

    n_frames, n_worlds, nq = values.shape
    chunk_worlds = 1
    while 2 * chunk_worlds * _BLOCK_FRAMES * nq * values.itemsize <= kib * 1024:
        chunk_worlds *= 2
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    codecs: list[dict[str, Any]] = [{"name": "crc32c"}]
    if codec is not None:
        blosc = {**codec, "shuffle": shuffle, "typesize": values.itemsize, "blocksize": 0}
        codecs.insert(0, {"name": "blosc", "configuration": blosc})
    codecs.insert(0, little)
    if frames_last:
        codecs.insert(0, {"name": "transpose", "configuration": {"order": [0, 2, 1]}})
    sharding = {
        "chunk_shape": [chunk_worlds, _BLOCK_FRAMES, nq],
        "codecs": codecs,
        "index_codecs": [little, {"name": "crc32c"}],
    }
    metadata = {
        "shape": [n_worlds, n_frames, nq],
        "data_type": values.dtype.name,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [min(n_worlds, _SHARD_WORLDS), _BLOCK_FRAMES, nq]},
        },
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
    }
    spec = {"driver": "zarr3", "kvstore": {"driver": "memory"}, "metadata": metadata}
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    return ts.open(spec, create=True, context=context).result()


def _table(settings: Settings, states: str, label: str) -> Table:
    n_worlds, n_frames = (256, 64) if settings.quick else (2048, 128)
    cases = {
        variant: Case(
            variant,
            "layouts:measure",
            arguments={"states": states, "variant": variant, "n_worlds": n_worlds, "n_frames": n_frames},
        )
        for variant in list(_VARIANTS)[: 3 if settings.quick else None]
    }
    outcomes = interleave(settings, cases, label)
    measured = [outcome for outcome in outcomes.values() if outcome.results]
    return Table(
        f"layouts-{states}",
        f"Encoding and decoding {label}",
        ["", "encode, MB per CPU s", "decode, MB per CPU s", "ratio"],
        [
            [o.label, f"{o.median('encode'):.0f}", f"{o.median('decode'):.0f}", f"{o.median('ratio'):.3f}"]
            for o in measured
        ],
        [
            f"{n_worlds} worlds × {n_frames} frames in blocks of {_BLOCK_FRAMES}, through TensorStore, in memory. "
            f"Best of {_REPEATS} in a process, medians of {settings.rounds} rounds.",
            "Chunks are as large as goes within the size given, with a power of two of worlds.",
            *skip_reason(outcomes.values()),
        ],
        [
            Bars({o.label: o.median("encode") for o in measured}, "encode, MB per CPU s"),
            Bars({o.label: o.median("ratio") for o in measured}, "ratio"),
        ],
    )
