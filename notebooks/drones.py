"""The flight test of the notebooks: many drones are shoved, and two controllers try to save them."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

import flytraj as ft

Floats = NDArray[np.float64]

HOVER = np.array([0.0, 0.0, 1.5])
CONTROLLERS = ("calm", "eager")
FALLEN = 0.09
"""Height of the hull in metres, below which a drone lies on the floor."""

_XML = """
<mujoco model="drone">
  <option timestep="0.005" integrator="implicitfast"/>
  <statistic center="0 0 1" extent="1.5"/>
  <visual>
    <global offwidth="640" offheight="480"/>
    <headlight ambient="0.4 0.4 0.42" diffuse="0.2 0.2 0.2" specular="0.1 0.1 0.1"/>
    <quality shadowsize="1024"/>
    <map znear="0.02" zfar="40" shadowclip="2.5"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.55 0.72 0.86" rgb2="0.93 0.94 0.92"
             width="128" height="128"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.80 0.82 0.78" rgb2="0.68 0.72 0.68"
             width="128" height="128"/>
    <material name="tiles" texture="tiles" texrepeat="1 1" texuniform="true"/>
    <material name="hull" rgba="0.16 0.19 0.24 1" specular="0.5" shininess="0.5"/>
    <material name="arm" rgba="0.30 0.33 0.38 1"/>
    <material name="front" rgba="0.95 0.45 0.15 0.75"/>
    <material name="rear" rgba="0.35 0.62 0.85 0.75"/>
    <material name="goal" rgba="0.25 0.75 0.35 0.45" emission="0.6"/>
  </asset>
  <default>
    <geom density="0"/>
    <default class="solid"><geom contype="1" conaffinity="0" friction="0.8 0.02 0.002"/></default>
    <default class="motor"><general ctrllimited="true" ctrlrange="0 5"/></default>
  </default>
  <worldbody>
    <light name="sun" type="directional" pos="-1.2 -1.4 2" dir="0.35 0.45 -1" diffuse="0.6 0.6 0.55" castshadow="true"/>
    <geom name="floor" type="plane" size="30 30 0.1" material="tiles" contype="0" conaffinity="1"/>
    <geom name="goal" type="sphere" size="0.05" pos="0 0 1.5" material="goal" contype="0" conaffinity="0"/>
    <camera name="room" pos="0 -3.8 2.1" xyaxes="1 0 0 0 0.3 1"/>
    <body name="drone" pos="0 0 1.5">
      <freejoint name="drone"/>
      <camera name="chase" mode="trackcom" pos="0 -1.1 0.4" xyaxes="1 0 0 0 0.34 1"/>
      <inertial mass="0.6" pos="0 0 0" diaginertia="0.004 0.004 0.007"/>
      <geom name="hull" class="solid" type="ellipsoid" size="0.1 0.07 0.04" material="hull"/>
    </body>
  </worldbody>
</mujoco>
"""
_ARM = 0.14
_ROTORS = {"front_left": (1, 1), "front_right": (1, -1), "rear_left": (-1, 1), "rear_right": (-1, -1)}
_DRAG = 0.02
"""Torque of a rotor about its axis, per newton of thrust."""

_STEPS_PER_CONTROL = 2
_GRAVITY = 9.81
_MASS = 0.6
# Of both controllers: how hard they pull to the goal, brake, and turn, and how far they lean at most.
_PULL, _BRAKE = np.array([1.5, 9.0]), np.array([2.2, 4.5])
_TURN, _STEADY = np.array([0.25, 0.9]), np.array([0.06, 0.11])
_LEAN = np.deg2rad([25.0, 65.0])


def drone_spec() -> mujoco.MjSpec:
    """A drone with four rotors above a tiled floor, and the point where it should hover."""
    spec = mujoco.MjSpec.from_string(_XML)
    hull = spec.body("drone")
    for name, (x, y) in _ROTORS.items():
        at = (_ARM * x * 0.7071, _ARM * y * 0.7071, 0.01)
        hull.add_geom(
            type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=(0, 0, 0, *at), size=(0.012, 0, 0), material="arm"
        )
        hull.add_geom(
            spec.find_default("solid"),
            name=name,
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=(at[0], at[1], 0.03),
            size=(0.075, 0.006, 0),
            material="front" if x > 0 else "rear",
        )
        hull.add_site(name=name, pos=at)
        spin = _DRAG if x * y > 0 else -_DRAG
        motor = spec.add_actuator(
            spec.find_default("motor"), name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_SITE
        )
        motor.gear = (0, 0, 1, 0, 0, spin)
    return spec


class Swarm:
    """Many drones, shoved where they hover. Even worlds fly with the first controller, odd ones with the second.

    The first shove of world 1 is that of world 0, and so on in pairs. A drone that falls on the floor stops its
    motors; a second later it is put back and shoved anew: a new episode.

    Attributes:
        batch: The simulation, for a recorder.
        controller: `(n_worlds,)` index into `CONTROLLERS`.
        shove: `(n_worlds,)` strength of the last shove, from 0 to 1.
        thrust: `(n_worlds,)` newtons that the four motors give together.
    """

    def __init__(self, model: mujoco.MjModel, n_worlds: int, *, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.batch = Batch(model, n_worlds)
        self._qpos, self._qvel, self._ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._dt = model.opt.timestep * _STEPS_PER_CONTROL
        self.controller = np.arange(n_worlds) % 2
        self.shove: Floats = np.zeros(n_worlds)
        self._lying: Floats = np.zeros(n_worlds)
        self._start(np.arange(n_worlds))
        self.shove[1::2], self._qvel[1::2] = self.shove[:-1:2], self._qvel[:-1:2]

    @property
    def thrust(self) -> Floats:
        total: Floats = self._ctrl.sum(axis=1)
        return total

    def step(self) -> None:
        """Advance all worlds by 10 ms."""
        fallen = (self._qpos[:, 2] < FALLEN) | (self._lying > 0)
        self._lying += self._dt * fallen
        done = np.flatnonzero(self._lying > 1)
        if done.size:
            self._start(done)
        self._control()
        self.batch.step(nstep=_STEPS_PER_CONTROL)

    def _start(self, worlds: NDArray[np.int64]) -> None:
        """Put drones at the goal, and shove them."""
        self.batch.reset(worlds)
        self._lying[worlds] = 0
        self.shove[worlds] = self._rng.uniform(0, 1, worlds.size)
        push = self._rng.normal(size=(worlds.size, 2, 3))
        push *= self.shove[worlds, None, None] / np.linalg.norm(push, axis=-1, keepdims=True)
        self._qvel[worlds, :3] = 5 * push[:, 0]
        self._qvel[worlds, 3:] = 28 * push[:, 1]

    def _control(self) -> None:
        """Lean towards where to go, as far as the controller dares, and share the thrust among the motors."""
        pull, brake = _PULL[self.controller, None], _BRAKE[self.controller, None]
        turn, steady = _TURN[self.controller, None], _STEADY[self.controller, None]
        wish = pull * (HOVER - self._qpos[:, :3]) - brake * self._qvel[:, :3]
        wish[:, 2] = np.clip(wish[:, 2] + _GRAVITY, 0.3 * _GRAVITY, 2.5 * _GRAVITY)
        most = np.tan(_LEAN[self.controller]) * wish[:, 2]
        level = np.linalg.norm(wish[:, :2], axis=1)
        wish[:, :2] *= np.minimum(1, most / np.maximum(level, 1e-9))[:, None]

        rotation = _rotations(self._qpos[:, 3:7])
        up = rotation[:, :, 2]
        force = _MASS * np.maximum(0, (wish * up).sum(axis=1))
        direction = wish / np.linalg.norm(wish, axis=1, keepdims=True)
        error = np.einsum("nij,ni->nj", rotation, np.cross(up, direction))
        torque = turn * error - steady * self._qvel[:, 3:6]
        lever = _ARM * 0.7071
        for motor, (x, y) in enumerate(_ROTORS.values()):
            spin = _DRAG if x * y > 0 else -_DRAG
            share = force + torque[:, 0] * y / lever - torque[:, 1] * x / lever + torque[:, 2] / spin
            self._ctrl[:, motor] = np.clip(share / 4, 0, 5) * (self._lying == 0)


def record_drones(path: str | Path, *, n_worlds: int = 1024, seconds: float = 5.0) -> None:
    """Make the dataset of the first notebook, if it is not there yet."""
    if Path(path).exists():
        return
    spec = drone_spec()
    model = spec.compile()
    swarm = Swarm(model, n_worlds)
    channels = {"controller": ((), "int8"), "shove": ((), "float32"), "thrust": ((), "float32")}
    with ft.BatchTrajectoryRecorder(
        model,
        n_worlds,
        playback_speed=0.5,
        output_fps=25,
        store=path,
        fields=("qvel",),
        channels=channels,
        spec=spec,
    ) as recorder:
        for _ in range(round(seconds / 0.01)):
            swarm.step()
            recorder.record_as_needed(
                swarm.batch, controller=swarm.controller, shove=swarm.shove, thrust=swarm.thrust
            )


def _rotations(quat: Floats) -> Floats:
    """Rotation matrices `(n, 3, 3)` of quaternions `(n, 4)`."""
    w, x, y, z = quat.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)
