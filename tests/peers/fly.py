"""The fly of flygym, walking or tethered, and the recorded motion that comes with it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flygym
import numpy as np
import pytest
from flygym.anatomy import ActuatedDOFPreset, AxisOrder, JointPreset, Skeleton
from flygym.compose import ActuatorType, FlatGroundWorld, KinematicPosePreset, NeuroMechFly, TetheredWorld
from flygym.utils.math import Rotation3D
from flygym_demo.spotlight_data import MotionSnippet
from numpy.typing import NDArray

CAMERA, ABOVE = "nmf/trackcam", "above"
MESHES = flygym.assets_dir / "model/neuromechfly/meshes"
_NEUTRAL = KinematicPosePreset.NEUTRAL

# flygym hands a new MjData to `mujoco_warp.put_data`, which casts its mass matrix: memory nobody has written to yet.
NEW_DATA_ON_WARP = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


class Fly(NamedTuple):
    """A world with one fly, and the targets of its joints, a row for each step of 0.1 ms."""

    world: Any
    name: str
    targets: NDArray[np.float64]


def make_fly(*, tethered: bool = False, meshes: Path = MESHES) -> Fly:
    """A fly on the ground (nq=49), or held in the air by its thorax, which is a mocap body (nq=42)."""
    fly = NeuroMechFly(mesh_basedir=meshes)
    skeleton = Skeleton(axis_order=AxisOrder.YAW_PITCH_ROLL, joint_preset=JointPreset.LEGS_ACTIVE_ONLY)
    fly.add_joints(skeleton, neutral_pose=_NEUTRAL)
    dofs = fly.skeleton.get_actuated_dofs_from_preset(ActuatedDOFPreset.LEGS_ACTIVE_ONLY)
    fly.add_actuators(dofs, actuator_type=ActuatorType.POSITION, kp=50.0, neutral_input=_NEUTRAL)
    fly.colorize()
    fly.add_tracking_camera()
    world = TetheredWorld() if tethered else FlatGroundWorld()
    world.mjcf_root.worldbody.add_camera(name=ABOVE, pos=(0, 0, 6))
    world.add_fly(fly, (0, 0, 0.8), Rotation3D("quat", (1, 0, 0, 0)))
    return Fly(world, fly.name, _motion(tuple(fly.get_actuated_jointdofs_order(ActuatorType.POSITION))))


def walk(sim: Any, fly: Fly, n_steps: int) -> Iterator[int]:
    """Step a simulation of one world; a mocap body goes round."""
    for i in range(n_steps):
        sim.set_actuator_inputs(fly.name, ActuatorType.POSITION, fly.targets[i])
        sim.step()
        if sim.mj_model.nmocap:
            sim.mj_data.mocap_pos[0], sim.mj_data.mocap_quat[0] = tether(i)
        yield i


def tether(step: int) -> tuple[list[float], list[float]]:
    """Position and orientation of a mocap body on its way."""
    angle = step / 100
    return [np.cos(angle), np.sin(angle), 0.8], [np.cos(angle), 0, 0, np.sin(angle)]


class Recorded(NamedTuple):
    """What flygym's recorder has of a fly, and the model."""

    mj_model: Any
    trajectory: Any


@functools.cache
def recorded(*, tethered: bool = False) -> Recorded:
    """10 frames, as flygym's recorder has them."""
    fly = make_fly(tethered=tethered)
    sim = flygym.Simulation(fly.world)
    recorder = sim.set_trajectory_recorder(playback_speed=0.05)
    for _ in walk(sim, fly, 200):
        sim.record_as_needed()
    return Recorded(sim.mj_model, recorder.trajectory)


def same(ours: Any, theirs: Any) -> bool:
    """Whether two trajectories are equal to the bit, and of one dtype."""
    names = ("time", "qpos", "mocap_pos", "mocap_quat")
    pairs = [(getattr(ours, name), getattr(theirs, name)) for name in names]
    return (
        (ours.output_fps, ours.playback_speed, ours.world_id, ours.n_frames)
        == (theirs.output_fps, theirs.playback_speed, theirs.world_id, theirs.n_frames)
    ) and all((a is None and b is None) or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in pairs)


@functools.cache
def _motion(dofs: tuple[Any, ...]) -> NDArray[np.float64]:
    angles: NDArray[np.float64] = MotionSnippet().get_joint_angles(1e-4, list(dofs))
    return angles
