"""The states that are recorded: the same bytes for every peer, made from one seed."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INTERVAL", "OUTPUT_FPS", "PLAYBACK_SPEED", "TIMESTEP", "Frames", "make_model", "smooth_states"]

TIMESTEP = 0.002
PLAYBACK_SPEED = 0.2
OUTPUT_FPS = 25
INTERVAL = PLAYBACK_SPEED / OUTPUT_FPS


def smooth_states(n_frames: int, n_worlds: int, nq: int, seed: int = 0) -> NDArray[np.float32]:
    """A smooth random walk of every coordinate, `(n_frames, n_worlds, nq)` float32.

    A coordinate has a velocity that is noise with a memory of some twenty frames. Signs, exponents and the
    upper bits of the mantissa change slowly, as in a simulation; the lower bits are noise, which no lossless
    codec can make smaller.
    """
    rng = np.random.default_rng(seed)
    states = np.empty((n_frames, n_worlds, nq), np.float32)
    position = rng.uniform(-1, 1, (n_worlds, nq)).astype(np.float32)
    velocity = np.zeros((n_worlds, nq), np.float32)
    for frame in states:
        velocity *= np.float32(0.95)
        velocity += rng.standard_normal(velocity.shape, np.float32) * np.float32(0.004)
        position += velocity
        frame[...] = position
    return states


@dataclass
class Frames:
    """Frames in the order of time, as a simulation would give them.

    Attributes:
        states: `(n_frames, n_worlds, nq)`.
        kill_after: Frames after which the process kills itself, as if from outside; None for never.
        taken: Frames given so far.
    """

    states: NDArray[Any]
    kill_after: int | None = None
    taken: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, worlds, coordinates."""
        n_frames, n_worlds, nq = self.states.shape
        return n_frames, n_worlds, nq

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Each frame, `(n_worlds, nq)`."""
        for frame in self.states:
            if self.taken == self.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            yield frame
            self.taken += 1

    def first(self, n_frames: int) -> Frames:
        """Only the first frames."""
        return Frames(self.states[:n_frames])

    def checksum(self) -> int:
        """To see that every peer got the same bytes."""
        return zlib.crc32(self.states.data)


def make_model(nq: int, nmocap: int = 0) -> Any:
    """An `MjModel` with `nq` coordinates, as many of them free joints as go, and `nmocap` mocap bodies."""
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.timestep = TIMESTEP
    n_free, n_slides = divmod(nq, 7)
    for i in range(n_free):
        body = spec.worldbody.add_body(name=f"free_{i}")
        body.add_freejoint(name=f"free_{i}")
        body.add_geom(size=(0.1, 0, 0), contype=0, conaffinity=0)
    for i in range(n_slides):
        body = spec.worldbody.add_body(name=f"slide_{i}")
        body.add_joint(name=f"slide_{i}", type=mujoco.mjtJoint.mjJNT_SLIDE)
        body.add_geom(size=(0.1, 0, 0), contype=0, conaffinity=0)
    for i in range(nmocap):
        spec.worldbody.add_body(name=f"mocap_{i}", mocap=True)
    return spec.compile()
