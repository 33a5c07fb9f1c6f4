"""A world full of flies: the model, the gait and the run behind `flytraj demo`."""

from __future__ import annotations

from flytraj.demo.fly import fly_spec as fly_spec
from flytraj.demo.worlds import FlyWorlds as FlyWorlds
