"""Derived arrays: what MuJoCo computes from qpos and mocap poses, a stretch of frames at a time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import FieldNotFoundError
from flytraj.schema import Variable, make_schema

__all__ = ["KINEMATIC_FIELDS", "compute", "field"]

KINEMATIC_FIELDS = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "subtree_com"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "cam_xpos", "cam_xmat"),
    *("light_xpos", "light_xdir", "ten_length"),
)
"""MjData fields that follow from positions alone: kinematics, comPos, camlight, tendon."""


def field(mj_model: mujoco.MjModel, name: str) -> Variable:
    """Dims, shape and dtype of a field that can be computed.

    Raises:
        FieldNotFoundError: It does not follow from positions alone.
    """
    if name not in KINEMATIC_FIELDS:
        raise FieldNotFoundError(
            f"{name!r} does not follow from qpos and mocap poses; these do: {', '.join(KINEMATIC_FIELDS)}."
        )
    return make_schema(mj_model, fields=(name,))[name]


def compute(
    mj_model: mujoco.MjModel,
    name: str,
    qpos: NDArray[Any],
    mocap_pos: NDArray[Any] | None,
    mocap_quat: NDArray[Any] | None,
) -> NDArray[Any]:
    """Compute a field for many states, on all cores.

    Args:
        mj_model: The model.
        name: One of `KINEMATIC_FIELDS`.
        qpos: `(n, nq)`.
        mocap_pos: `(n, nmocap, 3)`, or None without mocap bodies.
        mocap_quat: `(n, nmocap, 4)`, or None.

    Returns:
        `(n, …)`, equal to what MuJoCo computes for each state.
    """
    variable = field(mj_model, name)
    result = np.empty((len(qpos), *variable.shape), variable.dtype)
    n_threads = min(os.cpu_count() or 1, max(1, len(qpos) // 64))

    def run(part: slice) -> None:
        data = mujoco.MjData(mj_model)
        for i in range(part.start, part.stop):
            data.qpos[:] = qpos[i]
            if mocap_pos is not None and mocap_quat is not None:
                data.mocap_pos[:] = mocap_pos[i]
                data.mocap_quat[:] = mocap_quat[i]
            mujoco.mj_kinematics(mj_model, data)
            mujoco.mj_comPos(mj_model, data)
            mujoco.mj_camlight(mj_model, data)
            mujoco.mj_tendon(mj_model, data)
            result[i] = getattr(data, name)

    edges = np.linspace(0, len(qpos), n_threads + 1).astype(int)
    parts = [slice(int(start), int(stop)) for start, stop in pairwise(edges)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(run, parts))
    return result
