"""The page in the browser: recorded worlds in 3D, with a time slider and plots. On viser and mjviser (extra `view`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flytraj.errors import MissingDependencyError

if TYPE_CHECKING:
    import mujoco
    import xarray as xr

    from flytraj.viewing.page import Page

__all__ = ["open_page"]


def open_page(
    view: xr.Dataset,
    layout: dict[str, Any] | None,
    mj_model: mujoco.MjModel,
    *,
    worlds: Sequence[int] | None = None,
    names: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Page:
    """Show the worlds of a view in 3D on a page in the browser (extra `view`), with a time slider and plots.

    Frames are read as they are shown, so the dataset may be larger than memory. The page is served until
    `page.close()`, or the end of a with-statement; `page.url` is where, and `page.wait()` waits for its end.

    Args:
        view: The view, with dims (world, frame, …).
        layout: The kinematic layout of its model, which says what joints are; None if there is none.
        mj_model: The model to show.
        worlds: Ids of the worlds to begin with; None takes the first four.
        names: Coordinates to plot to begin with, named as in `ds.traj.plot`; none takes a height if there is one.
        host: Address to listen at; the default can be reached from this machine only.
        port: Port to listen at; None takes 8080, or the next one that is free.

    Raises:
        FieldNotFoundError: There is no such world or coordinate.
        InvalidArgumentError: There are no frames, or the page cannot be served there.
        MissingDependencyError: viser or mjviser is not installed.
        ModelMismatchError: The model is not the dataset's.
    """
    view.traj.check_model(mj_model)
    try:
        from flytraj.viewing.page import Page
    except ModuleNotFoundError as error:
        if error.name not in ("viser", "mjviser"):
            raise
        raise MissingDependencyError(
            f"The page needs {error.name}, which is not installed: pip install 'flytraj[view]'."
        ) from error
    return Page(view, layout, mj_model, worlds=worlds, names=names, host=host, port=port)
