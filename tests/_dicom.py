"""Small DICOM files for tests, made with pydicom."""

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.filewriter import dcmwrite
from pydicom.uid import UID, ExplicitVRLittleEndian

US, US_MULTIFRAME = "1.2.840.10008.5.1.4.1.1.6.1", "1.2.840.10008.5.1.4.1.1.3.1"
SENTINEL = "SENTINEL^PATIENT"


def region(left=0, top=0, right=63, bottom=63, *, delta=(0.05, 0.05), units=3, kind=(1, 1), **more):
    """Item of Sequence of Ultrasound Regions; ``delta`` is (row, column), ``kind`` (spatial format, data type)."""
    item = Dataset()
    item.RegionSpatialFormat, item.RegionDataType = kind
    item.RegionFlags = 0
    item.RegionLocationMinX0, item.RegionLocationMinY0 = left, top
    item.RegionLocationMaxX1, item.RegionLocationMaxY1 = right, bottom
    item.PhysicalUnitsXDirection = item.PhysicalUnitsYDirection = units
    item.PhysicalDeltaY, item.PhysicalDeltaX = delta
    for keyword, value in more.items():
        setattr(item, keyword, value)
    return item


def dataset(frames, photometric="MONOCHROME2", *, bits=None, regions=(), **attributes):
    """``(T, H, W)`` or ``(T, H, W, 3)`` integers as an ultrasound image, not written yet.

    Attributes by keyword; None leaves one out.
    """
    frames = np.asarray(frames)
    ds = Dataset()
    ds.SpecificCharacterSet = "ISO_IR 100"
    ds.ImageType = ["ORIGINAL", "PRIMARY", "ABDOMINAL", "0001"]
    ds.SOPClassUID, ds.SOPInstanceUID = (US_MULTIFRAME if len(frames) > 1 else US), "1.2.3.4.5.6"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = "1.2.3.4", "1.2.3.4.5"
    ds.Modality, ds.PatientName, ds.PatientID = "US", SENTINEL, "SENTINEL-ID"
    ds.PatientBirthDate, ds.PatientSex = "19010203", "O"
    ds.StudyDate, ds.StudyTime, ds.StudyID, ds.AccessionNumber = "19870605", "040302", "S-ID", "A-NUMBER"
    ds.ReferringPhysicianName, ds.Manufacturer = "SENTINEL^DOCTOR", "Maker"
    ds.SeriesNumber, ds.InstanceNumber, ds.PatientOrientation = 3, 7, ""
    ds.SamplesPerPixel = frames.shape[3] if frames.ndim == 4 else 1
    ds.PhotometricInterpretation = photometric
    if frames.ndim == 4:
        ds.PlanarConfiguration = 0
    if len(frames) > 1:
        ds.NumberOfFrames, ds.FrameTime, ds.FrameIncrementPointer = len(frames), 40, 0x00181063
    ds.Rows, ds.Columns = frames.shape[1:3]
    ds.BitsAllocated = 8 * frames.dtype.itemsize
    ds.BitsStored = bits or ds.BitsAllocated
    ds.HighBit, ds.PixelRepresentation = ds.BitsStored - 1, 0
    if regions:
        ds.SequenceOfUltrasoundRegions = list(regions)
    ds.PixelData = frames.tobytes() + b"\0" * (frames.nbytes % 2)
    ds["PixelData"].VR = "OB" if frames.dtype.itemsize == 1 else "OW"
    for keyword, value in attributes.items():
        if value is None:
            delattr(ds, keyword)
        else:
            setattr(ds, keyword, value)
    return ds


def save(path, ds, syntax=ExplicitVRLittleEndian):
    """Writes it as it is, however wrong."""
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = UID(syntax)
    ds.file_meta.MediaStorageSOPClassUID = ds.get("SOPClassUID", "")
    ds.file_meta.MediaStorageSOPInstanceUID = ds.get("SOPInstanceUID", "")
    ds.preamble = bytes(128)
    ds.file_meta.FileMetaInformationGroupLength = 0  # put right as it is written
    if UID(syntax).name != syntax:
        dcmwrite(path, ds, enforce_file_format=False)
        return path
    stand_in = "1.2.840.10008.1.2.4.100"  # pydicom writes no syntax that it does not know
    ds.file_meta.TransferSyntaxUID = UID(stand_in)
    dcmwrite(path, ds, enforce_file_format=False)
    assert len(syntax) <= len(stand_in)
    path.write_bytes(path.read_bytes().replace(stand_in.encode(), syntax.encode().ljust(len(stand_in), b"\0"), 1))
    return path


def write_dicom(path, frames, photometric="MONOCHROME2", syntax=ExplicitVRLittleEndian, **options):
    """`dataset` and `save` at once; compressed syntaxes through pydicom's encoders."""
    ds = dataset(frames, photometric, **options)
    if UID(syntax).is_compressed:
        ds.compress(
            syntax, np.squeeze(frames, 0) if len(frames) == 1 else np.asarray(frames), generate_instance_uid=False
        )
    return save(path, ds, syntax)
