"""Rendering recorded flies to MP4: flytraj's backends beside flygym's `render_trajectories`, in one run.

    python -m benchmarks.rendering --peer PYTHON-WITH-FLYGYM-2.1.1

Each measurement has a fresh process. The model (the fly of flygym, 69 meshes, no light but the camera's), the
trajectories and the camera are the same for all; loading them is not counted, finding a backend and starting
processes is. Warp's kernels are compiled before (and stay on disk).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from benchmarks.process import Failed, run_fresh, warm_memory

__all__ = ["flygym", "flytraj", "prepare"]

_CAMERA = "nmf/trackcam"
_COMPARED_FRAMES = 4
_MEMORY_ROUNDS = 3
_OURS: list[dict[str, Any]] = [
    {"backend": "opengl", "quality": "normal", "workers": 1},
    {"backend": "opengl", "quality": "normal", "workers": 2},
    {"backend": "opengl", "quality": "draft", "workers": 2},
    {"backend": "warp", "quality": "normal", "workers": 2},
]


def prepare(folder: str, n_worlds: int, n_frames: int) -> dict[str, Any]:
    """Simulate flies whose legs wave, in flygym; write the model and the trajectories. Runs with flygym."""
    import mujoco
    import numpy as np
    from flygym.anatomy import ActuatedDOFPreset, AxisOrder, JointPreset, Skeleton
    from flygym.compose import ActuatorType, FlatGroundWorld, KinematicPosePreset, NeuroMechFly
    from flygym.recording import TrajectoryRecorder
    from flygym.utils.math import Rotation3D

    fly = NeuroMechFly()
    pose = KinematicPosePreset.NEUTRAL
    skeleton = Skeleton(axis_order=AxisOrder.YAW_PITCH_ROLL, joint_preset=JointPreset.LEGS_ONLY)
    fly.add_joints(skeleton, neutral_pose=pose)
    dofs = fly.skeleton.get_actuated_dofs_from_preset(ActuatedDOFPreset.LEGS_ACTIVE_ONLY)
    fly.add_actuators(dofs, actuator_type=ActuatorType.POSITION, kp=50.0, neutral_input=pose)
    fly.colorize()
    fly.add_tracking_camera()
    world = FlatGroundWorld()
    world.add_fly(fly, (0, 0, 0.8), Rotation3D("quat", (1, 0, 0, 0)))
    world.save_xml_with_assets(folder)
    model = _load(folder)
    for world_id in range(n_worlds):
        data = mujoco.MjData(model)
        mujoco.mj_resetDataKeyframe(model, data, 0)
        neutral = data.ctrl.copy()
        phase = np.random.default_rng(world_id).uniform(0, 2 * np.pi, model.nu)
        recorder = TrajectoryRecorder(model, playback_speed=0.2, output_fps=25)
        n_recorded = 0
        while n_recorded < n_frames:
            data.ctrl[:] = neutral + 0.3 * np.sin(2 * np.pi * 8 * data.time + phase)
            mujoco.mj_step(model, data, 10)
            n_recorded += recorder.record_as_needed(data)
        trajectory = recorder.trajectory
        trajectory.world_id = world_id
        trajectory.save(Path(folder) / f"world{world_id}.npz")
    return {"nq": int(model.nq), "nmesh": int(model.nmesh)}


def flygym(folder: str, camera_res: list[int], n_worlds: int, n_frames: int) -> dict[str, Any]:
    """Render with flygym. Runs with flygym, and `MUJOCO_GL` set."""
    from flygym.recording import RecordedTrajectory, render_trajectories

    model = _load(folder)
    trajectories = _first(RecordedTrajectory, folder, n_worlds, n_frames)
    with _Tree() as tree, tempfile.TemporaryDirectory() as output:
        frames = render_trajectories(model, trajectories, _CAMERA, output, camera_res=tuple(camera_res))
    return tree.result(n_worlds * n_frames) | {"pixels": _hash(frames[0][_CAMERA][:_COMPARED_FRAMES])}


def flytraj(
    folder: str, camera_res: list[int], n_worlds: int, n_frames: int, backend: Any, quality: Any, workers: int
) -> dict[str, Any]:
    """Render with flytraj."""
    from flytraj.rendering import render_trajectories, render_videos
    from flytraj.trajectory import RecordedTrajectory

    model = _load(folder)
    res = (camera_res[0], camera_res[1])
    trajectories = _first(RecordedTrajectory, folder, n_worlds, n_frames)
    few = trajectories[0].read(0, _COMPARED_FRAMES)
    if backend == "warp":
        render_trajectories(model, few, _CAMERA, camera_res=res, backend=backend, quality=quality)
    with _Tree() as tree, tempfile.TemporaryDirectory() as output:
        render_videos(
            model,
            trajectories,
            _CAMERA,
            output,
            camera_res=res,
            backend=backend,
            quality=quality,
            workers=workers,
        )
    frames = render_trajectories(model, few, _CAMERA, camera_res=res, backend=backend, quality=quality)
    return tree.result(n_worlds * n_frames) | {"pixels": _hash(frames[0][_CAMERA])}


class _Tree:
    """Measures wall time, and the peak of resident memory of this process and all that it started."""

    def __enter__(self) -> Self:
        warm_memory()
        self._done = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._began, self._cpu_began = time.perf_counter(), _cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._began
        self._cpu = _cpu_seconds() - self._cpu_began
        self._done.set()
        self._thread.join()

    def result(self, n_frames: int) -> dict[str, Any]:
        return {
            "fps": n_frames / self._seconds,
            "seconds": self._seconds,
            "cpu_ms": 1e3 * self._cpu / n_frames,
            "peak_mb": self._peak / 1e6,
        }

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self._peak = max(self._peak, _memory_of(os.getpid()))


def _cpu_seconds() -> float:
    """Of this process and of those it started and that have ended."""
    return sum(os.times()[:4])


def _memory_of(pid: int) -> int:
    """Bytes of a process and its children, what they share counted once."""
    process = Path(f"/proc/{pid}")
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        children = [
            child
            for task in (process / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, StopIteration):
        return 0
    return 1024 * kilobytes + sum(_memory_of(int(child)) for child in children)


def _load(folder: str) -> Any:
    import mujoco

    return mujoco.MjModel.from_xml_path(str(next(Path(folder).glob("*.xml"))))


def _first(kind: Any, folder: str, n_worlds: int, n_frames: int) -> list[Any]:
    result = []
    for world_id in range(n_worlds):
        whole = kind.from_file(Path(folder) / f"world{world_id}.npz")
        result.append(kind(whole.time[:n_frames], whole.qpos[:n_frames], 25, 0.2, world_id))
    return result


def _hash(frames: Any) -> str:
    return hashlib.sha256(frames.tobytes()).hexdigest()[:12]


def _show(what: str, measured: dict[str, Any], reference: dict[str, Any] | None) -> None:
    row = f"| {what} | {measured['fps']:.1f} |"
    if reference is None:
        row += " | "
    else:
        same = measured["pixels"] == reference["pixels"]
        row += f" {measured['fps'] / reference['fps']:.2f} | {'the same' if same else 'others'}"
    print(f"{row} | {measured['cpu_ms']:.0f} | {measured['peak_mb']:.0f} |", flush=True)


def _speed(folder: str, peer: str | None, sizes: list[list[int]], n_worlds: int, n_frames: int) -> list[Any]:
    """Frames per second of each way, for each size of picture."""
    results = []
    for camera_res in sizes:
        common: dict[str, Any] = {
            "folder": folder,
            "camera_res": camera_res,
            "n_worlds": n_worlds,
            "n_frames": n_frames,
        }
        print(f"\n{n_worlds} worlds of {n_frames} frames at {camera_res[0]} x {camera_res[1]}\n")
        print(
            "| what | frames/s | × flygym | pixels | CPU ms/frame | peak MB, all processes |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        reference = None
        if peer is not None:
            reference = run_fresh("rendering:flygym", python=peer, **common)
            _show("flygym 2.1.1", reference, None)
            results.append({"what": "flygym", **common, **reference})
        for options in _OURS:
            name = f"flytraj {options['backend']}, {options['quality']}, {options['workers']} process(es)"
            try:
                measured = run_fresh("rendering:flytraj", **common, **options)
            except Failed as error:
                print(f"| {name} | failed: {error} |", flush=True)
                continue
            _show(name, measured, reference)
            results.append({"what": "flytraj", **common, **options, **measured})
    return results


def _memory(folder: str, counts: list[int]) -> list[Any]:
    """Peak memory for few and for many frames, medians: processes that start together can peak together."""
    results = []
    for workers in (1, 2):
        common: dict[str, Any] = {"folder": folder, "camera_res": [240, 320], "n_worlds": 1}
        common |= {"backend": "opengl", "quality": "draft", "workers": workers}
        peaks: dict[int, list[float]] = {n_frames: [] for n_frames in counts}
        for _ in range(_MEMORY_ROUNDS):
            for n_frames in counts:
                measured = run_fresh("rendering:flytraj", n_frames=n_frames, **common)
                peaks[n_frames].append(measured["peak_mb"])
                results.append({"what": "memory", "n_frames": n_frames, **common, **measured})
        for n_frames in counts:
            of_rounds = ", ".join(f"{peak:.0f}" for peak in peaks[n_frames])
            median = statistics.median(peaks[n_frames])
            print(f"{n_frames} frames, {workers} process(es): peak {median:.0f} MB ({of_rounds})", flush=True)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", help="a Python with flygym 2.1.1, which makes the model; needed")
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--memory-frames", type=int, nargs="*", default=[200, 800])
    parser.add_argument("--output", type=Path, help="a JSON file for all numbers")
    asked = parser.parse_args()
    if asked.peer is None:
        sys.exit("Say with --peer which Python has flygym 2.1.1: it makes the model and is measured beside.")
    os.environ.setdefault("MUJOCO_GL", "egl")
    with tempfile.TemporaryDirectory() as folder:
        most = max([asked.frames, *asked.memory_frames])
        print(
            run_fresh(
                "rendering:prepare", python=asked.peer, folder=folder, n_worlds=asked.worlds, n_frames=most
            )
        )
        results = _speed(folder, asked.peer, [[240, 320], [480, 640]], asked.worlds, asked.frames)
        results += _memory(folder, asked.memory_frames)
    if asked.output:
        asked.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
