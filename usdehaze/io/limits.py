"""How large and how small frames may be, whatever file they come from."""

from __future__ import annotations

from usdehaze.budget import ADVICE, OBJECT_BYTES, most_memory
from usdehaze.errors import InputError

MAX_FRAMES_BYTES = 8 * 2**30  # of float32 frames held in memory at once
PIXEL_BYTES = 64  # that a pixel takes on its way to dB: as stored, in double precision, in the masks of the sector
SMALL_FRAME = 64 * 64  # pixels; smaller frames cost time by their number
MIN_SIDE = 8  # pixels; thinner arrays are tables, coordinates or colour channels, not frames
MOST_DEFLATED = 1032  # bytes that zlib, gzip or zip can pack into one
SPACINGS_M = (1e-6, 0.02)  # of pixels and of depths
DEEPEST_M = 1.0


def check_frame(shape: tuple[int, int], path: object) -> None:
    """Refuses frames ``(H, W)`` that cannot be read in the memory there is: by default more than 2**23 pixels.

    Raises:
        InputError: they are.
    """
    most = most_memory() // PIXEL_BYTES
    if shape[0] * shape[1] > most:
        raise InputError(path, f"frames of {shape[0]} x {shape[1]}", f"at most {most} pixels a frame", ADVICE)


def check_frames(shape: tuple[int, int, int], path: object) -> None:
    """Refuses frames ``(T, H, W)`` of more pixels than `check_frame` allows, and very many very small ones.

    Raises:
        InputError: they are.
    """
    check_frame(shape[1:], path)
    most = most_memory() // OBJECT_BYTES
    if shape[0] > most and shape[1] * shape[2] < SMALL_FRAME:
        found = f"{shape[0]} frames of {shape[1]} x {shape[2]}"
        raise InputError(path, found, f"at most {most} of less than 64 x 64", ADVICE)


def check_memory(shape: tuple[int, int, int], path: object, arrays: int = 1) -> None:
    """Refuses frames ``(T, H, W)`` that would fill more than `MAX_FRAMES_BYTES` as float32.

    Args:
        shape: of each array.
        path: for the message.
        arrays: how many of that shape: input, tissue, haze.

    Raises:
        InputError: more than that.
    """
    n_frames, height, width = shape
    needed = 4 * n_frames * height * width * arrays
    if needed > MAX_FRAMES_BYTES:
        raise InputError(
            path,
            f"{n_frames} frames of {height} x {width} need {needed / 2**30:.3g} GiB",
            f"at most {MAX_FRAMES_BYTES / 2**30:g} GiB at once",
            "take part of them with --frames",
        )
