"""The fly: a model of capsules and ellipsoids, and the lure it walks to."""

from __future__ import annotations

from typing import Any

import mujoco

__all__ = ["LEGS", "SIDES", "fly_spec"]

SIDES = {"left": 1, "right": -1}
LEGS = {"front": (0.055, 38), "middle": (0.0, 90), "hind": (-0.05, 140)}
"""Where each pair of legs leaves the thorax along x, in metres, and the way it points, in degrees."""

_MODEL = """
<mujoco model="fly">
  <option timestep="0.004" integrator="implicitfast" cone="pyramidal" iterations="10" ls_iterations="10"/>
  <statistic center="0 0 0.1" extent="1.2"/>
  <visual>
    <global offwidth="1280" offheight="960"/>
    <headlight ambient="0.34 0.34 0.36" diffuse="0.16 0.16 0.16" specular="0.1 0.1 0.1"/>
    <quality shadowsize="1024" offsamples="4" numslices="16" numstacks="8"/>
    <map znear="0.02" zfar="30" shadowclip="1.4"/>
    <rgba haze="0.86 0.9 0.93 1"/>
  </visual>
  <default>
    <geom contype="0" conaffinity="0" density="250"/>
    <joint damping="0.02" armature="0.0015"/>
    <position kp="6" kv="0.12" forcerange="-2.5 2.5"/>
    <default class="touching">
      <geom conaffinity="1" friction="1.1 0.01 0.001" solref="0.012 1"/>
    </default>
    <default class="stripe">
      <geom type="ellipsoid" material="stripe" density="0"/>
    </default>
  </default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.55 0.72 0.86" rgb2="0.93 0.94 0.92"
             width="256" height="256"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.83 0.85 0.80" rgb2="0.74 0.78 0.74"
             mark="edge" markrgb="0.68 0.73 0.69" width="256" height="256"/>
    <material name="tiles" texture="tiles" texrepeat="3 3" texuniform="true" reflectance="0" specular="0.1"/>
    <material name="amber" rgba="0.80 0.52 0.22 1" specular="0.5" shininess="0.5"/>
    <material name="honey" rgba="0.90 0.68 0.33 1" specular="0.5" shininess="0.5"/>
    <material name="stripe" rgba="0.24 0.15 0.09 1" specular="0.5" shininess="0.5"/>
    <material name="leg" rgba="0.55 0.34 0.15 1" specular="0.3" shininess="0.4"/>
    <material name="eye" rgba="0.70 0.09 0.08 1" specular="1" shininess="0.9"/>
    <material name="wing" rgba="0.86 0.93 1 0.45" specular="1" shininess="0.8"/>
    <material name="glow" rgba="1 0.82 0.25 1" emission="1"/>
    <material name="halo" rgba="1 0.75 0.2 0.22" emission="1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="20 20 0.1" material="tiles" contype="1" friction="1.1 0.01 0.001"/>
    <light name="sun" type="directional" pos="-1.2 -1.4 2" dir="0.35 0.45 -1"
           diffuse="0.62 0.6 0.55" specular="0.35 0.35 0.35" castshadow="true"/>
    <camera name="above" pos="0 0 2.3" xyaxes="1 0 0 0 1 0"/>
    <body name="lure" mocap="true" pos="0.9 0 0.16">
      <geom name="lure" type="sphere" size="0.035" material="glow"/>
      <geom name="halo" type="sphere" size="0.06" material="halo"/>
    </body>
    <body name="thorax" pos="0 0 0.14">
      <freejoint name="fly"/>
      <camera name="side" mode="trackcom" pos="0.21 -0.74 0.37" xyaxes="1 0.22 0 -0.09 0.4 1"/>
            <geom name="thorax" class="touching" type="ellipsoid" size="0.085 0.06 0.055" material="amber"/>
      <geom name="scutellum" type="ellipsoid" size="0.03 0.03 0.02" pos="-0.065 0 0.035" material="honey"/>
      <body name="head" pos="0.09 0 0.005">
        <joint name="neck" type="hinge" axis="0 0 1" range="-35 35" damping="0.01"/>
        <geom name="head" class="touching" type="ellipsoid" size="0.036 0.05 0.044" pos="0.03 0 0"
              material="amber"/>
        <geom name="left_eye" type="ellipsoid" size="0.026 0.026 0.037" pos="0.036 0.036 0.008"
              material="eye"/>
        <geom name="right_eye" type="ellipsoid" size="0.026 0.026 0.037" pos="0.036 -0.036 0.008"
              material="eye"/>
        <geom name="left_antenna" type="capsule" fromto="0.06 0.012 0.012 0.095 0.028 0.03" size="0.005"
              material="leg"/>
        <geom name="right_antenna" type="capsule" fromto="0.06 -0.012 0.012 0.095 -0.028 0.03" size="0.005"
              material="leg"/>
        <geom name="proboscis" type="capsule" fromto="0.045 0 -0.03 0.05 0 -0.062" size="0.009"
              material="honey"/>
      </body>
      <body name="abdomen" pos="-0.07 0 -0.005">
        <joint name="waist" type="hinge" axis="0 1 0" range="-25 25" stiffness="0.6" damping="0.02"/>
        <geom name="abdomen" class="touching" type="ellipsoid" size="0.105 0.062 0.056" pos="-0.085 0 0"
              material="honey" density="90"/>
        <geom name="stripe_1" class="stripe" size="0.011 0.0625 0.0565" pos="-0.075 0 0"/>
        <geom name="stripe_2" class="stripe" size="0.012 0.0605 0.0545" pos="-0.112 0 0"/>
        <geom name="stripe_3" class="stripe" size="0.042 0.053 0.0475" pos="-0.15 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="neck" joint="neck" kp="1" kv="0.05"/>
  </actuator>
</mujoco>
"""


def fly_spec() -> mujoco.MjSpec:
    """A fly of capsules and ellipsoids on a tiled floor, and a lure that it walks to.

    nq=29: a free joint, neck, waist, two wings and six legs of three hinges. The lure is a mocap body; the
    cameras `side` and `above` follow the fly.
    """
    spec = mujoco.MjSpec.from_string(_MODEL)
    thorax = spec.body("thorax")
    for side, sign in SIDES.items():
        _add_wing(spec, thorax, side, sign)
        for name, (x, yaw) in LEGS.items():
            _add_leg(spec, thorax, f"{side}_{name}", (x, sign * 0.045, -0.022), sign * yaw)
    return spec


def _add_wing(spec: mujoco.MjSpec, thorax: Any, side: str, sign: int) -> None:
    wing = thorax.add_body(name=f"{side}_wing", pos=(-0.02, sign * 0.028, 0.052), euler=(0, 4, -sign * 8))
    wing.add_joint(name=f"{side}_wing", axis=(0, 0, -sign), range=(0, 90), damping=0.01)
    wing.add_geom(
        spec.find_default("touching"),
        name=f"{side}_wing",
        type=mujoco.mjtGeom.mjGEOM_ELLIPSOID,
        size=(0.13, 0.05, 0.004),
        pos=(-0.12, sign * 0.012, 0),
        material="wing",
        density=60,
    )
    _add_servo(spec, f"{side}_wing")


def _add_leg(
    spec: mujoco.MjSpec, thorax: Any, name: str, pos: tuple[float, float, float], yaw: float
) -> None:
    touching = spec.find_default("touching")
    capsule, leg = mujoco.mjtGeom.mjGEOM_CAPSULE, {"material": "leg"}
    coxa = thorax.add_body(name=f"{name}_coxa", pos=pos, euler=(0, 0, yaw))
    coxa.add_joint(name=f"{name}_coxa", axis=(0, 0, 1), range=(-50, 50))
    coxa.add_geom(type=capsule, fromto=(0, 0, 0, 0.025, 0, -0.005), size=(0.014, 0, 0), **leg)
    femur = coxa.add_body(name=f"{name}_femur", pos=(0.025, 0, -0.005))
    femur.add_joint(name=f"{name}_femur", axis=(0, -1, 0), range=(-60, 60))
    femur.add_geom(type=capsule, fromto=(0, 0, 0, 0.09, 0, 0.055), size=(0.011, 0, 0), **leg)
    tibia = femur.add_body(name=f"{name}_tibia", pos=(0.09, 0, 0.055))
    tibia.add_joint(name=f"{name}_tibia", axis=(0, -1, 0), range=(-60, 60))
    tibia.add_geom(type=capsule, fromto=(0, 0, 0, 0.045, 0, -0.115), size=(0.008, 0, 0), **leg)
    tibia.add_geom(
        touching,
        name=f"{name}_foot",
        type=capsule,
        fromto=(0.045, 0, -0.115, 0.075, 0, -0.142),
        size=(0.007, 0, 0),
        material="stripe",
    )
    for part in ("coxa", "femur", "tibia"):
        _add_servo(spec, f"{name}_{part}")


def _add_servo(spec: mujoco.MjSpec, joint: str) -> None:
    spec.add_actuator(spec.default, name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
