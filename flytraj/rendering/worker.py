"""A process that renders for another one; see `flytraj.rendering.pool`.

It is started afresh, so that it has an OpenGL context and an interpreter of its own, and told everything through
one socket: first the model and what to render, then states, for which it sends frames back.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import mujoco

from flytraj.rendering.backend import Choice
from flytraj.rendering.frames import make_renderer
from flytraj.rendering.scene import FreeCamera
from flytraj.rendering.settings import Settings
from flytraj.trajectory import RecordedTrajectory

__all__ = ["Setup", "main"]


@dataclass(frozen=True)
class Setup:
    """What a worker has to know before it can render.

    Attributes:
        mj_model: The model.
        cameras: From `resolve_cameras`.
        settings: What to render, and how.
        choice: The backend.
    """

    mj_model: mujoco.MjModel
    cameras: dict[str, int | FreeCamera]
    settings: Settings
    choice: Choice


def main(fd: int) -> None:
    """Render until the other end of the socket is closed.

    Each answer is an error's text, or "" followed by the frames of each camera.

    Args:
        fd: File descriptor of the socket.
    """
    connection: Connection[Any, Any] = Connection(fd)
    jobs: queue.SimpleQueue[RecordedTrajectory] = queue.SimpleQueue()
    setup: Setup = connection.recv()
    try:
        renderer = make_renderer(setup.mj_model, setup.cameras, setup.settings, setup.choice)
    except Exception as error:
        connection.send(str(error))
        return
    connection.send("")
    # Jobs are taken off the socket as they come: if both ends waited to send, neither would receive.
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    while True:
        states = jobs.get()
        try:
            frames = renderer.start(states)()
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")
            continue
        connection.send("")
        for pixels in frames:
            connection.send_bytes(pixels.data.cast("B"))


def _receive(connection: Connection[Any, Any], jobs: queue.SimpleQueue[RecordedTrajectory]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            jobs.put(connection.recv())
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
