"""DICOM in and out: ultrasound images decoded frame by frame, results as derived images."""

from usdehaze.io.dicom.read import DicomScan, open_dicom

__all__ = ["DicomScan", "open_dicom"]
