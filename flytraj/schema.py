"""What a recording holds: its variables, their dims, dtypes, units and MuJoCo's names for them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import DTypeLike, NDArray

from flytraj.errors import FieldNotFoundError, InvalidArgumentError

__all__ = ["COORDINATES", "Schema", "Variable", "as_number_dtype", "as_numbers", "make_schema"]

COORDINATES = ("time", "sim_time", "episode")
"""Variables every dataset has besides its fields; they become xarray coordinates."""

_COMPONENTS = {3: "xyz", 4: "wxyz", 6: "spatial", 9: "mat", 10: "inertia"}
_STATE_FIELDS = frozenset(
    [
        "time",
        "qpos",
        "qvel",
        "act",
        "history",
        "plastic",
        "qacc_warmstart",
        "plugin_state",
        "ctrl",
        "qfrc_applied",
        "xfrc_applied",
        "eq_active",
        "mocap_pos",
        "mocap_quat",
        "userdata",
    ]
)
_DERIVED_STAGE = (
    "computed by MuJoCo's last forward pass; after mj_step it belongs to the state before that step"
)
_UNITS = {"time": "s", "sim_time": "s", "mocap_pos": "m", "xpos": "m", "site_xpos": "m", "geom_xpos": "m"}
_RESERVED = frozenset({"world", "frame", "model", *COORDINATES})


@dataclass(frozen=True)
class Variable:
    """One array of a recording.

    Attributes:
        name: Its name: MuJoCo's, or the one the user gave a channel.
        dims: Names of the dims after `world` and `frame`.
        shape: Their sizes.
        dtype: What is stored.
        units: SI unit, or empty.
        stage: For derived fields, the state they belong to.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    units: str = ""
    stage: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of one world's row of one frame."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Schema:
    """All variables of a recording that have dims (world, frame, …), `sim_time` and `episode` included.

    Attributes:
        variables: The variables, in the order they are stored.
        channels: Names of those that the user hands over with each frame.
    """

    variables: tuple[Variable, ...]
    channels: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Variable:
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise FieldNotFoundError(f"No variable {name!r}; there are {', '.join(self.names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return tuple(variable.name for variable in self.variables)

    @property
    def fields(self) -> tuple[Variable, ...]:
        """The variables that a source fills: neither coordinates nor channels."""
        return tuple(v for v in self.variables if v.name not in COORDINATES and v.name not in self.channels)

    @property
    def row_bytes(self) -> int:
        """Bytes of one world's row of one frame, all variables together."""
        return sum(variable.row_bytes for variable in self.variables)

    def with_float_dtype(self, dtype: DTypeLike) -> Schema:
        """The same schema with its floating-point fields stored as `dtype`."""
        fields = {variable.name for variable in self.fields}
        return replace(
            self,
            variables=tuple(
                replace(v, dtype=np.dtype(dtype)) if v.name in fields and v.dtype.kind == "f" else v
                for v in self.variables
            ),
        )


def make_schema(
    mj_model: mujoco.MjModel | None,
    *,
    nq: int = 0,
    nmocap: int = 0,
    fields: Iterable[str] = (),
    channels: Mapping[str, tuple[tuple[int, ...], DTypeLike]] | None = None,
    dtype: DTypeLike = np.float64,
) -> Schema:
    """Make the schema of a recording of a model.

    Args:
        mj_model: The model; None where there is none.
        nq: Number of coordinates, without a model.
        nmocap: Number of mocap bodies, without a model.
        fields: MjData fields of fixed size to record besides qpos and the mocap poses, by MuJoCo's name.
        channels: The user's own arrays: name to (shape of one world's value, dtype).
        dtype: Dtype of the floating-point fields.

    Raises:
        FieldNotFoundError: A field is no MjData field of fixed size.
        InvalidArgumentError: A channel's name is taken or malformed, or its shape or dtype is not usable.
    """
    if isinstance(fields, str):
        raise InvalidArgumentError(f"fields must be a sequence of names, found the string {fields!r}.")
    if mj_model is not None:
        nmocap = mj_model.nmocap
    names = ["qpos"] + (["mocap_pos", "mocap_quat"] if nmocap else [])
    names += [name for name in dict.fromkeys(fields) if name not in names]
    variables = [
        Variable("sim_time", (), (), np.dtype(np.float64), "s"),
        Variable("episode", (), (), np.dtype(np.int32)),
    ]
    if mj_model is None:
        variables += [_field_without_model(name, nq, nmocap, np.dtype(dtype)) for name in names]
    else:
        variables += [_field(mj_model, name, np.dtype(dtype)) for name in names]
    for name, (shape, channel_dtype) in (channels or {}).items():
        variables.append(_channel(name, shape, channel_dtype, {v.name for v in variables}))
    return Schema(tuple(variables), tuple(channels or ()))


def _field(mj_model: mujoco.MjModel, name: str, float_dtype: np.dtype[Any]) -> Variable:
    if name in COORDINATES:
        raise FieldNotFoundError(f"{name!r} is always recorded: leave it out of fields.")
    extents = _array_extents().get(name)
    value = getattr(mujoco.MjData(mj_model), name, None) if extents else None
    if extents is None or not isinstance(value, np.ndarray) or value.ndim != len(extents):
        raise FieldNotFoundError(
            f"{name!r} is no MjData field of fixed size. Such fields are qvel, ctrl, act, xpos, sensordata, …; "
            "arrays of your own are channels."
        )
    unsized = [extent for extent in extents if isinstance(extent, str) and not hasattr(mj_model, extent)]
    if unsized:
        raise FieldNotFoundError(
            f"{name!r} changes its size ({unsized[0]}) while simulating: record a channel."
        )
    dims = tuple(
        extent if isinstance(extent, str) else _COMPONENTS.get(extent, f"component_{extent}")
        for extent in extents
    )
    return Variable(
        name,
        dims,
        tuple(value.shape),
        float_dtype if value.dtype.kind == "f" else value.dtype,
        _UNITS.get(name, ""),
        "" if name in _STATE_FIELDS else _DERIVED_STAGE,
    )


def _field_without_model(name: str, nq: int, nmocap: int, float_dtype: np.dtype[Any]) -> Variable:
    shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
        "qpos": (("nq",), (nq,)),
        "mocap_pos": (("nmocap", "xyz"), (nmocap, 3)),
        "mocap_quat": (("nmocap", "wxyz"), (nmocap, 4)),
    }
    if name not in shapes:
        raise FieldNotFoundError(f"{name!r} cannot be stored without a model: give mj_model.")
    dims, shape = shapes[name]
    return Variable(name, dims, shape, float_dtype, _UNITS.get(name, ""))


def _channel(name: str, shape: tuple[int, ...], dtype: DTypeLike, taken: set[str]) -> Variable:
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in _RESERVED or name in taken:
        raise InvalidArgumentError(
            f"A channel cannot be called {name!r}: its name must be an identifier, and not a name in use."
        )
    shape = tuple(np.atleast_1d(shape).tolist())
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise InvalidArgumentError(f"The shape of channel {name!r} must be sizes, found {shape!r}.")
    dims = tuple(f"{name}_{axis}" for axis in range(len(shape)))
    return Variable(name, dims, shape, as_number_dtype(f"Channel {name!r}", dtype))


def as_number_dtype(what: str, dtype: DTypeLike, kinds: str = "fiub") -> np.dtype[Any]:
    """A dtype that can be stored: numbers of some of NumPy's kinds, of up to 8 bytes.

    Raises:
        InvalidArgumentError: It is another.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise InvalidArgumentError(f"{what}: {dtype!r} is no dtype, such as 'float32'.") from None
    if found.kind not in kinds or found.itemsize > 8:
        numbers = "floating-point numbers" if kinds == "f" else "numbers or bools"
        raise InvalidArgumentError(f"{what} must hold {numbers} of at most 8 bytes, not {found}.")
    return found


@cache
def _array_extents() -> dict[str, tuple[str | int, ...]]:
    from mujoco.introspect import structs

    pointers = {"plugin", "plugin_data"}
    extents = {}
    for field in structs.STRUCTS["mjData"].fields:
        extent = getattr(field, "array_extent", None) or getattr(
            getattr(field, "type", None), "extents", None
        )
        if extent and field.name not in pointers:
            extents[field.name] = tuple(extent)
    return extents


def as_numbers(what: str, values: Any) -> NDArray[Any]:
    """An array of numbers, of whatever dtype.

    Raises:
        InvalidArgumentError: It holds something else, or its rows differ in length.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(f"{what} must be an array of numbers: {error}.") from error
    if array.dtype.kind in "OSUcmM":
        raise InvalidArgumentError(f"{what} must be an array of numbers, found {array.dtype}.")
    return array
