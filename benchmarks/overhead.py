"""Overhead: what a recorder costs the simulation, and what a call costs when no frame is due."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import Measured, warm_memory
from benchmarks.report import Bars, Table
from benchmarks.rounds import Case, Outcome, Settings, interleave, skip_reason

__all__ = ["measure_calls", "measure_simulation", "run"]

_STEPS_PER_FRAME = 4
_SIMULATIONS = {
    "none": "no recorder",
    "flytraj": "flytraj, to disk",
    "memory": "flytraj, in memory",
}


def run(settings: Settings) -> list[Table]:
    """Simulate with and without a recorder; call recorders of one world."""
    return [_simulation_table(settings), _call_table(settings)]


def measure_simulation(recorder: str, n_worlds: int, n_steps: int, folder: str) -> dict[str, Any]:
    """Step a `mujoco.batch.Batch`, recording every fourth step."""
    from mujoco.batch import Batch

    import flytraj as ft

    model = humanoid_spec().compile()
    timestep = model.opt.timestep
    batch = Batch(model, n_worlds)
    batch.bind("ctrl")[:] = np.random.default_rng(0).uniform(-1, 1, (n_worlds, model.nu))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        options: dict[str, Any] = {"playback_speed": 25 * _STEPS_PER_FRAME * timestep, "output_fps": 25}
        if recorder == "flytraj":
            options["store"] = Path(scratch) / "recording"
        rec = None if recorder == "none" else ft.BatchTrajectoryRecorder(model, n_worlds, **options)
        for _ in range(2 * _STEPS_PER_FRAME):
            batch.step()
            if rec is not None:
                rec.record_as_needed(batch)
        warm_memory(2**28)
        n_frames = 0
        with Measured() as measured:
            for _ in range(n_steps):
                batch.step()
                if rec is not None:
                    n_frames += rec.record_as_needed(batch)
            if rec is not None:
                rec.close()
    return {**measured.as_dict(), "n_frames": n_frames}


def measure_calls(recorder: str, n_calls: int) -> dict[str, Any]:
    """Time calls of a recorder of one `MjData`: when no frame is due, and when each is."""
    import mujoco

    model = humanoid_spec().compile()
    data = mujoco.MjData(model)
    timestep = model.opt.timestep
    idle = _recorder(recorder, model, playback_speed=1e6)
    due = _recorder(recorder, model, playback_speed=25 * timestep)
    results = {
        "idle_us": _call_us(idle, data, n_calls, 0.0),
        "due_us": _call_us(due, data, n_calls // 20, timestep),
    }
    return results


def humanoid_spec() -> Any:
    """A humanoid-like model of capsules: a free joint and 21 hinges with motors, on the ground."""
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.timestep = 0.005
    capsule, hinge = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtJoint.mjJNT_HINGE
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=(20, 20, 0.1))
    torso = spec.worldbody.add_body(name="torso", pos=(0, 0, 1.3))
    torso.add_freejoint(name="root")
    torso.add_geom(type=capsule, fromto=(0, -0.07, 0, 0, 0.07, 0), size=(0.07, 0, 0))

    def limb(parent: Any, name: str, pos: tuple[float, float, float], length: float, axes: str) -> Any:
        body = parent.add_body(name=name, pos=pos)
        for axis in axes:
            joint = f"{name}_{axis}"
            body.add_joint(
                name=joint, type=hinge, axis=[float(axis == a) for a in "xyz"], range=(-60, 60), damping=1
            )
            body.joints[-1].armature = 0.02
            actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            actuator.gear[0] = 20
        body.add_geom(type=capsule, fromto=(0, 0, 0, 0, 0, -length), size=(0.05, 0, 0))
        return body

    limb(torso, "abdomen", (0, 0, -0.1), 0.2, "xyz")
    for side, y in (("left", 0.1), ("right", -0.1)):
        thigh = limb(torso, f"{side}_hip", (0, y, -0.3), 0.35, "xyz")
        shin = limb(thigh, f"{side}_knee", (0, 0, -0.4), 0.3, "y")
        limb(shin, f"{side}_ankle", (0, 0, -0.35), 0.05, "xy")
        upper = limb(torso, f"{side}_shoulder", (0, 2 * y, 0.06), 0.25, "xy")
        limb(upper, f"{side}_elbow", (0, 0, -0.3), 0.25, "y")
    return spec


def _recorder(recorder: str, model: Any, *, playback_speed: float) -> Any:
    if recorder == "flygym":
        from flygym.recording import TrajectoryRecorder

        return TrajectoryRecorder(model, playback_speed=playback_speed, output_fps=25)
    import flytraj as ft

    return ft.TrajectoryRecorder(model, playback_speed=playback_speed, output_fps=25)


def _call_us(recorder: Any, data: Any, n_calls: int, step: float) -> float:
    """Microseconds of a call, without what the loop takes itself; the best of seven stretches of each."""
    call = recorder.record_as_needed
    data.time = 0.0
    call(data)
    empty, full = [], []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(n_calls):
            data.time += step
        empty.append(time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(n_calls):
            data.time += step
            call(data)
        full.append(time.perf_counter() - began)
    return (min(full) - min(empty)) / n_calls * 1e6


def _simulation_table(settings: Settings) -> Table:
    n_worlds, n_steps = (64, 80) if settings.quick else (512, 800)
    arguments = {"n_worlds": n_worlds, "n_steps": n_steps, "folder": str(settings.folder)}
    cases = {
        name: Case(label, "overhead:measure_simulation", arguments={"recorder": name, **arguments})
        for name, label in _SIMULATIONS.items()
    }
    outcomes = interleave(settings, cases, "simulating")
    measured = {name: o for name, o in outcomes.items() if o.results}

    def more(outcome: Outcome, key: str) -> str:
        return f"{outcome.median(key) / measured['none'].median(key) - 1:+.1%}" if "none" in measured else "–"

    return Table(
        "overhead",
        f"Simulating {n_worlds} humanoids for {n_steps} steps, every {_STEPS_PER_FRAME}th recorded",
        ["", "s", "wall time", "CPU time", "frames"],
        [
            [
                o.label,
                f"{o.median('seconds'):.2f}",
                more(o, "seconds"),
                more(o, "cpu_seconds"),
                str(o.first("n_frames")),
            ]
            for o in measured.values()
        ],
        [
            f"Steps of `mujoco.batch.Batch`, calls of the recorder, closing; medians of {settings.rounds} rounds.",
            *skip_reason(outcomes.values()),
        ],
        [Bars({o.label: o.median("seconds") for o in measured.values()}, "s")],
    )


def _call_table(settings: Settings) -> Table:
    n_calls = 20_000 if settings.quick else 400_000
    labels = {"flytraj": "flytraj, in memory", "flygym": "flygym"}
    cases = {
        name: Case(
            label,
            "overhead:measure_calls",
            settings.python(needs_flygym=name == "flygym"),
            {"recorder": name, "n_calls": n_calls},
        )
        for name, label in labels.items()
    }
    outcomes = interleave(settings, cases, "calling")
    measured = [o for o in outcomes.values() if o.results]
    return Table(
        "calls",
        "A call of the recorder of one world, µs",
        ["", "no frame due", "frame due"],
        [[o.label, f"{o.median('idle_us'):.2f}", f"{o.median('due_us'):.2f}"] for o in measured],
        [
            f"Best of seven stretches in a process, medians of {settings.rounds} rounds; each in its own Python.",
            *skip_reason(outcomes.values()),
        ],
        [
            Bars({o.label: o.median("idle_us") for o in measured}, "µs, no frame due"),
            Bars({o.label: o.median("due_us") for o in measured}, "µs, frame due"),
        ],
    )
