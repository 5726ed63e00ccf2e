"""usdehaze as steps of a MONAI pipeline: array versions, and dictionary versions (``d``, also ``D`` and ``Dict``).

Frames are ``(T, H, W)`` in dB, on the channel axis: every 2-D MONAI transform acts on each frame.
"""

from .dehaze import DehazeUltrasound, DehazeUltrasoundD, DehazeUltrasoundd, DehazeUltrasoundDict
from .load import LoadUltrasound, LoadUltrasoundD, LoadUltrasoundd, LoadUltrasoundDict
from .save import SaveUltrasoundD, SaveUltrasoundd, SaveUltrasoundDict

__all__ = [
    "DehazeUltrasound",
    "DehazeUltrasoundD",
    "DehazeUltrasoundDict",
    "DehazeUltrasoundd",
    "LoadUltrasound",
    "LoadUltrasoundD",
    "LoadUltrasoundDict",
    "LoadUltrasoundd",
    "SaveUltrasoundD",
    "SaveUltrasoundDict",
    "SaveUltrasoundd",
]
