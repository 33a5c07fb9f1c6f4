"""The worlds in 3D: a handle on the page for each shape, with one instance for each world."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mjviser.conversions import group_geoms_by_visual_compat, merge_geoms, merge_sites
from numpy.typing import NDArray

from flytraj.rendering.scene import FreeCamera, set_frame
from flytraj.trajectory import RecordedTrajectory

__all__ = ["WorldsScene", "free_bodies"]

Floats = NDArray[np.float64]

_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1], np.float32)
_N_GROUPS = 3
"""Geoms and sites of the first groups are shown, as in MuJoCo's default options."""
_LINE = (170, 174, 180)
_PLATE = (236, 238, 241)
_TILES = 3
"""About how many tiles of the floor a model covers."""
_PULLEY = -2


@dataclass
class _Part:
    """A shape that belongs to a body.

    Attributes:
        handle: On the page, with an instance for each world.
        body: Number of the body.
    """

    handle: Any
    body: int


class WorldsScene:
    """Some worlds side by side.

    Args:
        server: The `viser.ViserServer`.
        mj_model: The model; it is not changed.
        state: Frames of a world, and one of them, whose size everything is fitted to.

    Attributes:
        size: Longest side of a box around what moves, in metres.
    """

    def __init__(self, server: Any, mj_model: mujoco.MjModel, state: tuple[RecordedTrajectory, int]) -> None:
        self._server = server
        self._model = _with_own_colors(mj_model)
        self._data = mujoco.MjData(self._model)
        set_frame(self._model, self._data, *state)
        self._center, self.size = _bounds(self._model, self._data)
        self._labels: list[Any] = []
        self._columns = 1
        server.scene.configure_environment_map(environment_intensity=0.8)
        self._floor = _floor_height(self._model)
        self._parts = list(self._add_parts())
        self._add_floor()
        self._tendons = server.scene.add_line_segments(
            "/tendons",
            np.zeros((0, 2, 3)),
            np.zeros((0, 2, 3), np.uint8),
            thickness=3,
            thickness_units="screen",
        )

    def label(self, names: Sequence[str]) -> None:
        """Show as many worlds as there are names from now on, each with its name."""
        self._columns = math.ceil(math.sqrt(len(names)))
        for i in range(len(self._labels), len(names)):
            self._labels.append(self._server.scene.add_label(f"/labels/{i}", "", anchor="bottom-left"))
        for label, name in zip(self._labels, names, strict=False):
            label.text = name

    def place(
        self, states: Sequence[tuple[RecordedTrajectory, int]], spacing: float, follow: int | None
    ) -> None:
        """Show a frame of each world.

        Args:
            states: For each world frames, and the one of them to show.
            spacing: Distance between neighbours in metres.
            follow: Number of the body that stays in the middle of its world's place, or None.
        """
        xpos = np.empty((len(states), self._model.nbody, 3))
        xquat = np.empty((len(states), self._model.nbody, 4))
        segments = []
        for i, (trajectory, frame) in enumerate(states):
            set_frame(self._model, self._data, trajectory, frame)
            xpos[i], xquat[i] = self._data.xpos, self._data.xquat
            segments.append(_tendon_segments(self._model, self._data))
        cells = self._cells(len(states), spacing)
        middle = np.zeros((len(states), 3))
        if follow is not None:
            middle[:, :2] = xpos[:, follow, :2]
        xpos += (cells - middle)[:, np.newaxis]
        with self._server.atomic():
            for part in self._parts:
                part.handle.batched_positions = xpos[:, part.body]
                part.handle.batched_wxyzs = xquat[:, part.body]
            self._place_tendons(segments, cells - middle)
            self._place_floor(cells, middle, spacing, follows=follow is not None)
            for i, label in enumerate(self._labels):
                label.visible = i < len(cells) and spacing > 0
                if label.visible:
                    label.position = cells[i] + (-0.47 * spacing, -0.47 * spacing, self._floor or 0)

    def look(self, n_worlds: int, spacing: float, follow: int | None) -> tuple[Floats, Floats]:
        """Where the camera is to be, and the point it is to look at, to see all worlds from where the model says."""
        _, axes = FreeCamera().complete(self._model).place()
        target = self._center if follow is None else np.array([0, 0, self._center[2]])
        rows = math.ceil(n_worlds / self._columns)
        half = self.size + 0.65 * spacing * (max(self._columns, rows) - 1)
        distance = 1.1 * half / math.tan(math.radians(self._model.vis.global_.fovy) / 2)
        return target + distance * axes[:, 2], target

    def _cells(self, n_worlds: int, spacing: float) -> Floats:
        """`(n_worlds, 3)` middles of the worlds' places: by rows, as one reads."""
        row, column = np.divmod(np.arange(n_worlds), self._columns)
        x, y = column - column.max() / 2, row.max() / 2 - row
        return np.stack([x, y, np.zeros(n_worlds)], axis=1) * spacing

    def _add_parts(self) -> Iterator[_Part]:
        model, scene = self._model, self._server.scene
        at = {
            "batched_wxyzs": np.array([[1.0, 0, 0, 0]]),
            "batched_positions": np.zeros((1, 3)),
            "lod": "off",
        }
        shown = (model.geom_group < _N_GROUPS) & (model.geom_rgba[:, 3] > 0) & ~_floors(model)
        for body in range(model.nbody):
            geoms = np.flatnonzero(shown & (model.geom_bodyid == body))
            opaque = geoms[model.geom_rgba[geoms, 3] >= 1].tolist()
            for i, group in enumerate(group_geoms_by_visual_compat(model, opaque)):
                mesh = merge_geoms(model, group)
                yield _Part(scene.add_batched_meshes_trimesh(f"/bodies/{body}/opaque{i}", mesh, **at), body)
            for geom in (geom for geom in geoms.tolist() if model.geom_rgba[geom, 3] < 1):
                mesh, rgba = merge_geoms(model, [geom]), model.geom_rgba[geom]
                handle = scene.add_batched_meshes_simple(
                    f"/bodies/{body}/geom{geom}",
                    mesh.vertices,
                    mesh.faces,
                    batched_colors=tuple(_bytes(rgba[:3]).tolist()),
                    opacity=float(rgba[3]),
                    cast_shadow=False,
                    **at,
                )
                yield _Part(handle, body)
            sites = np.flatnonzero((model.site_bodyid == body) & (model.site_group < _N_GROUPS)).tolist()
            if sites:
                mesh = merge_sites(model, sites)
                yield _Part(scene.add_batched_meshes_trimesh(f"/bodies/{body}/sites", mesh, **at), body)

    def _add_floor(self) -> None:
        """An endless grid, and for worlds that each follow a body a plate of their own with lines that pass."""
        step = 10.0 ** math.floor(math.log10(self.size / _TILES))
        self._tile = step * min((1, 2, 5, 10), key=lambda times: abs(times * step - self.size / _TILES))
        scene = self._server.scene
        self._grid = scene.add_grid(
            "/floor/grid",
            infinite_grid=True,
            cell_size=self._tile,
            section_size=5 * self._tile,
            fade_distance=40 * self.size,
            plane_opacity=0.4,
            shadow_opacity=0.2,
            visible=False,
        )
        corners = np.array([[-0.5, -0.5, 0], [0.5, -0.5, 0], [0.5, 0.5, 0], [-0.5, 0.5, 0]])
        self._plates = scene.add_batched_meshes_simple(
            "/floor/plates",
            corners,
            np.array([[0, 1, 2], [0, 2, 3]]),
            batched_wxyzs=np.array([[1.0, 0, 0, 0]]),
            batched_positions=np.zeros((1, 3)),
            batched_scales=np.ones(1),
            batched_colors=_PLATE,
            side="double",
            lod="off",
            cast_shadow=False,
            visible=False,
        )
        self._lines = scene.add_line_segments(
            "/floor/lines", np.zeros((0, 2, 3)), _LINE, thickness=1, thickness_units="screen", visible=False
        )

    def _place_floor(self, cells: Floats, middle: Floats, spacing: float, *, follows: bool) -> None:
        if self._floor is None:
            return
        apart = follows and len(cells) > 1 and spacing > 0
        self._grid.visible = not apart
        self._plates.visible = apart
        self._lines.visible = apart
        height = np.array([0, 0, self._floor])
        if not apart:
            self._grid.position = cells[0] - middle[0] + height
            return
        size = 0.94 * spacing
        below = height - (0, 0, 0.004 * self.size)
        self._plates.batched_scales = np.full(len(cells), size)
        self._plates.batched_wxyzs = np.tile([1.0, 0, 0, 0], (len(cells), 1))
        self._plates.batched_positions = cells + below
        segments = [
            cell + height + _lines(at, size / 2, self._tile) for cell, at in zip(cells, middle, strict=True)
        ]
        self._lines.points = np.concatenate(segments)

    def _place_tendons(self, segments: Sequence[tuple[Floats, NDArray[np.uint8]]], shifts: Floats) -> None:
        if not self._model.ntendon:
            return
        points = [points + shift for (points, _), shift in zip(segments, shifts, strict=True)]
        self._tendons.points = np.concatenate(points)
        self._tendons.colors = np.concatenate([colors for _, colors in segments])


def free_bodies(mj_model: mujoco.MjModel) -> dict[str, int]:
    """Names of the bodies that can go anywhere, each with its number."""
    free = np.flatnonzero(mj_model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    bodies = mj_model.jnt_bodyid[free].tolist()
    return {mj_model.body(body).name or f"body {body}": body for body in bodies}


def _with_own_colors(mj_model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy in which what has no texture has the colour it is rendered in as its own."""
    model = copy.copy(mj_model)
    for kind in ("geom", "site", "tendon"):
        rgba, material = getattr(model, f"{kind}_rgba"), getattr(model, f"{kind}_matid")
        takes = (material >= 0) & (rgba == _DEFAULT_RGBA).all(axis=1)
        rgba[takes] = model.mat_rgba[material[takes]]
    has_texture = (model.mat_texid >= 0).any(axis=1)
    for geom in np.flatnonzero(model.geom_matid >= 0).tolist():
        if not has_texture[model.geom_matid[geom]]:
            model.geom_matid[geom] = -1
    model.geom_type[model.geom_type == mujoco.mjtGeom.mjGEOM_SDF] = mujoco.mjtGeom.mjGEOM_MESH
    return model


def _floors(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """Which geoms are level planes that do not move."""
    up = np.abs(model.geom_quat[:, 1:3]).max(axis=1, initial=0) < 1e-6
    is_floor = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_bodyid == 0) & up
    return np.asarray(is_floor, bool)


def _floor_height(model: mujoco.MjModel) -> float | None:
    """Height of the first floor; None without any."""
    floors = np.flatnonzero(_floors(model) & (model.geom_group < _N_GROUPS))
    return float(model.geom_pos[floors[0], 2]) if len(floors) else None


def _bounds(model: mujoco.MjModel, data: mujoco.MjData) -> tuple[Floats, float]:
    """Middle and longest side of a box around the geoms that move; around all where none moves of itself."""
    bounded = model.geom_rbound > 0
    moving = bounded & (model.body_weldid[model.geom_bodyid] != 0)
    moving &= model.body_mocapid[model.body_rootid[model.geom_bodyid]] < 0
    geoms = moving if moving.any() else bounded
    if not geoms.any():
        return np.zeros(3), float(model.stat.extent)
    radius = model.geom_rbound[geoms, np.newaxis]
    low = (data.geom_xpos[geoms] - radius).min(axis=0)
    high = (data.geom_xpos[geoms] + radius).max(axis=0)
    return (low + high) / 2, float((high - low).max())


def _tendon_segments(model: mujoco.MjModel, data: mujoco.MjData) -> tuple[Floats, NDArray[np.uint8]]:
    """`(n, 2, 3)` ends of the straight pieces of all spatial tendons, and the colours of these ends."""
    points, wraps = data.wrap_xpos.reshape(-1, 3), data.wrap_obj.reshape(-1)
    pieces, colors = [np.zeros((0, 2, 3))], [np.zeros((0, 2, 3), np.uint8)]
    for tendon in range(model.ntendon):
        first = int(data.ten_wrapadr[tendon])
        ends = np.arange(first, first + max(1, int(data.ten_wrapnum[tendon])) - 1)
        ends = ends[(wraps[ends] != _PULLEY) & (wraps[ends + 1] != _PULLEY)]
        pieces.append(np.stack([points[ends], points[ends + 1]], axis=1))
        colors.append(np.broadcast_to(_bytes(model.tendon_rgba[tendon, :3]), (len(ends), 2, 3)))
    return np.concatenate(pieces), np.concatenate(colors)


def _lines(middle: Floats, half: float, tile: float) -> Floats:
    """`(n, 2, 3)` lines of a tiled floor, around a point of it, cut to a square around the origin."""
    lines = []
    for axis in (0, 1):
        first, last = np.ceil((middle[axis] - half) / tile), np.floor((middle[axis] + half) / tile)
        at = np.arange(first, last + 1) * tile - middle[axis]
        line = np.zeros((len(at), 2, 3))
        line[:, :, axis] = at[:, np.newaxis]
        line[:, :, 1 - axis] = (-half, half)
        lines.append(line)
    return np.concatenate(lines)


def _bytes(rgb: NDArray[Any]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(rgb, 0, 1) * 255, np.uint8)
