"""Rendering a view with the model it carries, to be looked at in a notebook."""

from __future__ import annotations

import base64
import html
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flytraj.rendering.scene import Camera, FreeCamera
from flytraj.rendering.videos import render_videos

__all__ = ["RenderedVideos", "render_view"]

_MOST_EMBEDDED = 32 << 20


@dataclass(frozen=True)
class RenderedVideos:
    """Videos on disk, which a notebook shows.

    Attributes:
        paths: The files.
    """

    paths: list[Path]

    def _repr_html_(self) -> str:
        left = _MOST_EMBEDDED
        parts = []
        for path in self.paths:
            name = html.escape(str(path))
            left -= path.stat().st_size
            if left < 0:
                parts.append(f"<p>{name} is not shown: it is too large for a notebook.</p>")
                continue
            data = base64.b64encode(path.read_bytes()).decode()
            source = f"data:video/mp4;base64,{data}"
            parts.append(
                f'<figure><video controls loop muted style="max-width: 100%" src="{source}"></video>'
                f"<figcaption>{name}</figcaption></figure>"
            )
        return "\n".join(parts)


def render_view(
    view: Any,
    cameras: Camera | Iterable[Camera] | None = None,
    output_path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> RenderedVideos:
    """Render a view with the model embedded in its dataset.

    Args:
        view: A view of a dataset.
        cameras: Cameras to render; None takes the model's first, or a `FreeCamera` if it has none.
        output_path: Output file or folder; None makes a folder for temporary files.
        **options: As for `render_videos`. Several worlds go into one grid unless `grid` is given.

    Returns:
        The videos; a notebook shows them.

    Raises:
        FlytrajError: As from `render_videos`, or the dataset embeds no model.
    """
    mj_model = view.traj.model()
    if cameras is None:
        cameras = 0 if mj_model.ncam else FreeCamera()
    if len(view.traj.clips()) > 1:
        options.setdefault("grid", "auto")
    folder = Path(tempfile.mkdtemp(prefix="flytraj-")) if output_path is None else output_path
    return RenderedVideos(render_videos(mj_model, view, cameras, folder, **options))
