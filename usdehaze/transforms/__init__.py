"""usdehaze as steps of a MONAI pipeline: array versions, and dictionary versions (``d``, also ``D`` and ``Dict``).

Frames are ``(T, H, W)`` in dB, on the channel axis: every 2-D MONAI transform acts on each frame; on request
``(1, T, H, W)``, see `usdehaze.transforms.layout`. Readers and writers
let MONAI's own ``LoadImage(d)`` and ``SaveImage(d)`` read scans and write results.
"""

from .batch import dehaze_all
from .dehaze import DehazeUltrasound, DehazeUltrasoundD, DehazeUltrasoundd, DehazeUltrasoundDict
from .grey import DbToGrey, DbToGreyD, DbToGreyd, DbToGreyDict
from .load import LoadUltrasound, LoadUltrasoundD, LoadUltrasoundd, LoadUltrasoundDict
from .readers import UltrasoundDicomReader, UltrasoundHDF5Reader, UltrasoundReader
from .save import SaveUltrasoundD, SaveUltrasoundd, SaveUltrasoundDict
from .writers import UltrasoundDicomWriter, UltrasoundHDF5Writer, register_writers

__all__ = [
    "DbToGrey",
    "DbToGreyD",
    "DbToGreyDict",
    "DbToGreyd",
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
    "UltrasoundDicomReader",
    "UltrasoundDicomWriter",
    "UltrasoundHDF5Reader",
    "UltrasoundHDF5Writer",
    "UltrasoundReader",
    "dehaze_all",
]

register_writers()
