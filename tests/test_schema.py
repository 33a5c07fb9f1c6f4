"""Names, dims, dtypes of what is recorded, against MuJoCo's own arrays."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from flytraj import testing
from flytraj.errors import FieldNotFoundError, InvalidArgumentError
from flytraj.model import dim_labels
from flytraj.schema import make_schema


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return testing.tiny_model().compile()


def test_state_is_always_recorded_and_fields_follow(model: mujoco.MjModel) -> None:
    schema = make_schema(model, fields=("qvel", "qpos", "qvel", "xpos"))
    assert schema.names == ("sim_time", "episode", "qpos", "mocap_pos", "mocap_quat", "qvel", "xpos")
    assert schema["mocap_quat"].dims == ("nmocap", "wxyz")
    assert schema["xpos"].dims == ("nbody", "xyz")


def test_no_mocap_arrays_without_mocap_bodies() -> None:
    assert make_schema(testing.pendulum().compile()).names == ("sim_time", "episode", "qpos")


def test_every_field_of_fixed_size_has_mujocos_shape_and_dtype(model: mujoco.MjModel) -> None:
    from mujoco.introspect import structs

    data = mujoco.MjData(model)
    n_recordable = 0
    for field in structs.STRUCTS["mjData"].fields:
        try:
            variable = make_schema(model, fields=(field.name,)).variables[-1]
        except FieldNotFoundError:
            continue
        if variable.name == field.name:
            value = getattr(data, field.name)
            assert (variable.shape, variable.dtype) == (value.shape, value.dtype), field.name
            assert variable.name not in variable.dims
            n_recordable += 1
    assert n_recordable > 60


@pytest.mark.parametrize("name", ["nothing", "efc_J", "contact", "time", "plugin_data", "ncon"])
def test_what_cannot_be_recorded_is_refused_by_name(model: mujoco.MjModel, name: str) -> None:
    with pytest.raises(FieldNotFoundError, match=name):
        make_schema(model, fields=(name,))


def test_a_derived_field_says_which_state_it_belongs_to(model: mujoco.MjModel) -> None:
    schema = make_schema(model, fields=("xpos", "ctrl"))
    assert "before that step" in schema["xpos"].stage
    assert schema["ctrl"].stage == ""


def test_dtype_changes_floats_only_and_channels_keep_theirs(model: mujoco.MjModel) -> None:
    channels: Any = {"reward": ((), np.float64), "done": ((), bool), "contacts": ((4,), np.int16)}
    schema = make_schema(model, fields=("eq_active",), channels=channels).with_float_dtype(np.float32)
    dtypes = {v.name: v.dtype.name for v in schema.variables}
    assert dtypes["qpos"] == "float32"
    assert dtypes["sim_time"] == "float64"
    assert dtypes["reward"] == "float64"
    assert (dtypes["done"], dtypes["contacts"], dtypes["episode"]) == ("bool", "int16", "int32")
    assert schema["contacts"].dims == ("contacts_0",)


@pytest.mark.parametrize("name", ["qpos", "time", "world", "model", "a/b", "../up", "1st", ""])
def test_a_channel_name_that_is_taken_or_no_identifier_is_refused(model: mujoco.MjModel, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be called"):
        make_schema(model, channels={name: ((), np.float32)})


def test_a_channel_of_objects_is_refused(model: mujoco.MjModel) -> None:
    with pytest.raises(InvalidArgumentError, match="object"):
        make_schema(model, channels={"info": ((), object)})


def test_fields_as_one_string_is_refused(model: mujoco.MjModel) -> None:
    with pytest.raises(InvalidArgumentError, match="'qvel'"):
        make_schema(model, fields="qvel")


def test_labels_name_joints_and_components(model: mujoco.MjModel) -> None:
    assert dim_labels(model, "nq", model.nq) == [
        *(f"root/{c}" for c in ("x", "y", "z", "qw", "qx", "qy", "qz")),
        *(f"neck/{c}" for c in ("qw", "qx", "qy", "qz")),
        "hip",
        "shin",
    ]
    assert dim_labels(model, "nv", model.nv) == [
        *(f"root/{c}" for c in ("vx", "vy", "vz", "wx", "wy", "wz")),
        *(f"neck/{c}" for c in ("wx", "wy", "wz")),
        "hip",
        "shin",
    ]
    assert dim_labels(model, "nbody", model.nbody) == ["world", "target", "torso", "head", "leg", "foot"]
    assert dim_labels(model, "nmocap", 1) == ["target"]
    assert dim_labels(model, "nu", model.nu) == ["hip", "shin"]
    assert dim_labels(model, "nsensordata", 4) == ["hip", "tip/0", "tip/1", "tip/2"]
    assert dim_labels(model, "xyz", 3) == ["x", "y", "z"]
    assert dim_labels(model, "mat", 9) is None


def test_parts_without_names_get_labels_that_differ() -> None:
    model = testing.nameless_model().compile()
    for dim in ("nq", "nv", "nbody", "ngeom"):
        labels = dim_labels(model, dim, getattr(model, dim))
        assert labels is not None
        assert len(set(labels)) == len(labels) == getattr(model, dim)


def test_a_real_name_like_a_made_up_one_does_not_clash() -> None:
    spec = mujoco.MjSpec()
    for name in ("body2", ""):
        spec.worldbody.add_body(name=name).add_geom(size=[1, 0, 0])
    model = spec.compile()
    labels = dim_labels(model, "nbody", 3)
    assert labels is not None
    assert len(set(labels)) == 3
    assert labels[1] == "body2"
