"""The page: a server, and the loop that shows what is chosen."""

from __future__ import annotations

import contextlib
import io
import math
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import mujoco
import viser

from flytraj.errors import FlytrajError, InvalidArgumentError
from flytraj.ranges import parse_numbers
from flytraj.viewing.controls import ALL, Controls
from flytraj.viewing.plots import Plots, color, names_to_plot
from flytraj.viewing.scene import WorldsScene, free_bodies
from flytraj.viewing.tracks import Blocks, Track, choose_tracks

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Page"]

_FIRST_PORT = 8080
_TICK = 1 / 30
_READOUT = 0.1
_SHOWN_FIRST = 4
_MOST_WORLDS = 64
_MOST_ROWS = 16
_PANEL_WIDTH = 420


class Page:
    """A page in the browser that shows recorded worlds; served until it is closed.

    Attributes:
        controls: What is chosen, which may also be set from here: `page.controls.frame.value = 40`.
    """

    def __init__(
        self,
        view: xr.Dataset,
        layout: dict[str, Any] | None,
        mj_model: mujoco.MjModel,
        *,
        worlds: Sequence[int] | None = None,
        names: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int | None = None,
    ) -> None:
        """Serve a page; see `flytraj.viewing.open_page`."""
        if not view.sizes["world"] or not view.sizes["frame"]:
            raise InvalidArgumentError("There is nothing to view: the dataset has no frames.")
        first = view["world"].values[:_SHOWN_FIRST].tolist() if worlds is None else list(worlds)
        self._view = view
        self._tracks = _choose(view, first, None)
        self._blocks = Blocks()
        self._interval = float(view.attrs["playback_speed"]) / float(view.attrs["output_fps"])
        self._host, self._server = host, _serve(host, port)
        try:
            self._build(view, layout, mj_model, first, names)
        except BaseException:
            self._stop_server()
            raise
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="flytraj-page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        host = "localhost" if self._host in ("0.0.0.0", "::") else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._server.get_port()}"

    def wait(self) -> None:
        """Wait until the page is closed."""
        while self._thread.is_alive():
            self._thread.join(0.5)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop serving the page."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._stop_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Page at {self.url}>"

    def _build(
        self,
        view: xr.Dataset,
        layout: dict[str, Any] | None,
        mj_model: mujoco.MjModel,
        worlds: Sequence[int],
        names: Sequence[str],
    ) -> None:
        gui = self._server.gui
        gui.set_panel_label(Path(str(view.attrs.get("store", "flytraj"))).name)
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        gui.main_panel.set_width(_PANEL_WIDTH)
        track = self._tracks[0]
        self._scene = WorldsScene(self._server, mj_model, self._blocks.read(track.clip, track.first))
        size, camera = self._scene.size, self._server.initial_camera
        camera.fov = math.radians(mj_model.vis.global_.fovy)
        camera.near, camera.far = size / 50, size * 500
        self._bodies = free_bodies(mj_model)
        known = names_to_plot(view)
        self.controls = Controls(
            gui,
            worlds=_as_text(worlds),
            n_worlds=view.sizes["world"],
            bodies=list(self._bodies),
            spacing=float(f"{1.5 * size:.2g}"),
            speed=float(view.attrs["playback_speed"]),
            names=known,
        )
        self._plots = Plots(self._server, self.controls.plots, view, layout)
        for name in names or [name for name in known if name.endswith("/z")][:1] or known[:1]:
            self._plots.add(name)
        self._chosen = self._wanted()
        self._arranged: tuple[Any, ...] = ()
        self._shown: tuple[Any, ...] = ()
        self._told: int | None = None
        self._place, self._ticked, self._tell_at = 0.0, time.monotonic(), 0.0
        self._wrong = {"choice": "", "frame": ""}
        self._take(self._tracks)

    def _run(self) -> None:
        try:
            while not self._closing.wait(max(0.001, self._ticked + _TICK - time.monotonic())):
                self._tick()
        except BaseException as error:
            self._failure = error
            self.controls.warn(f"The page has stopped: {error!r}")

    def _tick(self) -> None:
        """Show what is chosen, where it differs from what is shown. An error is told once, and the page goes on."""
        now = time.monotonic()
        elapsed, self._ticked = now - self._ticked, now
        with self._telling("choice"):
            self._choose()
        with self._telling("frame"):
            place = self._advance(elapsed)
            self._show(place)
            if now >= self._tell_at:
                self._tell(place)
                self._tell_at = now + _READOUT
        self.controls.warn(self._wrong["choice"] or self._wrong["frame"])

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except (FlytrajError, OSError) as error:
            self._wrong[what] = str(error)

    def _wanted(self) -> tuple[str, str]:
        return self.controls.worlds.value, self.controls.episode.value

    def _choose(self) -> None:
        """Take the worlds and the episode that are chosen now."""
        wanted = self._wanted()
        if wanted == self._chosen:
            return
        (_, before), self._chosen = self._chosen, wanted
        worlds, episode = wanted
        tracks = _choose(
            self._view, parse_numbers(worlds, "Worlds"), None if episode == ALL else int(episode)
        )
        self._wrong["choice"] = ""
        if episode != before:
            self._place = 0.0
        self._take(tracks)

    def _take(self, tracks: list[Track]) -> None:
        """Show these from now on."""
        self._tracks = tracks
        n_frames = max(track.n_frames for track in tracks)
        self.controls.offer(n_frames, sorted({int(number) for track in tracks for number in track.numbers}))
        self._plots.follow(tracks, from_start=self.controls.episode.value != ALL)
        self._scene.label([f"world {track.clip.world_id}" for track in tracks])
        if self._place >= n_frames:
            self._place = 0.0
        self.controls.frame.value = int(self._place)
        self._shown, self._told = (), None

    def _advance(self, elapsed: float) -> int:
        """The place of the slider: where it was put, or where playing has got to."""
        slider, n_frames = self.controls.frame, max(track.n_frames for track in self._tracks)
        if slider.value != int(self._place):
            self._place = float(min(max(0, slider.value), n_frames - 1))
        elif self.controls.is_playing:
            self._place = (self._place + elapsed * self.controls.speed / self._interval) % n_frames
        slider.value = int(self._place)
        return int(self._place)

    def _show(self, place: int) -> None:
        spacing, follow = self.controls.spacing.value, self._bodies.get(self.controls.follow.value)
        arranged = (len(self._tracks), follow)
        if arranged != self._arranged:
            self._arranged = arranged
            self._look(spacing, follow)
        if (place, spacing, follow) == self._shown:
            return
        self._shown = (place, spacing, follow)
        states = [self._blocks.read(track.clip, track.frame(place)) for track in self._tracks]
        self._scene.place(states, spacing, follow)
        self._wrong["frame"] = ""

    def _tell(self, place: int) -> None:
        """Bring the plots and the table of worlds up to date; less often, as they are slower than the worlds."""
        remove, names = self.controls.plots_wanted()
        if remove:
            self._plots.clear()
        for name in names:
            self._plots.add(name)
        if self._told == place and not (remove or names):
            return
        self._told = place
        self._plots.show(place)
        rows = []
        for i, track in enumerate(self._tracks[:_MOST_ROWS]):
            frame = track.frame(place)
            block, at = self._blocks.read(track.clip, frame)
            rows.append((color(i), track.clip.world_id, track.episode(frame), float(block.time[at])))
        self.controls.tell(rows, n_more=len(self._tracks) - len(rows))

    def _look(self, spacing: float, follow: int | None) -> None:
        """Point all cameras at the worlds, and those of pages that will be opened."""
        position, target = self._scene.look(len(self._tracks), spacing, follow)
        cameras = [self._server.initial_camera, *(c.camera for c in self._server.get_clients().values())]
        for camera in cameras:
            camera.position = position
            camera.look_at = target

    def _stop_server(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.stop()


def _choose(view: xr.Dataset, worlds: Sequence[int], episode: int | None) -> list[Track]:
    if not 1 <= len(worlds) <= _MOST_WORLDS:
        raise InvalidArgumentError(f"Choose 1 to {_MOST_WORLDS} worlds to show, not {len(worlds):,}.")
    return choose_tracks(view, worlds, episode)


def _as_text(worlds: Sequence[int]) -> str:
    """Worlds as they are typed: `0-3` or `3,7`."""
    if len(worlds) > 1 and list(worlds) == list(range(worlds[0], worlds[0] + len(worlds))):
        return f"{worlds[0]}-{worlds[-1]}"
    return ",".join(map(str, worlds))


def _serve(host: str, port: int | None) -> Any:
    """Start a server; `viser` itself would look for another port, or wait for ever for an address it cannot have.

    Raises:
        InvalidArgumentError: Nothing can be served there.
    """
    candidates = [port] if port is not None else [*range(_FIRST_PORT, _FIRST_PORT + 20), 0]
    for candidate in candidates:
        try:
            with socket.create_server((host, candidate), family=_family(host)) as free:
                found = free.getsockname()[1]
            break
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    else:
        where = f"{host}:{port}" if port is not None else host
        raise InvalidArgumentError(
            f"No page can be served at {where}: {reason}. Choose another host or port."
        )
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host, found, verbose=False)
    # A message from the page could else open a tunnel to it from the internet.
    server.request_share_url = lambda verbose=True: None
    return server


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
