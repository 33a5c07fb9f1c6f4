"""Many worlds of flies: a tripod gait towards the lure, on all worlds at once."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.demo.fly import LEGS, SIDES

__all__ = ["FlyWorlds"]

Floats = NDArray[np.float64]

_STEPS_PER_CONTROL = 5
_LURE_ORBIT = 0.62


class FlyWorlds:
    """Many worlds with one fly each, walking to its lure. Every world has a gait and a clumsiness of its own.

    A fly starts anew, from another fall, every few seconds, each at times of its own.

    Args:
        model: The compiled model of `fly_spec`.
        n_worlds: Number of worlds.
        seed: Seed of everything that is drawn by chance.

    Attributes:
        source: What a recorder reads: a `mujoco.batch.Batch`, or a list of `MjData` before MuJoCo 4.
        dt: Simulated seconds in one `step()`.
        frequency: `(n_worlds,)` steps of a leg in a second.
        stride: `(n_worlds,)` how far a leg swings, in radians.
        lift: `(n_worlds,)` how high it is lifted, in radians.
        clumsiness: `(n_worlds,)` from 0, put down gently, to 1, thrown.
    """

    def __init__(self, model: mujoco.MjModel, n_worlds: int, *, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        draw = self._rng.uniform
        self.dt = float(model.opt.timestep) * _STEPS_PER_CONTROL
        self.frequency: Floats = draw(1.2, 3.2, n_worlds)
        self.stride: Floats = draw(0.25, 0.65, n_worlds)
        self.lift: Floats = draw(0.25, 0.7, n_worlds)
        self.clumsiness: Floats = draw(0, 1, n_worlds) ** 2
        self._lure_speed = draw(0.3, 0.9, n_worlds) * self._rng.choice((-1, 1), n_worlds)
        self._lure_start = draw(-np.pi, np.pi, n_worlds)
        self._phase = draw(-np.pi, np.pi, n_worlds)
        self._restart_at = draw(1.5, 6, n_worlds)
        self._elapsed = 0.0

        self._sides, self._offsets, self._legs = _leg_tables(model)
        self._wings = [model.actuator(f"{side}_wing").id for side in SIDES]
        self._neck = model.actuator("neck").id
        self._state = _BatchState(model, n_worlds) if _has_batch() else _DataState(model, n_worlds)
        self.source: Any = self._state.source
        self._restart(np.arange(n_worlds))

    def step(self) -> None:
        """Advance all worlds by `dt`, after restarting those whose time has come."""
        due = np.flatnonzero(self._elapsed >= self._restart_at)
        if due.size:
            self._restart_at[due] += self._rng.uniform(3, 6, due.size)
            self._restart(due)
        self._elapsed += self.dt
        self._phase += 2 * np.pi * self.frequency * self.dt
        self._control()
        self._state.step(_STEPS_PER_CONTROL)

    def _restart(self, ids: NDArray[np.int64]) -> None:
        """Drop flies from a height, turned, tilted and pushed as far as they are clumsy."""
        state, rng, clumsy = self._state, self._rng, self.clumsiness[ids]
        state.reset(ids)
        tilt = rng.uniform(0, 1.3, ids.size) * clumsy
        lean, turn = rng.uniform(-np.pi, np.pi, (2, ids.size))
        state.qpos[ids, 2] += 0.3 * clumsy
        state.qpos[ids, 3] = np.cos(turn / 2) * np.cos(tilt)
        state.qpos[ids, 4] = np.cos(turn / 2 + lean) * np.sin(tilt)
        state.qpos[ids, 5] = np.sin(turn / 2 + lean) * np.sin(tilt)
        state.qpos[ids, 6] = np.sin(turn / 2) * np.cos(tilt)
        push = rng.normal(0, (0.8, 0.8, 0.3, 5, 5, 5), (ids.size, 6))
        state.qvel[ids, :6] = push * clumsy[:, None]

    def _control(self) -> None:
        """Move the lures, and walk to them: longer strides on the outer side of the turn."""
        state = self._state
        orbit = self._lure_start + self._lure_speed * self._elapsed
        height = 0.15 + 0.03 * np.sin(4 * orbit)
        lure = np.stack([_LURE_ORBIT * np.cos(orbit), _LURE_ORBIT * np.sin(orbit), height], axis=1)
        state.mocap_pos[:, 0] = lure
        bearing, upright = _bearing_and_upright(state.qpos, lure)

        phase = self._phase[:, None] + self._offsets
        steer = 1 - 1.4 * np.clip(bearing, -1, 1)[:, None] * self._sides
        raised = np.maximum(0, np.sin(phase)) * self.lift[:, None]
        state.ctrl[:, self._legs[:, 0]] = self._sides * self.stride[:, None] * steer * np.cos(phase)
        state.ctrl[:, self._legs[:, 1]] = raised - 0.05
        state.ctrl[:, self._legs[:, 2]] = 0.5 * raised
        state.ctrl[:, self._neck] = np.clip(bearing, -0.6, 0.6)
        resting, righting = 0.1 + 0.05 * np.sin(2 * self._phase), 0.9 + 0.5 * np.sin(9 * self._phase)
        state.ctrl[:, self._wings] = np.where(upright < 0.2, righting, resting)[:, None]


class _BatchState:
    """The state of all worlds as live views of a `mujoco.batch.Batch`."""

    def __init__(self, model: mujoco.MjModel, n_worlds: int) -> None:
        from mujoco.batch import Batch

        self.source = Batch(model, n_worlds)
        self.qpos: Floats = self.source.bind("qpos")
        self.qvel: Floats = self.source.bind("qvel")
        self.ctrl: Floats = self.source.bind("ctrl")
        self.mocap_pos: Floats = self.source.bind("mocap_pos")

    def reset(self, ids: NDArray[np.int64]) -> None:
        self.source.reset(ids)

    def step(self, n_steps: int) -> None:
        self.source.step(nstep=n_steps)


class _DataState:
    """The same for a list of `MjData`: copied in before a step and out after it."""

    def __init__(self, model: mujoco.MjModel, n_worlds: int) -> None:
        self._model = model
        self.source = [mujoco.MjData(model) for _ in range(n_worlds)]
        self.qpos: Floats = np.stack([data.qpos for data in self.source])
        self.qvel: Floats = np.stack([data.qvel for data in self.source])
        self.ctrl: Floats = np.stack([data.ctrl for data in self.source])
        self.mocap_pos: Floats = np.stack([data.mocap_pos for data in self.source])

    def reset(self, ids: NDArray[np.int64]) -> None:
        for i in ids:
            mujoco.mj_resetData(self._model, self.source[i])
            self.qpos[i], self.qvel[i] = self.source[i].qpos, self.source[i].qvel

    def step(self, n_steps: int) -> None:
        for i, data in enumerate(self.source):
            data.qpos[:], data.qvel[:] = self.qpos[i], self.qvel[i]
            data.ctrl[:], data.mocap_pos[:] = self.ctrl[i], self.mocap_pos[i]
            mujoco.mj_step(self._model, data, nstep=n_steps)
            self.qpos[i], self.qvel[i] = data.qpos, data.qvel


def _has_batch() -> bool:
    return int(mujoco.__version__.split(".")[0]) >= 4


def _bearing_and_upright(qpos: Floats, lure: Floats) -> tuple[Floats, Floats]:
    """Angle from nose to lure, positive to the left, and how far the back is up: 1, or down: -1."""
    w, x, y, z = qpos[:, 3:7].T
    forward = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)], axis=1)
    left = np.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z)], axis=1)
    to_lure = lure[:, :2] - qpos[:, :2]
    bearing = np.arctan2((to_lure * left).sum(axis=1), (to_lure * forward).sum(axis=1))
    return bearing, 1 - 2 * (x * x + y * y)


def _leg_tables(model: mujoco.MjModel) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Side `(6,)` and tripod phase `(6,)` of each leg, and its actuators: coxa, femur, tibia `(6, 3)`."""
    names = [(side, pair) for side in SIDES for pair in LEGS]
    sides = np.array([SIDES[side] for side, _ in names], dtype=np.float64)
    offsets = np.array([np.pi * ((side == "left") == (pair == "middle")) for side, pair in names])
    actuators = [
        [model.actuator(f"{side}_{pair}_{part}").id for part in ("coxa", "femur", "tibia")]
        for side, pair in names
    ]
    return sides, offsets, np.array(actuators)
