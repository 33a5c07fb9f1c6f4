"""flytraj's recorders on flygym's simulations.

`set_trajectory_recorder(sim, store="run.zarr")` stands in for `sim.set_trajectory_recorder()`. What it records is
a trajectory to flygym's functions as to those here, and `sim.record_as_needed()` and `sim.reset()` work as before.
"""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import mujoco

from flytraj import recording, trajectory
from flytraj.errors import MissingDependencyError

if TYPE_CHECKING:
    from flytraj.warp import WarpTrajectoryRecorder

try:
    from flygym import recording as flygym_recording
except ModuleNotFoundError as error:
    if error.name != "flygym":
        raise
    raise MissingDependencyError(
        "flytraj.flygym needs flygym, which is not installed: pip install 'flygym[warp]' (on Python 3.12 or newer)"
    ) from error

__all__ = ["RecordedTrajectory", "TrajectoryRecorder", "set_trajectory_recorder"]


class RecordedTrajectory(trajectory.RecordedTrajectory, flygym_recording.RecordedTrajectory):  # type: ignore[misc]
    """A trajectory of both kinds: flygym takes one that is alone, not in a list, only if it is of its own class."""

    # flygym's compares arrays as if they were numbers.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class TrajectoryRecorder(recording.TrajectoryRecorder):
    """`flytraj.TrajectoryRecorder`, with trajectories of both kinds."""

    @property
    def trajectory(self) -> RecordedTrajectory:
        """See `flytraj.TrajectoryRecorder.trajectory`."""
        return _of_both_kinds(super().trajectory)


def set_trajectory_recorder(
    sim: Any, store: Any = None, **options: Any
) -> TrajectoryRecorder | WarpTrajectoryRecorder:
    """Let a flygym simulation record with flytraj, as `sim.recorder`.

    With a store, the world's XML and meshes are stored too, so that the dataset can be rendered where there is no
    flygym. `sim.reset()` then begins a new episode and keeps the earlier ones.

    Args:
        sim: A `flygym.Simulation` or `flygym.warp.GPUSimulation`.
        store: Path or Zarr store of the dataset; None keeps the recording in memory.
        **options: What `flytraj.TrajectoryRecorder` takes, or for a `GPUSimulation` what
            `flytraj.warp.WarpTrajectoryRecorder` does. With `sampling="interval"` frames are due when flygym's
            recorder has them due, see `flytraj.FrameClock`.

    Returns:
        The recorder. Close it, or use it in a `with` statement, to have everything in the store.

    Raises:
        InvalidArgumentError: An option cannot be used.
        DatasetExistsError: There is something at `store` already, and `mode` is `"w-"`.
    """
    if store is not None and options.get("embed_model", True):
        options = {"spec": _current_spec(sim), **options}
    recorder: TrajectoryRecorder | WarpTrajectoryRecorder
    if hasattr(sim, "mjw_data"):
        options = {"device": sim.mjw_data.qpos.device.alias, **options}
        recorder = _warp_recorder()(sim.mj_model, sim.n_worlds, store=store, **options)
    else:
        recorder = TrajectoryRecorder(sim.mj_model, store=store, **options)
    sim.recorder = recorder
    return recorder


@functools.cache
def _warp_recorder() -> type[WarpTrajectoryRecorder]:
    """The recorder of a `GPUSimulation`. Warp takes seconds to load, and a `Simulation` can do without."""
    from flytraj.warp.recorder import WarpTrajectoryRecorder

    class Recorder(WarpTrajectoryRecorder):
        """`flytraj.warp.WarpTrajectoryRecorder`, with trajectories of both kinds."""

        @property
        def trajectories(self) -> list[trajectory.RecordedTrajectory]:
            """See `flytraj.warp.WarpTrajectoryRecorder.trajectories`."""
            return [_of_both_kinds(one) for one in super().trajectories]

    return Recorder


def _current_spec(sim: Any) -> mujoco.MjSpec:
    """The world's spec with what the simulation has changed in the compiled model.

    It is a copy because compiling fuses bodies of the spec itself, which flygym still uses.
    """
    spec: mujoco.MjSpec = sim.world.mjcf_root.copy()
    for name in ("timestep", "tolerance"):
        setattr(spec.option, name, getattr(sim.mj_model.opt, name))
    return spec


def _of_both_kinds(one: trajectory.RecordedTrajectory) -> RecordedTrajectory:
    return RecordedTrajectory(**{field.name: getattr(one, field.name) for field in fields(one)})
