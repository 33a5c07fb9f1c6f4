"""What recording every 8th step costs a simulation on Warp: flytraj beside flygym's recorder, in one run.

    python -m benchmarks.warp_recording --peer PYTHON-WITH-FLYGYM-2.1.1

Each measurement has a fresh process, on CUDA where there is a card, else on the CPU. The simulation is a kernel
that lets time go on and moves qpos, captured in a graph: what is measured is the loop with the recorder less the
loop without it. All worlds are recorded, in memory or into a dataset on disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.process import Failed, run_fresh, warm_memory

__all__ = ["flygym", "flytraj"]

_STEPS_PER_FRAME = 8
_TIMESTEP = 0.001
_N_HINGES = 59
_N_DRAIN = 20


def flygym(n_worlds: int, n_frames: int) -> dict[str, Any]:
    """Record with flygym's recorder. Runs with flygym."""
    from flygym.warp.recording import WarpTrajectoryRecorder

    model, data, step = _simulation(n_worlds)
    recorder = WarpTrajectoryRecorder(model, n_worlds, playback_speed=0.2, output_fps=25)
    return _measure(step, lambda: recorder.record_as_needed(data), n_frames)


def flytraj(n_worlds: int, n_frames: int, way: str, store: str | None) -> dict[str, Any]:
    """Record with flytraj: `record` waits for each step, `enqueue` is called, `graph` captured with the step."""
    import warp as wp

    from flytraj.warp import WarpTrajectoryRecorder

    model, data, step = _simulation(n_worlds)
    with WarpTrajectoryRecorder(model, n_worlds, playback_speed=0.2, output_fps=25, store=store) as recorder:
        if way == "record":
            return _measure(step, lambda: recorder.record_as_needed(data), n_frames, recorder.flush)
        if way == "enqueue":
            run = _with_drain(lambda: recorder.enqueue(data), recorder.drain)
            return _measure(step, run, n_frames, recorder.flush)
        recorder.enqueue(data)
        with wp.ScopedCapture() as capture:
            step()
            recorder.enqueue(data)
        run = _with_drain(lambda: wp.capture_launch(capture.graph), recorder.drain)
        return _measure(None, run, n_frames, recorder.flush, step)


def _simulation(n_worlds: int) -> tuple[Any, Any, Callable[[], None]]:
    """A model with nq 66 and a mocap body, arrays as in its data, and a step of it."""
    import mujoco
    import numpy as np
    import warp as wp

    wp.config.log_level = 30
    hinges = "<body><joint axis='0 1 0'/><geom size='.1'/></body>" * _N_HINGES
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><option timestep='{_TIMESTEP}'/><worldbody><body mocap='true'><geom size='.1'/></body>"
        f"<body><freejoint/><geom size='.1'/>{hinges}</body></worldbody></mujoco>"
    )

    @wp.kernel(enable_backward=False)  # type: ignore[untyped-decorator]
    def advance(timestep: float, time: wp.array[float], qpos: wp.array2d[float]) -> None:
        world = wp.tid()
        time[world] += timestep
        qpos[world, 0] = time[world]

    qpos = np.random.default_rng(0).normal(size=(n_worlds, model.nq)).astype(np.float32)
    data = SimpleNamespace(
        time=wp.zeros(n_worlds, dtype=float),
        qpos=wp.array(qpos, dtype=float),
        mocap_pos=wp.zeros((n_worlds, model.nmocap), dtype=wp.vec3),
        mocap_quat=wp.zeros((n_worlds, model.nmocap), dtype=wp.quat),
    )
    command = wp.launch(advance, n_worlds, [_TIMESTEP], [data.time, data.qpos], record_cmd=True)
    return model, data, command.launch


def _with_drain(enqueue: Callable[[], None], drain: Callable[[], None]) -> Callable[[], None]:
    n_calls = 0

    def run() -> None:
        nonlocal n_calls
        enqueue()
        n_calls += 1
        if n_calls % (_N_DRAIN * _STEPS_PER_FRAME) == 0:
            drain()

    return run


def _measure(
    step: Callable[[], None] | None,
    record: Callable[[], Any],
    n_frames: int,
    flush: Callable[[], None] = lambda: None,
    compared: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Microseconds a step that recording adds, and those of the recorder's calls with and without a frame.

    Args:
        step: Makes a step before each call; None if `record` does.
        record: Records.
        n_frames: Frames to record.
        flush: Brings everything to its place.
        compared: The step alone, if `record` makes it.
    """
    import warp as wp

    warm_memory()
    n_steps = n_frames * _STEPS_PER_FRAME
    for _ in range(4 * _STEPS_PER_FRAME):
        if step is not None:
            step()
        record()
    flush()
    calls = []
    wp.synchronize()
    began = time.perf_counter()
    for _ in range(n_steps):
        if step is not None:
            step()
        called = time.perf_counter()
        record()
        calls.append(time.perf_counter() - called)
    wp.synchronize()
    whole = time.perf_counter() - began
    flush()
    flushed = time.perf_counter() - began
    alone = step or compared
    assert alone is not None
    began = time.perf_counter()
    for _ in range(n_steps):
        alone()
    wp.synchronize()
    bare = time.perf_counter() - began
    by_place = sorted((sorted(calls[i::_STEPS_PER_FRAME])[n_frames // 2]) for i in range(_STEPS_PER_FRAME))
    return {
        "device": wp.get_device().name,
        "us_per_step": (whole - bare) / n_steps * 1e6,
        "us_per_step_flushed": (flushed - bare) / n_steps * 1e6,
        "us_without_frame": by_place[0] * 1e6,
        "us_with_frame": by_place[-1] * 1e6,
    }


def _print_row(what: str, measured: dict[str, Any]) -> None:
    numbers = ("us_per_step", "us_per_step_flushed", "us_without_frame", "us_with_frame")
    print(f"| {what} | " + " | ".join(f"{measured[name]:.1f}" for name in numbers) + " |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", help="a Python with flygym 2.1.1, to be measured beside")
    parser.add_argument("--worlds", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--output", type=Path, help="a JSON file for all numbers")
    asked = parser.parse_args()
    results = []
    for n_worlds in asked.worlds:
        common = {"n_worlds": n_worlds, "n_frames": asked.frames}
        print(f"\n{n_worlds} worlds, nq 66, a frame every {_STEPS_PER_FRAME} steps; µs that recording adds\n")
        print("| recorder | a step | a step, flushed | call without frame | call with frame |")
        print("| --- | --- | --- | --- | --- |")
        runs: list[tuple[str, str, str, dict[str, Any]]] = []
        if asked.peer is not None:
            runs.append(("flygym 2.1.1, in memory", "flygym", asked.peer, {}))
        for way in ("record", "enqueue", "graph"):
            for where in ("in memory", "on disk"):
                options = {"way": way, "store": None if where == "in memory" else where}
                runs.append((f"flytraj {way}, {where}", "flytraj", sys.executable, options))
        for what, function, python, options in runs:
            with tempfile.TemporaryDirectory() as folder:
                if options.get("store"):
                    options["store"] = str(Path(folder) / "run.zarr")
                try:
                    measured = run_fresh(f"warp_recording:{function}", python=python, **common, **options)
                except Failed as error:
                    print(f"| {what} | failed: {error} |", flush=True)
                    continue
            _print_row(what, measured)
            results.append({"what": what, **common, **measured})
        print(f"\non {', '.join({str(result['device']) for result in results})}", flush=True)
    if asked.output:
        asked.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
