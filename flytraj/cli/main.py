"""The `flytraj` command."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flytraj.cli import looking, making, mending, moving
from flytraj.cli.exits import EXIT_CODES, INTERRUPTED, exit_code, sentence
from flytraj.errors import RenderError

__all__ = ["app", "main", "run"]

_CODES = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="flytraj",
    help="Record, look at, render and mend trajectories of thousands of parallel MuJoCo worlds.",
    epilog=f"Example: flytraj demo\n\nExit codes: {_CODES}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _module in (making, looking, moving, mending):
    _module.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from flytraj import __version__

        typer.echo(f"flytraj {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Options of the whole command; `run` takes `--debug` wherever it stands."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line.

    Args:
        arguments: What follows `flytraj`.

    Returns:
        The exit code, one of `EXIT_CODES`.
    """
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(args=[word for word in arguments if word != "--debug"], prog_name="flytraj")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except Exception as error:
        if debug:
            raise
        if _was_interrupted(error):
            print("Stopped.", file=sys.stderr)
            return INTERRUPTED
        if "mujoco" not in sys.modules and "MUJOCO_GL" in os.environ:
            error = RenderError(
                f"MuJoCo cannot be imported with MUJOCO_GL={os.environ['MUJOCO_GL']} ({error}): unset "
                "it, or set it to egl or glfw."
            )
        print(f"flytraj: {sentence(error)}", file=sys.stderr)
        return exit_code(error)
    return 0


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: some packages turn it into an ImportError while they are loaded."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"flytraj: {message}", file=sys.stderr)


class _Once(logging.Filter):
    """Lets each message pass once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        is_new = record.getMessage() not in self._seen
        self._seen.add(record.getMessage())
        return is_new


def main() -> None:
    """Run the command line and end the process with its exit code."""
    handler = logging.StreamHandler()
    handler.addFilter(_Once())
    logging.basicConfig(format="%(message)s", handlers=[handler])
    logging.getLogger("flytraj").setLevel(logging.INFO)
    sys.exit(run(sys.argv[1:]))
