"""What ties a recording to a model: the names of its parts, its fingerprint, and the model itself as bytes."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import mujoco
import numpy as np

from flytraj.errors import FormatError, InvalidArgumentError, ModelMismatchError

__all__ = [
    "check_fingerprint",
    "dim_labels",
    "fingerprint",
    "kinematic_layout",
    "load_model",
    "pack_model",
    "pack_spec",
]

_FREE_Q = ("x", "y", "z", "qw", "qx", "qy", "qz")
_FREE_V = ("vx", "vy", "vz", "wx", "wy", "wz")
_BALL_Q = ("qw", "qx", "qy", "qz")
_BALL_V = ("wx", "wy", "wz")
_MAX_ASSET_BYTES = 2**30
_LOST_DIGITS = "lost_digits.json"
_JOINT = mujoco.mjtJoint

_NAMED_DIMS = {
    "nbody": mujoco.mjtObj.mjOBJ_BODY,
    "njnt": mujoco.mjtObj.mjOBJ_JOINT,
    "ngeom": mujoco.mjtObj.mjOBJ_GEOM,
    "nsite": mujoco.mjtObj.mjOBJ_SITE,
    "ncam": mujoco.mjtObj.mjOBJ_CAMERA,
    "nlight": mujoco.mjtObj.mjOBJ_LIGHT,
    "ntendon": mujoco.mjtObj.mjOBJ_TENDON,
    "neq": mujoco.mjtObj.mjOBJ_EQUALITY,
}


def dim_labels(mj_model: mujoco.MjModel, dim: str, size: int) -> list[str] | None:
    """Names along a dim, all different; None for a dim whose places have no names.

    A coordinate of a joint with several is called `joint/component`, as in `root/qw`; of a joint with one, by
    the joint's name. Parts without a name are called by kind and index, as in `body3`.

    Args:
        mj_model: The model.
        dim: A size of MuJoCo's (`nq`, `nv`, `nbody`, …), or `xyz` or `wxyz`.
        size: Length of the dim.
    """
    if dim in ("xyz", "wxyz"):
        return list(dim)
    if dim in _NAMED_DIMS:
        labels = _object_names(mj_model, _NAMED_DIMS[dim], size)
    else:
        makers: dict[str, Callable[[mujoco.MjModel], list[str]]] = {
            "nq": lambda m: _joint_labels(m, _FREE_Q, _BALL_Q),
            "nv": lambda m: _joint_labels(m, _FREE_V, _BALL_V),
            "nu": lambda m: _object_names(m, mujoco.mjtObj.mjOBJ_ACTUATOR, m.nu),
            "na": _activation_labels,
            "nmocap": _mocap_labels,
            "nsensordata": _sensor_labels,
        }
        if dim not in makers:
            return None
        labels = makers[dim](mj_model)
    if len(labels) != size:
        return None
    return _all_different(labels)


def kinematic_layout(mj_model: mujoco.MjModel) -> dict[str, Any]:
    """What makes a trajectory belong to a model: joints, body tree and mocap bodies, as plain JSON values."""
    bodies = _object_names(mj_model, mujoco.mjtObj.mjOBJ_BODY, mj_model.nbody)
    joints = _object_names(mj_model, mujoco.mjtObj.mjOBJ_JOINT, mj_model.njnt)
    return {
        "nq": int(mj_model.nq),
        "nv": int(mj_model.nv),
        "nmocap": int(mj_model.nmocap),
        "bodies": [
            {
                "name": name,
                "parent": bodies[int(mj_model.body_parentid[i])],
                "mocap": int(mj_model.body_mocapid[i]),
            }
            for i, name in enumerate(bodies)
        ],
        "joints": [
            {
                "name": name,
                "type": _JOINT(int(mj_model.jnt_type[i])).name.removeprefix("mjJNT_").lower(),
                "qposadr": int(mj_model.jnt_qposadr[i]),
                "body": bodies[int(mj_model.jnt_bodyid[i])],
            }
            for i, name in enumerate(joints)
        ],
    }


def fingerprint(layout: dict[str, Any]) -> str:
    """SHA-256 of a kinematic layout. Colours, textures, lights and cameras do not change it."""
    return hashlib.sha256(json.dumps(layout, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_fingerprint(recorded: dict[str, Any], mj_model: mujoco.MjModel, *, what: str) -> None:
    """Check that a model has the kinematic layout a dataset was recorded with.

    Args:
        recorded: The dataset's `kinematic_layout`.
        mj_model: The model to check.
        what: Name of the dataset, for the message.

    Raises:
        ModelMismatchError: It has another; the message names the first difference.
    """
    found = kinematic_layout(mj_model)
    if fingerprint(found) == fingerprint(recorded):
        return
    raise ModelMismatchError(
        f"{what} was recorded with another model. First difference: {_first_difference(recorded, found)}. "
        "Use the model it was recorded with (ds.traj.model() where it is embedded)."
    )


def pack_model(mj_model: mujoco.MjModel) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The compiled model as bytes (MJB)."""
    buffer = np.empty(mujoco.mj_sizeModel(mj_model), np.uint8)
    mujoco.mj_saveModel(mj_model, None, buffer)
    return buffer


def pack_spec(spec: mujoco.MjSpec, mj_model: mujoco.MjModel) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The XML of a spec and all its assets, also those that are files on disk, as the bytes of a zip archive.

    An XML has six digits of a number, which shows in the pixels. Numbers of the compiled model that do not come
    back from it are packed too.

    Args:
        spec: The spec; not changed.
        mj_model: The model compiled from it.

    Raises:
        InvalidArgumentError: The spec does not compile, or one of its files is not found.
        ModelMismatchError: It is of another model.
    """
    try:
        packed = _with_assets(spec)
        compiled = mujoco.MjSpec.from_zip(io.BytesIO(_zip(packed))).compile()
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(f"The spec cannot be embedded: {error}") from error
    recorded, found = kinematic_layout(mj_model), kinematic_layout(compiled)
    if recorded != found:
        raise ModelMismatchError(
            "The spec is of another model than the one that is recorded. First difference: "
            f"{_first_difference(recorded, found)}. Pass the spec that the model was compiled from."
        )
    packed.assets = {**packed.assets, _LOST_DIGITS: _lost_digits(mj_model, compiled)}
    return np.frombuffer(_zip(packed), np.uint8)


def load_model(
    *,
    xml: np.ndarray[Any, Any] | None,
    mjb: np.ndarray[Any, Any] | None,
) -> mujoco.MjModel:
    """Load an embedded model, from the XML where there is one.

    MuJoCo's parser of MJB trusts its input: load one only from a dataset you trust.

    Args:
        xml: Bytes of the zip archive with XML and assets, or None.
        mjb: Bytes of the MJB, or None.

    Raises:
        FormatError: Neither can be loaded here.
    """
    if xml is not None:
        data = xml.tobytes()
        digits = _check_archive(data)
        try:
            mj_model = mujoco.MjSpec.from_zip(io.BytesIO(data)).compile()
        except Exception as error:
            raise FormatError(f"The embedded XML does not compile here: {error}") from error
        try:
            _restore_digits(mj_model, digits)
        except Exception as error:
            raise FormatError(f"The embedded XML archive is damaged: {_LOST_DIGITS}: {error}") from error
        return mj_model
    if mjb is None:
        raise FormatError("The dataset holds no model: pass the model it was recorded with.")
    try:
        return mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": mjb.tobytes()})
    except Exception as error:
        raise FormatError(
            f"The embedded model cannot be loaded by MuJoCo {mujoco.__version__} (an MJB belongs to the version "
            f"that wrote it; recording with spec= embeds the XML, which does not): {error}"
        ) from error


def _with_assets(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """A copy whose files are all among its assets, by names without a folder: `to_zip` packs only those."""
    packed = spec.copy()
    assets: dict[str, bytes] = {}
    names: dict[str, str] = {}

    def take(folder: str, file: str) -> str:
        source = str(PurePath(folder, file))
        if file and source not in names:
            name = unique = PurePath(file).name
            while unique.lower() in map(str.lower, assets):
                unique = f"{len(assets)}_{name}"
            assets[unique] = _read_asset(spec, folder, file)
            names[source] = unique
        return names.get(source, "")

    for element in [*packed.meshes, *packed.hfields, *packed.skins]:
        element.file = take(spec.meshdir, element.file)
    for texture in packed.textures:
        texture.file = take(spec.texturedir, texture.file)
        for i, file in enumerate(texture.cubefiles):
            texture.cubefiles[i] = take(spec.texturedir, file)
    packed.meshdir = packed.texturedir = ""
    packed.assets = assets
    return packed


def _read_asset(spec: mujoco.MjSpec, folder: str, file: str) -> bytes:
    """A file that a spec names: from its assets, found as MuJoCo finds them, or from disk."""
    for name in (str(PurePath(folder, file)), file, PurePath(file).name):
        if name in spec.assets:
            data: str | bytes = spec.assets[name]
            return data.encode() if isinstance(data, str) else data
    path = Path(spec.modelfiledir, folder, file)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(
            f"The spec cannot be embedded: its file {file!r} is neither among its assets nor at {path} ({error}). "
            "Name it by its absolute path, or put its bytes into spec.assets."
        ) from error


def _zip(spec: mujoco.MjSpec) -> bytes:
    file = io.BytesIO()
    spec.to_zip(file)
    return file.getvalue()


def _check_archive(data: bytes) -> bytes:
    """Check the archive's size and return what `_lost_digits` put into it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            total = sum(info.file_size for info in archive.infolist())
            if total > _MAX_ASSET_BYTES:
                raise FormatError(
                    f"The embedded XML archive unpacks to {total} bytes; {_MAX_ASSET_BYTES} are allowed."
                )
            return archive.read(_LOST_DIGITS) if _LOST_DIGITS in archive.namelist() else b"{}"
    except zipfile.BadZipFile as error:
        raise FormatError(f"The embedded XML archive is damaged: {error}") from error


def _lost_digits(mj_model: mujoco.MjModel, compiled: mujoco.MjModel) -> bytes:
    """Floating-point numbers of a model that another one has not, as JSON, which keeps every digit."""
    differing: dict[str, Any] = {"mujoco": mujoco.__version__}
    for (name, value), (_, other) in zip(_numbers(mj_model), _numbers(compiled)):
        if value.shape == other.shape and not np.array_equal(value, other, equal_nan=True):
            differing[name] = value.ravel().tolist()
    return json.dumps(differing).encode()


def _restore_digits(mj_model: mujoco.MjModel, digits: bytes) -> None:
    """Set numbers of a compiled model that its XML has lost; another version of MuJoCo may have other numbers."""
    values = json.loads(digits)
    if values.get("mujoco") != mujoco.__version__:
        return
    for name, value in _numbers(mj_model):
        if name in values:
            *path, last = name.split(".")
            restored = np.array(values[name], value.dtype).reshape(value.shape)
            setattr(
                functools.reduce(getattr, path, mj_model), last, restored if value.ndim else restored.item()
            )


def _numbers(mj_model: mujoco.MjModel) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """All floating-point numbers of a model, by the attribute that holds them, as in `vis.map.znear`."""
    visual = [f"vis.{name}" for name in dir(mj_model.vis) if not name.startswith("_")]
    for path in ("", "opt", "stat", *visual):
        holder = functools.reduce(getattr, filter(None, path.split(".")), mj_model)
        for name in dir(holder):
            value = None if name.startswith("_") else getattr(holder, name)
            if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
                yield f"{path}.{name}".removeprefix("."), np.asarray(value)


def _object_names(mj_model: mujoco.MjModel, kind: mujoco.mjtObj, count: int) -> list[str]:
    prefix = kind.name.removeprefix("mjOBJ_").lower()
    return [mujoco.mj_id2name(mj_model, kind, i) or f"{prefix}{i}" for i in range(count)]


def _joint_labels(mj_model: mujoco.MjModel, free: tuple[str, ...], ball: tuple[str, ...]) -> list[str]:
    components = {int(_JOINT.mjJNT_FREE): free, int(_JOINT.mjJNT_BALL): ball}
    labels: list[str] = []
    for name, kind in zip(
        _object_names(mj_model, mujoco.mjtObj.mjOBJ_JOINT, mj_model.njnt), mj_model.jnt_type, strict=True
    ):
        parts = components.get(int(kind))
        labels += [name] if parts is None else [f"{name}/{part}" for part in parts]
    return labels


def _activation_labels(mj_model: mujoco.MjModel) -> list[str]:
    labels = [f"act{i}" for i in range(mj_model.na)]
    for i, name in enumerate(_object_names(mj_model, mujoco.mjtObj.mjOBJ_ACTUATOR, mj_model.nu)):
        start, count = int(mj_model.actuator_actadr[i]), int(mj_model.actuator_actnum[i])
        if start >= 0:
            labels[start : start + count] = [name] if count == 1 else [f"{name}/{k}" for k in range(count)]
    return labels


def _mocap_labels(mj_model: mujoco.MjModel) -> list[str]:
    labels = [""] * mj_model.nmocap
    names = _object_names(mj_model, mujoco.mjtObj.mjOBJ_BODY, mj_model.nbody)
    for name, mocap_id in zip(names, mj_model.body_mocapid, strict=True):
        if mocap_id >= 0:
            labels[int(mocap_id)] = name
    return labels


def _sensor_labels(mj_model: mujoco.MjModel) -> list[str]:
    labels: list[str] = []
    names = _object_names(mj_model, mujoco.mjtObj.mjOBJ_SENSOR, mj_model.nsensor)
    for name, size in zip(names, mj_model.sensor_dim, strict=True):
        labels += [name] if size == 1 else [f"{name}/{k}" for k in range(int(size))]
    return labels


def _all_different(labels: list[str]) -> list[str]:
    seen: set[str] = set()
    result = []
    for label in labels:
        unique, number = label, 1
        while unique in seen:
            unique, number = f"{label}#{number}", number + 1
        seen.add(unique)
        result.append(unique)
    return result


def _first_difference(recorded: dict[str, Any], found: dict[str, Any]) -> str:
    for kind in ("bodies", "joints"):
        for i, (a, b) in enumerate(zip(recorded[kind], found[kind])):
            for key in a:
                if a[key] != b[key]:
                    return (
                        f"{kind[:-1] if kind == 'joints' else 'body'} {i} ({a['name']!r}) has {key} "
                        f"{a[key]!r} in the recording and {b[key]!r} in the model"
                    )
        if len(recorded[kind]) != len(found[kind]):
            return f"{len(recorded[kind])} {kind} in the recording and {len(found[kind])} in the model"
    for key in ("nq", "nv", "nmocap"):
        if recorded[key] != found[key]:
            return f"{key} is {recorded[key]} in the recording and {found[key]} in the model"
    return "the order of its parts"
