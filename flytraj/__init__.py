"""flytraj: a columnar dataset store for trajectories of thousands of parallel MuJoCo worlds."""

from flytraj import errors as errors
from flytraj.clock import FrameClock as FrameClock
from flytraj.trajectory import (
    RecordedTrajectory as RecordedTrajectory,
)
from flytraj.trajectory import (
    as_trajectory_list as as_trajectory_list,
)
from flytraj.trajectory import (
    check_trajectories_match_model as check_trajectories_match_model,
)

__version__ = "0.1.0"
