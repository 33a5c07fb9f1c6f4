"""Recorders stream the state of simulated worlds into a dataset, or keep it in memory."""

from flytraj.recording.recorders import BatchTrajectoryRecorder as BatchTrajectoryRecorder
from flytraj.recording.recorders import TrajectoryRecorder as TrajectoryRecorder
