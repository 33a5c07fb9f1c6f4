"""The command line: `flytraj demo`, `info`, `render` and the rest."""

from __future__ import annotations

from flytraj.cli.main import main as main
from flytraj.cli.main import run as run
