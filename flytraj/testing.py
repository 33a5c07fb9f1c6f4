"""Tiny models for tests and examples.

Each function makes a new `mujoco.MjSpec`; `.compile()` gives the model. All of them also load on MuJoCo Warp.
"""

from __future__ import annotations

import mujoco

__all__ = ["mesh_model", "nameless_model", "pendulum", "tiny_model"]

_PENDULUM = """
<mujoco model="pendulum">
  <option timestep="0.002"/>
  <worldbody>
    <light name="lamp" pos="0 -1 2" dir="0 0.4 -1"/>
    <camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
    <body name="bob">
      <joint name="swing" type="hinge" axis="0 1 0" damping="0.01"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03" rgba="0.9 0.5 0.2 1"/>
    </body>
  </worldbody>
  <keyframe>
    <key name="raised" qpos="1.2"/>
  </keyframe>
</mujoco>
"""

_TINY = """
<mujoco model="tiny">
  <option timestep="0.002"/>
  <visual>
    <global offwidth="320" offheight="240"/>
  </visual>
  <asset>
    <texture name="checks" type="2d" builtin="checker" width="64" height="64"
             rgb1="0.4 0.5 0.6" rgb2="0.2 0.3 0.4"/>
    <material name="ground" texture="checks" texrepeat="4 4"/>
  </asset>
  <worldbody>
    <light name="lamp" pos="0 -1 3" dir="0 0.3 -1"/>
    <camera name="fixed" pos="0 -2.5 1" xyaxes="1 0 0 0 0.35 1"/>
    <camera name="tracking" mode="trackcom" target="torso" pos="1.5 -1.5 1" xyaxes="1 1 0 -0.3 0.3 1"/>
    <geom name="floor" type="plane" size="3 3 0.1" material="ground"/>
    <body name="target" mocap="true" pos="0.6 0 0.5">
      <geom name="target" type="sphere" size="0.08" rgba="0.9 0.2 0.2 1" contype="0" conaffinity="0"/>
    </body>
    <body name="torso" pos="0 0 0.4">
      <freejoint name="root"/>
      <geom name="torso" type="ellipsoid" size="0.2 0.12 0.1" rgba="0.9 0.7 0.2 1"/>
      <site name="tip" pos="0.2 0 0" size="0.02"/>
      <body name="head" pos="0.25 0 0.05">
        <joint name="neck" type="ball" damping="0.02"/>
        <geom name="head" type="sphere" size="0.08" pos="0.06 0 0" rgba="0.3 0.6 0.9 1"/>
      </body>
      <body name="leg" pos="-0.1 0 -0.08">
        <joint name="hip" type="hinge" axis="0 1 0" range="-60 60" damping="0.02"/>
        <geom name="leg" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.03" rgba="0.5 0.8 0.4 1"/>
        <body name="foot" pos="0 0 -0.22">
          <joint name="shin" type="slide" axis="0 0 1" range="-0.05 0.05" damping="0.1"/>
          <geom name="foot" type="sphere" size="0.04" rgba="0.4 0.4 0.4 1"/>
          <site name="sole" size="0.02"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="string" width="0.01" rgba="0.9 0.9 0.9 1">
      <site site="tip"/>
      <site site="sole"/>
    </spatial>
  </tendon>
  <actuator>
    <position name="hip" joint="hip" kp="2"/>
    <motor name="shin" joint="shin" gear="1"/>
  </actuator>
  <sensor>
    <jointpos name="hip" joint="hip"/>
    <framepos name="tip" objtype="site" objname="tip"/>
  </sensor>
</mujoco>
"""

_NAMELESS = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <light pos="0 -1 2" dir="0 0.4 -1"/>
    <camera pos="0 -2 0.5" xyaxes="1 0 0 0 0 1"/>
    <camera pos="2 0 0.5" xyaxes="0 1 0 0 0 1"/>
    <geom type="plane" size="2 2 0.1"/>
    <body mocap="true" pos="0 0 1"/>
    <body pos="0 0 0.5">
      <freejoint/>
      <geom type="box" size="0.1 0.1 0.1"/>
      <body pos="0.2 0 0">
        <joint type="hinge" axis="0 0 1"/>
        <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.03"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""

_MESH = """
<mujoco model="mesh">
  <asset>
    <mesh name="wedge" file="wedge.obj"/>
  </asset>
  <worldbody>
    <light pos="0 -1 2" dir="0 0.4 -1"/>
    <camera name="front" pos="0 -2 0.3" xyaxes="1 0 0 0 0 1"/>
    <body name="wedge" pos="0 0 0.5">
      <freejoint name="root"/>
      <geom name="wedge" type="mesh" mesh="wedge"/>
    </body>
  </worldbody>
</mujoco>
"""

_WEDGE = b"""v 0 0 0
v 0.4 0 0
v 0 0.4 0
v 0 0 0.4
f 1 3 2
f 1 2 4
f 1 4 3
f 2 3 4
"""


def pendulum() -> mujoco.MjSpec:
    """One hinge, no mocap body, one camera, the keyframe "raised": nq=1, nv=1, timestep 2 ms."""
    return mujoco.MjSpec.from_string(_PENDULUM)


def tiny_model() -> mujoco.MjSpec:
    """Every joint type, a mocap body, a fixed and a tracking camera, and contact with a floor.

    Joints: `root` (free), `neck` (ball), `hip` (hinge), `shin` (slide), so nq=13 and nv=11; mocap body
    `target`; cameras `fixed` and `tracking`; 2 actuators, 2 sensors (4 numbers), 2 sites, 1 spatial tendon.
    """
    return mujoco.MjSpec.from_string(_TINY)


def nameless_model() -> mujoco.MjSpec:
    """A model in which nothing has a name: a free joint, a hinge, a mocap body, two cameras; nq=8."""
    return mujoco.MjSpec.from_string(_NAMELESS)


def mesh_model() -> mujoco.MjSpec:
    """A free body whose mesh comes from the spec's assets, as from a file `wedge.obj`; nq=7."""
    return mujoco.MjSpec.from_string(_MESH, assets={"wedge.obj": _WEDGE})
