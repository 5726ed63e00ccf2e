"""A line written into the picture of a derived image, so that nobody takes it for the source."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SMALLEST_PX, ROWS_A_PIXEL = 10, 40  # size of the letters: a fortieth of the picture


class Mark:
    """A line in white on black, in the corner of a picture where it covers least.

    Args:
        text: the line.
        image: ``(H, W)`` bool, pixels of the images on the screen, which it keeps off where it can.
        first: ``(H, W)`` or ``(H, W, 3)`` uint8, the first picture: what else it keeps off.
    """

    def __init__(self, text: str, image: np.ndarray, first: np.ndarray) -> None:
        height, width = image.shape
        font = ImageFont.load_default(size=max(SMALLEST_PX, height // ROWS_A_PIXEL))
        left, top, right, bottom = (int(side) for side in font.getbbox(text))
        canvas = Image.new("L", (min(right - left + 4, width), min(bottom - top + 4, height)))
        ImageDraw.Draw(canvas).text((2 - left, 2 - top), text, fill=255, font=font)
        self.letters = np.asarray(canvas)
        rows, columns = self.letters.shape
        busy = image + (first if first.ndim == 2 else first.max(axis=2)) / 1000
        corners = [(y, x) for y in (height - rows, 0) for x in (0, width - columns)]
        self.corner = min(corners, key=lambda at: float(busy[at[0] : at[0] + rows, at[1] : at[1] + columns].sum()))

    def on(self, picture: np.ndarray) -> np.ndarray:
        """A copy of a picture ``(H, W)`` or ``(H, W, 3)`` uint8 with the line in it."""
        marked = picture.copy()
        (y, x), (rows, columns) = self.corner, self.letters.shape
        marked[y : y + rows, x : x + columns] = self.letters if picture.ndim == 2 else self.letters[..., None]
        return marked
