"""How large and how small frames may be, whatever file they come from."""

from __future__ import annotations

from usdehaze.errors import InputError

MAX_FRAMES_BYTES = 8 * 2**30  # of float32 frames held in memory at once
MAX_FRAME_PIXELS = 2**26
MIN_SIDE = 8  # pixels; thinner arrays are tables, coordinates or colour channels, not frames


def check_frame(shape: tuple[int, int], path: object) -> None:
    """Refuses frames ``(H, W)`` of more than `MAX_FRAME_PIXELS`.

    Raises:
        InputError: more pixels than that.
    """
    if shape[0] * shape[1] > MAX_FRAME_PIXELS:
        raise InputError(path, f"frames of {shape[0]} x {shape[1]}", f"at most {MAX_FRAME_PIXELS} pixels a frame")


def check_memory(shape: tuple[int, int, int], path: object) -> None:
    """Refuses frames ``(T, H, W)`` that would fill more than `MAX_FRAMES_BYTES` as float32.

    Raises:
        InputError: more than that.
    """
    n_frames, height, width = shape
    needed = 4 * n_frames * height * width
    if needed > MAX_FRAMES_BYTES:
        raise InputError(
            path,
            f"{n_frames} frames of {height} x {width} need {needed / 2**30:.3g} GiB",
            f"at most {MAX_FRAMES_BYTES / 2**30:g} GiB at once",
            "take part of them with --frames",
        )
