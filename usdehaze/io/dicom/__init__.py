"""DICOM in and out: ultrasound images decoded frame by frame, results as derived images."""

from usdehaze.io.dicom.read import DicomScan, open_dicom
from usdehaze.io.dicom.write import DicomWriter

__all__ = ["DicomScan", "DicomWriter", "open_dicom"]
