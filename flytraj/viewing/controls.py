"""What the page lets people choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import viser

__all__ = ["ALL", "NOTHING", "Controls"]

ALL = "all"
NOTHING = "nothing"
_SPEEDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST_EPISODES = 1000
_TABLE = """<div style="font-size:0.8em;padding:0 1em 0.5em 1em">
<table style="width:100%;text-align:right;font-variant-numeric:tabular-nums">
<tr style="opacity:0.6"><td></td><td>world</td><td>episode</td><td>time (s)</td></tr>{body}</table>{more}</div>"""
_ADD, _REMOVE = "Add plot", "Remove plots"


class Controls:
    """The panel beside the worlds. All that is chosen is read from it; nothing calls back.

    Args:
        gui: The `viser.GuiApi`.
        worlds: Text that stands for the worlds to begin with.
        n_worlds: Number of worlds there are.
        bodies: Names of the bodies that can be followed.
        spacing: Distance between worlds to begin with, in metres.
        speed: Speed to begin with.
        names: Names of the coordinates that can be plotted.

    Attributes:
        is_playing: Whether time goes on; see `play`.
        notice: What is told to be wrong.
        rows: What the table of worlds shows: colour, id, number of the episode, simulation time in seconds.
    """

    def __init__(
        self,
        gui: Any,
        *,
        worlds: str,
        n_worlds: int,
        bodies: Sequence[str],
        spacing: float,
        speed: float,
        names: Sequence[str],
    ) -> None:
        self.is_playing = False
        self.notice = ""
        self.rows: list[tuple[str, int, int, float]] = []
        self._names_wanted: list[str] = []
        self._plots_unwanted = False
        self._notice = gui.add_html("", visible=False)
        with gui.add_folder(f"Worlds ({n_worlds:,} recorded)"):
            self.worlds = gui.add_text("Worlds", worlds, hint="Ids and ranges of worlds, such as 3,7,40-47.")
            self.episode = gui.add_dropdown(
                "Episode",
                [ALL],
                hint="One episode of each world, all from its start; or all that was recorded.",
            )
            self.follow = gui.add_dropdown(
                "Follow",
                [NOTHING, *bodies],
                initial_value=bodies[0] if bodies else NOTHING,
                visible=bool(bodies),
                hint="A body that stays in the middle of its world's place.",
            )
            self.spacing = gui.add_slider(
                "Spacing",
                0.0,
                4 * spacing,
                spacing / 20,
                spacing,
                hint="Metres between worlds; 0 lays them together.",
            )
        with gui.add_folder("Time"):
            self._play = gui.add_button("Play", icon=viser.Icon.PLAYER_PLAY)
            self.frame = gui.add_slider("Frame", 0, 0, 1, 0)
            speeds = sorted({*_SPEEDS, speed})
            self._speed = gui.add_dropdown(
                "Speed",
                [f"{each:g}x" for each in speeds],
                initial_value=f"{speed:g}x",
                hint="Relative to the simulated time.",
            )
            self._readout = gui.add_html("")
        self.plots = gui.add_folder("Plots")
        with self.plots:
            self._name = gui.add_dropdown("Coordinate", names, visible=bool(names))
            buttons = gui.add_button_group("", [_ADD, _REMOVE], visible=bool(names))
        self._play.on_click(lambda _: self.play(not self.is_playing))
        buttons.on_click(lambda event: self._change_plots(event.target.value))
        gui.add_command("Play or pause", hotkey="P").on_trigger(lambda _: self.play(not self.is_playing))

    @property
    def speed(self) -> float:
        """Simulated seconds a second."""
        return float(self._speed.value[:-1])

    def plots_wanted(self) -> tuple[bool, list[str]]:
        """Whether all plots are to go, and names of new ones, since this was last asked."""
        remove, self._plots_unwanted = self._plots_unwanted, False
        names, self._names_wanted = self._names_wanted, []
        return remove, names

    def offer(self, n_frames: int, episodes: Sequence[int]) -> None:
        """Offer other frames and episodes."""
        options = (ALL, *map(str, episodes[:_MOST_EPISODES]))
        if options != tuple(self.episode.options):
            self.episode.options = options
        self.frame.max = max(0, n_frames - 1)

    def tell(self, rows: Sequence[tuple[str, int, int, float]], *, n_more: int = 0) -> None:
        """Show a table of what is shown.

        Args:
            rows: For each world its colour, its id, the number of the episode, and the simulation time.
            n_more: Number of worlds that are not in the table.
        """
        self.rows = list(rows)
        body = "".join(
            f'<tr><td style="color:{color}">&#9632;</td><td>{world}</td><td>{episode}</td><td>{time:.3f}</td></tr>'
            for color, world, episode, time in rows
        )
        more = f"<div>and {n_more} more</div>" if n_more else ""
        self._readout.content = _TABLE.format(body=body, more=more)

    def warn(self, text: str) -> None:
        """Show what is wrong; nothing if it is empty."""
        self.notice = text
        self._notice.visible = bool(text)
        self._notice.content = f'<div style="color:#c92a2a;padding:0.3em 0.8em">{_escaped(text)}</div>'

    def play(self, on: bool) -> None:
        """Let time go on, or stop it."""
        self.is_playing = on
        self._play.label = "Pause" if self.is_playing else "Play"
        self._play.icon = viser.Icon.PLAYER_PAUSE if self.is_playing else viser.Icon.PLAYER_PLAY

    def _change_plots(self, button: str) -> None:
        if button == _ADD:
            self._names_wanted.append(self._name.value)
        else:
            self._plots_unwanted = True


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
