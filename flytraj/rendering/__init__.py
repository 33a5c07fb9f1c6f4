"""Rendering of recorded trajectories, on OpenGL or on Warp, in constant memory."""

from flytraj.rendering.backend import choose_backend as choose_backend
from flytraj.rendering.frames import FrameBatch as FrameBatch
from flytraj.rendering.frames import iter_frames as iter_frames
from flytraj.rendering.frames import render_trajectories as render_trajectories
from flytraj.rendering.grid import contact_sheet as contact_sheet
from flytraj.rendering.notebook import render_view as render_view
from flytraj.rendering.scene import FreeCamera as FreeCamera
from flytraj.rendering.scene import as_clips as as_clips
from flytraj.rendering.scene import resolve_camera_ids as resolve_camera_ids
from flytraj.rendering.scene import update_render_geometry as update_render_geometry
from flytraj.rendering.videos import render_videos as render_videos
from flytraj.rendering.videos import save_trajectory_videos as save_trajectory_videos
