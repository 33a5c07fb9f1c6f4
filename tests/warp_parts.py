"""What the tests of recording on Warp share: a model, and worlds that only count."""

from __future__ import annotations

from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from numpy.typing import NDArray

from flytraj.testing import tiny_model

__all__ = ["KEY_TIMES", "Counting", "model_with_keys"]

wp.config.log_level = wp.LOG_ERROR

KEY_TIMES = (0.0, 1.2345, 3.5)
"""Of the model's keyframes: at the start, and later, on and off the timestep's grid."""


def model_with_keys(timestep: float = 0.002) -> mujoco.MjModel:
    """The tiny model with a keyframe at each of `KEY_TIMES`."""
    spec = tiny_model()
    spec.option.timestep = timestep
    for time in KEY_TIMES:
        key = spec.add_key()
        key.time = time
    return spec.compile()


@wp.kernel(enable_backward=False)  # type: ignore[untyped-decorator]
def _advance(timestep: float, time: wp.array[float], qpos: wp.array2d[float]) -> None:
    world = wp.tid()
    time[world] = time[world] + timestep
    for k in range(qpos.shape[1]):
        qpos[world, k] = qpos[world, k] + 1.0


class Counting:
    """Worlds on Warp that go on as `mujoco_warp.step` lets them, in float32, and count instead of simulating.

    Attributes:
        data: `mujoco_warp.Data`; all of qpos is the number of steps that a world has made.
        steps: `(n_worlds,)` steps since each world's last reset.
        start: `(n_worlds,)` seconds at which it began.
    """

    def __init__(self, mj_model: mujoco.MjModel, n_worlds: int) -> None:
        self.data = mjw.make_data(mj_model, nworld=n_worlds, nconmax=1, njmax=1)
        self.data.qpos.zero_()
        self.steps = np.zeros(n_worlds, int)
        self.start = np.zeros(n_worlds)
        self._timestep = mj_model.opt.timestep
        self._command = wp.launch(
            _advance,
            n_worlds,
            [self._timestep],
            [self.data.time, self.data.qpos],
            record_cmd=True,
        )

    @property
    def times(self) -> NDArray[np.float64]:
        """Where the worlds would be if time were exact."""
        times: NDArray[np.float64] = self.start + self.steps * self._timestep
        return times

    def step(self, n: int = 1) -> None:
        for _ in range(n):
            self._command.launch()
        self.steps += n

    def reset(self, mask: Any, start: float = 0.0) -> None:
        """Set some worlds back to where an episode begins."""
        time = self.data.time.numpy()
        time[mask] = start
        self.data.time.assign(time)
        self.steps[mask] = 0
        self.start[mask] = start
