"""One MjData a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from flytraj.errors import InvalidArgumentError
from flytraj.schema import Schema

__all__ = ["MjDataSource"]


class MjDataSource:
    """Reads a single `mujoco.MjData`, or a sequence of them."""

    def __init__(
        self,
        data: Sequence[mujoco.MjData],
        mj_model: mujoco.MjModel,
        schema: Schema,
        worlds: NDArray[np.int64] | None,
        n_worlds: int,
    ) -> None:
        if len(data) != n_worlds:
            raise InvalidArgumentError(
                f"The recorder was made for {n_worlds} worlds, found {len(data)} MjData."
            )
        for world, one in enumerate(data):
            if one.qpos.shape[0] != mj_model.nq or one.mocap_pos.shape[0] != mj_model.nmocap:
                raise InvalidArgumentError(
                    f"The MjData of world {world} has nq={one.qpos.shape[0]} and nmocap={one.mocap_pos.shape[0]}; "
                    f"the recorder's model has nq={mj_model.nq} and nmocap={mj_model.nmocap}."
                )
        self._worlds = list(range(n_worlds)) if worlds is None else worlds.tolist()
        self._n_worlds = n_worlds
        self._fields = [variable.name for variable in schema.fields]
        self._times = np.empty(len(self._worlds))

    def accepts(self, data: object) -> bool:
        if isinstance(data, mujoco.MjData):
            return self._n_worlds == 1
        return isinstance(data, Sequence) and len(data) == self._n_worlds

    def times(self, data: mujoco.MjData | Sequence[mujoco.MjData]) -> NDArray[np.float64]:
        worlds = self._as_list(data)
        for i, world in enumerate(self._worlds):
            self._times[i] = worlds[world].time
        return self._times

    def fill(self, data: mujoco.MjData | Sequence[mujoco.MjData], frame: Mapping[str, NDArray[Any]]) -> None:
        worlds = self._as_list(data)
        for name in self._fields:
            rows = frame[name]
            for i, world in enumerate(self._worlds):
                rows[i] = getattr(worlds[world], name)

    @staticmethod
    def _as_list(data: mujoco.MjData | Sequence[mujoco.MjData]) -> Sequence[mujoco.MjData]:
        return [data] if isinstance(data, mujoco.MjData) else data
