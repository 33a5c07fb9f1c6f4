"""The fingerprint, the refusal of other models, and the embedded model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest
from PIL import Image

from flytraj import testing
from flytraj.errors import FormatError, InvalidArgumentError, ModelMismatchError
from flytraj.model import check_fingerprint, fingerprint, kinematic_layout, load_model, pack_model, pack_spec

Edit = Callable[[mujoco.MjSpec], object]


def edited(edit: Edit) -> mujoco.MjModel:
    spec = testing.tiny_model()
    edit(spec)
    return spec.compile()


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return testing.tiny_model().compile()


@pytest.mark.parametrize(
    "edit",
    [
        lambda spec: setattr(spec.geoms[1], "rgba", [1, 0, 0, 1]),
        lambda spec: spec.worldbody.add_light(name="second", pos=[0, 0, 5]),
        lambda spec: spec.worldbody.add_camera(name="more", pos=[0, 0, 5]),
        lambda spec: setattr(spec.option, "timestep", 0.001),
        lambda spec: spec.worldbody.add_geom(size=[0.1, 0, 0], pos=[9, 9, 9]),
    ],
)
def test_looks_do_not_change_the_fingerprint(model: mujoco.MjModel, edit: Edit) -> None:
    other = edited(edit)
    assert fingerprint(kinematic_layout(other)) == fingerprint(kinematic_layout(model))
    check_fingerprint(kinematic_layout(model), other, what="it")


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (
            lambda spec: setattr(spec.joint("neck"), "name", "nape"),
            "joint 1 .'neck'. has name 'neck'.*'nape'",
        ),
        (lambda spec: setattr(spec.body("leg"), "name", "arm"), "body 4 .'leg'. has name"),
        (lambda spec: spec.body("foot").add_joint(name="extra"), "5 joints in the model|joint"),
        (lambda spec: spec.worldbody.add_body(name="new", mocap=True), "6 bodies in the recording and 7"),
        (lambda spec: setattr(spec.body("target"), "mocap", False), "body 1 .'target'. has mocap 0.*-1"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(
    model: mujoco.MjModel, edit: Edit, difference: str
) -> None:
    with pytest.raises(ModelMismatchError, match=difference):
        check_fingerprint(kinematic_layout(model), edited(edit), what="it")


def test_a_model_comes_back_from_its_bytes(model: mujoco.MjModel) -> None:
    mjb = load_model(xml=None, mjb=pack_model(model))
    assert np.array_equal(mjb.geom_rgba, model.geom_rgba)
    assert fingerprint(kinematic_layout(mjb)) == fingerprint(kinematic_layout(model))


def test_a_spec_comes_back_with_its_assets() -> None:
    spec = testing.mesh_model()
    model = spec.compile()
    loaded = load_model(xml=pack_spec(spec), mjb=None)
    assert loaded.nmesh == model.nmesh > 0
    assert np.array_equal(loaded.mesh_vert, model.mesh_vert)


def test_files_on_disk_are_packed_too(tmp_path: Path) -> None:
    """Two files of one name in different folders, a file used twice, and a cube of pictures."""
    for name, value in (("plain.png", 40), ("sub/plain.png", 200)):
        (tmp_path / "pictures" / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(tmp_path / "pictures" / name)
    wedge = testing.mesh_model().assets["wedge.obj"]
    (tmp_path / "wedge.obj").write_bytes(wedge)
    (tmp_path / "model.xml").write_text("""
      <mujoco><compiler texturedir="pictures"/><asset>
        <mesh name="wedge" file="wedge.obj"/><mesh name="long" file="wedge.obj" scale="2 1 1"/>
        <texture name="cube" type="cube" fileright="plain.png" fileleft="sub/plain.png"/>
        <texture name="flat" type="2d" file="sub/plain.png"/>
      </asset><worldbody><geom type="mesh" mesh="wedge"/><geom type="mesh" mesh="long"/></worldbody></mujoco>
    """)
    spec = mujoco.MjSpec.from_file(str(tmp_path / "model.xml"))
    model, packed = spec.compile(), pack_spec(spec)
    assert [mesh.file for mesh in spec.meshes] == ["wedge.obj", "wedge.obj"]
    shutil.rmtree(tmp_path)
    loaded = load_model(xml=packed, mjb=None)
    assert np.array_equal(loaded.mesh_vert, model.mesh_vert)
    assert np.array_equal(loaded.tex_data, model.tex_data)
    assert {40, 200} <= set(loaded.tex_data.tolist())
    with pytest.raises(InvalidArgumentError, match=r"wedge\.obj.*neither among its assets nor at"):
        pack_spec(spec)


def test_the_xml_is_preferred_to_the_mjb(model: mujoco.MjModel) -> None:
    other = testing.pendulum()
    other.compile()
    assert load_model(xml=pack_spec(other), mjb=pack_model(model)).nq == 1


def test_no_model_and_damaged_models_are_clear_errors(model: mujoco.MjModel) -> None:
    with pytest.raises(FormatError, match="holds no model"):
        load_model(xml=None, mjb=None)
    with pytest.raises(FormatError, match="damaged"):
        load_model(xml=np.zeros(100, np.uint8), mjb=None)
    with pytest.raises(FormatError, match=r"MuJoCo \d"):
        load_model(xml=None, mjb=pack_model(model)[:50])
