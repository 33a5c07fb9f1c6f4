"""The fingerprint, the refusal of other models, and the embedded model."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
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
    loaded = load_model(xml=pack_spec(spec, model), mjb=None)
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
    model = spec.compile()
    packed = pack_spec(spec, model)
    assert [mesh.file for mesh in spec.meshes] == ["wedge.obj", "wedge.obj"]
    shutil.rmtree(tmp_path)
    loaded = load_model(xml=packed, mjb=None)
    assert np.array_equal(loaded.mesh_vert, model.mesh_vert)
    assert np.array_equal(loaded.tex_data, model.tex_data)
    assert {40, 200} <= set(loaded.tex_data.tolist())
    with pytest.raises(InvalidArgumentError, match=r"wedge\.obj.*neither among its assets nor at"):
        pack_spec(spec, model)


def numbers(model: mujoco.MjModel) -> dict[str, NDArray[np.float64]]:
    arrays = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: array.copy() for name, array in arrays.items() if isinstance(array, np.ndarray)}


def odd_model() -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """A model with numbers that no six digits hold, some of them set after it was compiled."""
    spec = testing.tiny_model()
    spec.body("leg").pos = [1 / 3, 2 / 7, -1 / 9]
    spec.geoms[2].quat = [1, 0.1, 0.2, 0.3]
    spec.option.timestep = 1 / 300
    model = spec.compile()
    model.geom_rgba[1] = 1 / 3
    model.opt.timestep = 1 / 700
    model.opt.gravity[:] = [0, 0, -np.pi]
    model.vis.map.znear = 1 / 70
    model.vis.headlight.diffuse[:] = 1 / 7
    model.stat.extent = np.sqrt(2)
    return spec, model


def test_every_digit_comes_back_from_the_xml(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, model = odd_model()
    packed = pack_spec(spec, model)
    loaded = load_model(xml=packed, mjb=None)
    expected, found = numbers(model), numbers(loaded)
    assert [name for name in expected if not np.array_equal(expected[name], found[name])] == []
    assert loaded.opt.timestep == 1 / 700
    assert np.array_equal(loaded.opt.gravity, model.opt.gravity)
    assert loaded.vis.map.znear == model.vis.map.znear
    assert np.array_equal(loaded.vis.headlight.diffuse, model.vis.headlight.diffuse)
    assert loaded.stat.extent == np.sqrt(2)
    # Another version may compile to other numbers: there the XML has to do.
    monkeypatch.setattr(mujoco, "__version__", "99.0.0")
    elsewhere = load_model(xml=packed, mjb=None)
    assert elsewhere.opt.timestep == pytest.approx(1 / 300, abs=1e-8)
    np.testing.assert_allclose(elsewhere.body_pos, model.body_pos, atol=1e-6)
    assert not np.array_equal(elsewhere.body_pos, model.body_pos)


@pytest.mark.parametrize("values", [b"{", b"[1]", b'{"geom_rgba": [1, 2]}', b'{"geom_rgba": ["x"]}'])
def test_damaged_digits_are_a_clear_error(model: mujoco.MjModel, values: bytes) -> None:
    values = (
        values.replace(b"{", f'{{"mujoco": "{mujoco.__version__}", '.encode()) if len(values) > 4 else values
    )
    file = io.BytesIO(pack_spec(testing.tiny_model(), model).tobytes())
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, values if name.endswith(".json") else data)
    with pytest.raises(FormatError, match=r"damaged: lost_digits\.json"):
        load_model(xml=np.frombuffer(file.getvalue(), np.uint8), mjb=None)


def test_a_spec_of_another_model_is_refused(model: mujoco.MjModel) -> None:
    spec = testing.tiny_model()
    spec.joint("neck").name = "nape"
    with pytest.raises(ModelMismatchError, match=r"spec is of another model.*'nape'"):
        pack_spec(spec, model)


def test_the_xml_is_preferred_to_the_mjb(model: mujoco.MjModel) -> None:
    other = testing.pendulum()
    packed = pack_spec(other, other.compile())
    assert load_model(xml=packed, mjb=pack_model(model)).nq == 1


def test_no_model_and_damaged_models_are_clear_errors(model: mujoco.MjModel) -> None:
    with pytest.raises(FormatError, match="holds no model"):
        load_model(xml=None, mjb=None)
    with pytest.raises(FormatError, match="damaged"):
        load_model(xml=np.zeros(100, np.uint8), mjb=None)
    with pytest.raises(FormatError, match=r"MuJoCo \d"):
        load_model(xml=None, mjb=pack_model(model)[:50])
