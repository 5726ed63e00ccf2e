"""What a file says of the mode that it was taken in: whether there is grey-scale B-mode in it at all."""

from __future__ import annotations

from collections.abc import Sequence

from pydicom.dataset import Dataset

from usdehaze.io.dicom.header import items, words

# bits of value 4 of Image Type (PS3.3 C.8.5.6.1.1)
TWO_D, M_MODE, CW_DOPPLER, PW_DOPPLER, COLOUR_M_MODE, RENDERED = 0x1, 0x2, 0x4, 0x8, 0x20, 0x40
TRACES = M_MODE | CW_DOPPLER | PW_DOPPLER | COLOUR_M_MODE
CONTRAST = "contrast imaging"
NO_AGENT = {"", "NO", "NONE", "N/A", "NO CONTRAST"}


def other_mode(attributes: Dataset) -> str:
    """The mode that the file says was used instead of two-dimensional grey-scale; "" where it says none."""
    agents = {agent.upper() for agent in words(attributes, "ContrastBolusAgent")}
    if agents - NO_AGENT or items(attributes, "ContrastBolusAgentSequence"):
        return CONTRAST
    mode = _image_type(attributes)
    if mode & TWO_D:
        return ""
    return "M-mode or spectral Doppler" if mode & TRACES else "a three-dimensional rendering" if mode & RENDERED else ""


def is_secondary(image_type: Sequence[str]) -> bool:
    """Whether Image Type says that an image was made from others; compression with loss makes it DERIVED, too, but
    leaves it PRIMARY (PS3.3 C.7.6.1.1.2)."""
    return [*image_type[:1]] == ["DERIVED"] and [*image_type[1:2]] != ["PRIMARY"]


def has_traces(attributes: Dataset) -> bool:
    """Whether Image Type says that there is M-mode or spectral Doppler on the screen."""
    return bool(_image_type(attributes) & TRACES)


def _image_type(attributes: Dataset) -> int:
    values = words(attributes, "ImageType")
    try:
        return int(values[3], 16) if len(values) > 3 else 0
    except ValueError:
        return 0
