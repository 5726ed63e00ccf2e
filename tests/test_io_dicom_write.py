"""Derived images: their pixels, what they keep of the source, what they say of themselves."""

import struct
from dataclasses import replace
from io import BytesIO

import numpy as np
import pydicom
import pytest
from _dicom import SENTINEL, dataset, region, save, write_dicom
from _dicom_results import derive, lowered
from _scans import fan_frames
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset

import usdehaze
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.io.dicom import DicomScan, DicomWriter, open_dicom
from usdehaze.io.dicom.pixels_out import PixelDataWriter
from usdehaze.io.reading import with_options
from usdehaze.io.runs import run_of

SYNTAXES = {
    "explicit": uid.ExplicitVRLittleEndian,
    "rle": uid.RLELossless,
    "jpeg-ls": uid.JPEGLSLossless,
    "j2k": uid.JPEG2000Lossless,
}
BIG = dict(height=128, width=128)


def doppler_frames(n_frames=3):
    """A grey fan with a block of colour, an ECG trace and a yellow word on it."""
    rgb = np.repeat(fan_frames(n_frames, **BIG)[..., None], 3, axis=3)
    rng = np.random.default_rng(5)
    rgb[:, 60:90, 50:80] = rng.integers(0, 256, (n_frames, 30, 30, 3))
    rgb[:, 110, 20:110] = (0, 220, 0)
    rgb[:, 5:12, 5:30] = (230, 220, 10)
    return rgb


# --- pixels


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_grey_sources_give_8_bit_grey_with_the_levels_of_the_tissue(tmp_path, syntax):
    frames = fan_frames(3, **BIG)
    ds, frames_db = derive(
        write_dicom(tmp_path / "a.dcm", frames), tmp_path / "b.dcm", by_db=60 / 255 * 10, transfer_syntax=syntax
    )
    assert ds.file_meta.TransferSyntaxUID == SYNTAXES[syntax]
    assert (ds.PhotometricInterpretation, ds.SamplesPerPixel, ds.BitsAllocated, ds.HighBit) == ("MONOCHROME2", 1, 8, 7)
    changed = ds.pixel_array != frames
    assert np.array_equal(ds.pixel_array[changed], np.maximum(frames[changed].astype(int) - 10, 0))
    assert 0.3 < changed.mean() < 0.6 and np.array_equal(db_to_grey(frames_db, 60), frames)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_colour_stays_bit_for_bit_and_grey_tissue_goes_down(tmp_path, syntax):
    rgb = doppler_frames()
    ds, _ = derive(
        write_dicom(tmp_path / "a.dcm", rgb, "RGB"), tmp_path / "b.dcm", by_db=60 / 255 * 10, transfer_syntax=syntax
    )
    out = ds.pixel_array
    colour = np.ptp(rgb, axis=3) > 16
    assert colour.sum() > 3 * 900 * 0.9
    assert np.array_equal(out[colour], rgb[colour])
    changed = (out != rgb).any(axis=3)
    exact = changed & (np.ptp(rgb, axis=3) == 0)
    assert exact.mean() > 0.3
    assert np.array_equal(out[exact], np.maximum(rgb[exact].astype(int) - 10, 0))
    assert ds.PhotometricInterpretation == ("YBR_RCT" if syntax == "j2k" else "RGB")


def test_nothing_removed_is_the_source_bit_for_bit(tmp_path):
    for name, frames, photometric in (("grey", fan_frames(2), "MONOCHROME2"), ("rgb", doppler_frames(), "RGB")):
        ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames, photometric), tmp_path / f"{name}.dcm", by_db=0)
        assert np.array_equal(ds.pixel_array, frames)


def test_pixels_outside_the_region_stay_bit_for_bit(tmp_path):
    frames = np.random.default_rng(3).integers(60, 255, (2, 100, 120), dtype=np.uint8)
    path = write_dicom(tmp_path / "a.dcm", frames, regions=[region(20, 30, 79, 89)])
    ds, _ = derive(path, tmp_path / "b.dcm")
    changed = ds.pixel_array != frames
    assert changed[:, 30:90, 20:80].all() and changed.sum() == 2 * 60 * 60


def test_colour_in_one_late_frame_makes_the_whole_series_rgb(tmp_path):
    rgb = np.repeat(fan_frames(5)[..., None], 3, axis=3)
    path = write_dicom(tmp_path / "a.dcm", rgb, "RGB")
    assert derive(path, tmp_path / "b.dcm")[0].PhotometricInterpretation == "MONOCHROME2"
    rgb[4, 30, 30] = (200, 0, 0)
    path = write_dicom(tmp_path / "a.dcm", rgb, "RGB")
    ds, _ = derive(path, tmp_path / "c.dcm", chunk=1)
    assert ds.PhotometricInterpretation == "RGB" and ds.pixel_array[4, 30, 30].tolist() == [200, 0, 0]


@pytest.mark.parametrize("kind", ["MONOCHROME1", "12 bits", "PALETTE COLOR", "YBR_FULL"])
def test_other_sources_are_written_as_they_look(tmp_path, kind):
    frames = fan_frames(1)
    if kind == "12 bits":
        path = write_dicom(
            tmp_path / "a.dcm", frames.astype(np.uint16) * 16, bits=12, WindowCenter=2048, WindowWidth=4096
        )
        seen = np.rint(frames.astype(float) * 16 / 4095 * 255)
    elif kind == "PALETTE COLOR":
        ds = dataset(frames, kind)
        for name in ("Red", "Green", "Blue"):
            setattr(ds, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
            setattr(ds, f"{name}PaletteColorLookupTableData", (np.arange(256)[::-1] * 257).astype(np.uint16).tobytes())
        path, seen = save(tmp_path / "a.dcm", ds), 255 - frames
    elif kind == "YBR_FULL":
        path = write_dicom(tmp_path / "a.dcm", np.stack([frames, frames * 0 + 128, frames * 0 + 128], axis=3), kind)
        seen = frames
    else:
        path, seen = write_dicom(tmp_path / "a.dcm", frames, kind, WindowCenter=99, WindowWidth=50), 255 - frames
    ds, _ = derive(path, tmp_path / "b.dcm", by_db=0)
    assert ds.PhotometricInterpretation == "MONOCHROME2" and np.array_equal(ds.pixel_array, seen[0])
    assert "WindowCenter" not in ds and "RedPaletteColorLookupTableData" not in ds


def test_the_window_of_an_8_bit_grey_source_still_fits(tmp_path):
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(1), WindowCenter=99, WindowWidth=50), tmp_path / "b.dcm")
    assert (ds.WindowCenter, ds.WindowWidth) == (99, 50)


@pytest.mark.parametrize("slope", [-1, 0.5])
def test_rescaled_levels_are_written_as_they_look_without_a_window_of_other_values(tmp_path, slope):
    frames = fan_frames(1)
    more = {"RescaleSlope": slope, "RescaleIntercept": 255 if slope < 0 else 0, "WindowCenter": 64, "WindowWidth": 128}
    more["RealWorldValueMappingSequence"] = [Dataset()]
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames, **more), tmp_path / "b.dcm", by_db=0)
    assert np.array_equal(ds.pixel_array, (255 - frames if slope < 0 else frames)[0])
    assert "WindowCenter" not in ds and "RescaleSlope" not in ds and "RealWorldValueMappingSequence" not in ds


def test_the_haze_is_a_second_series_of_grey_levels(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", doppler_frames(), "RGB")
    tissue, _ = derive(path, tmp_path / "b.dcm")
    haze, _ = derive(path, tmp_path / "c.dcm", what="haze")
    assert haze.PhotometricInterpretation == "MONOCHROME2"
    assert set(np.unique(haze.pixel_array)) == {0, 170}  # -20 of 60 dB
    assert not haze.pixel_array[:, 60:90, 50:80][np.ptp(doppler_frames()[:, 60:90, 50:80], axis=3) > 16].any()
    assert haze.SeriesInstanceUID != tissue.SeriesInstanceUID and haze.SOPInstanceUID != tissue.SOPInstanceUID
    assert haze.StudyInstanceUID == tissue.StudyInstanceUID
    assert 3000 < tissue.SeriesNumber < 4000 and haze.SeriesNumber == tissue.SeriesNumber + 1
    assert haze.SeriesDescription == "Haze estimate (usdehaze fast)"


def test_an_odd_number_of_pixels_is_padded(tmp_path):
    frames = np.random.default_rng(0).integers(1, 255, (1, 11, 13), dtype=np.uint8)
    derive(write_dicom(tmp_path / "a.dcm", frames), tmp_path / "b.dcm", by_db=0)
    assert (tmp_path / "b.dcm").read_bytes()[-2:] == bytes([frames[0, -1, -1], 0])


@pytest.mark.parametrize("syntax", ["rle", "jpeg-ls", "j2k"])
@pytest.mark.parametrize("colour", [False, True])
def test_gdcm_reads_the_same_pixels(tmp_path, syntax, colour):
    gdcm = pytest.importorskip("gdcm")
    path = (
        write_dicom(tmp_path / "a.dcm", doppler_frames(), "RGB")
        if colour
        else write_dicom(tmp_path / "a.dcm", fan_frames(3, **BIG))
    )
    plain, _ = derive(path, tmp_path / "b.dcm")
    derive(path, tmp_path / "c.dcm", transfer_syntax=syntax)
    reader = gdcm.ImageReader()
    reader.SetFileName(str(tmp_path / "c.dcm"))
    assert reader.Read()
    image = reader.GetImage()
    assert image.GetDimensions() == [128, 128, 3]
    pixels = np.frombuffer(image.GetBuffer().encode("utf-8", "surrogateescape"), np.uint8)
    assert np.array_equal(pixels.reshape(plain.pixel_array.shape), plain.pixel_array)


def test_frames_of_a_compressed_file_are_found_by_its_offset_table(tmp_path):
    from pydicom.encaps import parse_basic_offsets, parse_fragments

    ds, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(5)), tmp_path / "b.dcm", transfer_syntax="rle")
    data = BytesIO(ds.PixelData)
    offsets = parse_basic_offsets(data)
    first = data.tell()
    _, fragments = parse_fragments(data)
    assert len(offsets) == 5 and [first + offset for offset in offsets] == fragments


def test_more_pixels_than_a_dicom_object_holds(tmp_path):
    with open(tmp_path / "a", "w+b") as file, pytest.raises(ValueError, match="GiB of pixels"):
        PixelDataWriter(file, "explicit", 10_000, (800, 1000))


# --- attributes


def test_identity_stays_and_instance_and_series_are_new(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(3), regions=[region()], BurnedInAnnotation="YES")
    source, (ds, _) = pydicom.dcmread(path), derive(path, tmp_path / "b.dcm")
    for keyword in (
        "PatientName PatientID PatientBirthDate PatientSex StudyInstanceUID StudyDate StudyTime StudyID "
        "AccessionNumber ReferringPhysicianName InstanceNumber Manufacturer Modality BurnedInAnnotation "
        "SequenceOfUltrasoundRegions SpecificCharacterSet FrameTime"
    ).split():
        assert ds[keyword] == source[keyword], keyword
    assert ds.PatientName == SENTINEL
    for keyword in ("SOPInstanceUID", "SeriesInstanceUID"):
        assert ds[keyword].value != source[keyword].value and ds[keyword].value.is_valid
    assert ds.file_meta.MediaStorageSOPInstanceUID == ds.SOPInstanceUID
    assert ds.SOPClassUID == ds.file_meta.MediaStorageSOPClassUID == uid.UltrasoundMultiFrameImageStorage
    assert ds.ImageType == ["DERIVED", "SECONDARY", "ABDOMINAL", "0001"]


def test_it_says_from_what_and_how_it_was_derived(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(6))
    ds, _ = derive(path, tmp_path / "b.dcm", frames=slice(2, 4))
    (image,) = ds.SourceImageSequence
    assert (image.ReferencedSOPClassUID, image.ReferencedSOPInstanceUID) == (
        uid.UltrasoundMultiFrameImageStorage,
        "1.2.3.4.5.6",
    )
    assert image.ReferencedFrameNumber == [3, 4]
    assert image.PurposeOfReferenceCodeSequence[0].CodeValue == "121322"
    (code,) = ds.DerivationCodeSequence
    assert (code.CodeValue, code.CodingSchemeDesignator) == ("113062", "DCM")
    assert f"usdehaze {usdehaze.__version__}" in ds.DerivationDescription and "steps 32" in ds.DerivationDescription
    (equipment,) = ds.ContributingEquipmentSequence
    assert equipment.PurposeOfReferenceCodeSequence[0].CodeMeaning == "Processing Equipment"
    assert (equipment.Manufacturer, equipment.SoftwareVersions) == ("usdehaze", usdehaze.__version__)
    assert "tissue-v1 sha256:0123" in equipment.ContributionDescription
    assert "haze-v1 sha256:4567" in equipment.ContributionDescription


def part_of(tmp_path, **attributes):
    """An image derived from frames 1 and 2 of four in RGB."""
    rgb = np.repeat(fan_frames(4)[..., None], 3, axis=3)
    return derive(write_dicom(tmp_path / "a.dcm", rgb, "RGB", **attributes), tmp_path / "b.dcm", frames=slice(1, 3))[0]


@pytest.mark.parametrize("kind", ["1.2.840.10008.5.1.4.1.1.7.4", "1.2.840.10008.5.1.4.1.1.3"])
def test_part_of_a_capture_or_a_retired_image_names_its_frames(tmp_path, kind):
    assert part_of(tmp_path, SOPClassUID=kind).SourceImageSequence[0].ReferencedFrameNumber == [2, 3]


def test_what_is_told_by_frame_does_not_outlive_the_frames(tmp_path):
    group, mask = Dataset(), Dataset()
    mask.MaskOperation, mask.ApplicableFrameRange = "AVG_SUB", [1, 4]
    bound = {"RWaveTimeVector": [10.0, 50.0], "MaskSubtractionSequence": [mask], "RecommendedViewingMode": "SUB"}
    groups = {"SharedFunctionalGroupsSequence": [group], "PerFrameFunctionalGroupsSequence": [group] * 4}
    ds = part_of(tmp_path, SOPClassUID="1.2.840.10008.5.1.4.1.1.7.4", **bound, **groups)
    assert not [keyword for keyword in bound | groups if keyword in ds]
    whole, _ = derive(tmp_path / "a.dcm", tmp_path / "c.dcm")
    assert [keyword for keyword in bound if keyword in whole] == [*bound]
    assert not [keyword for keyword in groups if keyword in whole]


def test_a_source_without_uids_gives_valid_ones_and_a_note(tmp_path):
    made = set()
    for name in "ab":
        frames = fan_frames(1, seed=ord(name))
        path = write_dicom(tmp_path / f"{name}.dcm", frames, StudyInstanceUID=None, SeriesInstanceUID=None)
        content = path.read_bytes()
        path.write_bytes(content.replace(b"1.2.3.4.5.6\0", b"\0" * 12))
        ds, _ = derive(path, tmp_path / "out.dcm")
        assert ds.StudyInstanceUID.is_valid and "SourceImageSequence" not in ds
        assert "No SOP Instance UID in the file" in ds.DerivationDescription
        assert "No Study Instance UID in the file" in ds.DerivationDescription
        made |= {ds.StudyInstanceUID, ds.SeriesInstanceUID}
    assert len(made) == 4  # images of who knows whom do not meet


def test_uids_depend_on_the_source_and_on_how_it_was_made_and_on_nothing_else(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(4))
    other = write_dicom(tmp_path / "other.dcm", fan_frames(4), SOPInstanceUID="1.2.3.4.5.7")

    def uids(source=path, **options):
        ds, _ = derive(source, tmp_path / "b.dcm", **options)
        return ds.SeriesInstanceUID, ds.SOPInstanceUID

    made = uids()
    assert uids() == made == uids(transfer_syntax="rle", chunk=1)
    assert uids(settings={"seed": 1})[0] != made[0] and uids(settings={"seed": 1})[1] != made[1]
    assert uids(settings={"tissue_prior": "another"})[1] != made[1]
    assert uids(frames=slice(0, 2))[0] == made[0] and uids(frames=slice(0, 2))[1] != made[1]
    assert uids(other)[0] == made[0] and uids(other)[1] != made[1]  # images of one series share the derived one


def test_images_read_with_other_options_are_other_images_of_another_run(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(2))
    made, runs = [], set()
    for options in ({}, {"levels": (0, 200)}, {"levels": (255, 0)}, {"rectangle": True}):
        with DicomScan(path, with_options(None, path, **options)) as scan:
            with DicomWriter(tmp_path / "b.dcm", scan, overwrite=True) as writer:
                writer.append(lowered(scan.read()))
            runs.add(run_of(tmp_path / "b.dcm"))
        made.append(pydicom.dcmread(tmp_path / "b.dcm"))
    for keyword in ("SOPInstanceUID", "SeriesInstanceUID", "SeriesNumber"):
        assert len({ds[keyword].value for ds in made}) == 4, keyword
    assert len(runs) == 4
    assert "read with --levels 0:200" in made[1].DerivationDescription
    assert "read with" not in made[0].DerivationDescription


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize(("levels", "step"), [((0, 200), 20), ((20, 200), 18), ((200, 0), -20)])
def test_levels_that_were_asked_for_are_those_of_the_pixels_too(tmp_path, colour, levels, step):
    """6 of 60 dB are a tenth of the levels between black and white; text beside the image keeps its own."""
    stored = fan_frames(1).clip(0, 200)
    stored[:, 2:4, 2:20] = 250
    stored = np.repeat(stored[..., None], 3, axis=-1) if colour else stored
    if colour:
        stored[:, 2:4, 30:40] = (200, 0, 0)
    path = write_dicom(tmp_path / "a.dcm", stored, "RGB" if colour else "MONOCHROME2", regions=[region(0, 5, 63, 63)])
    with DicomScan(path, with_options(None, path, levels=levels)) as scan:
        with DicomWriter(tmp_path / "b.dcm", scan) as writer:
            writer.append(lowered(scan.read()))
    out = pydicom.dcmread(tmp_path / "b.dcm").pixel_array.astype(int)
    assert np.array_equal(out[:5], stored[0, :5])
    part = slice(20, 50), slice(28, 36)  # in the fan
    moved, before = out[part] - stored[0][part], stored[0][part]
    assert (moved[(before > 45) & (before < 175)] == -step).all()


@pytest.mark.parametrize("n_notes", [1, 30])
def test_what_was_done_is_told_however_much_there_is_to_tell_besides(tmp_path, n_notes):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(1), DerivationDescription="b" * 1000)
    with open_dicom(path) as scan:
        scan.source = replace(scan.source, assumptions=("Something was assumed of the file.",) * n_notes)
        with DicomWriter(tmp_path / "b.dcm", scan) as writer:
            writer.append(lowered(scan.read()))
    told = pydicom.dcmread(tmp_path / "b.dcm").DerivationDescription
    assert len(told) <= 1024 and "Ultrasound with its haze removed by usdehaze" in told and told.endswith("seed 0")
    assert "Something was assumed of the file." in told and told.startswith("b" * 100) == (n_notes == 1)


def test_what_belongs_to_the_source_alone_is_dropped(tmp_path):
    ds = dataset(fan_frames(1))
    block = ds.private_block(0x0029, "MAKER", create=True)
    block.add_new(1, "LO", "private")
    icon = Dataset()
    icon.Rows = icon.Columns = 1
    ds.IconImageSequence = [icon]
    ds.DigitalSignaturesSequence = [Dataset()]
    ds.MACParametersSequence = [Dataset()]
    ds.add_new(0x60000010, "US", 64)  # overlay rows
    ds.add_new(0x60003000, "OW", bytes(512))
    ds.add_new(0x50000010, "US", 1)  # a retired curve
    nested = Dataset()
    nested.ReferencedSOPClassUID, nested.ReferencedSOPInstanceUID = uid.UltrasoundImageStorage, "1.2.3"
    nested.private_block(0x0029, "MAKER", create=True).add_new(1, "LO", "private")
    ds.ReferencedImageSequence = [nested]
    ds.SmallestImagePixelValue = 3
    ds.ConcatenationUID, ds.InConcatenationNumber, ds.ConcatenationFrameOffsetNumber = "1.2.9", 2, 40
    out, _ = derive(save(tmp_path / "a.dcm", ds), tmp_path / "b.dcm")
    tags = {element.tag for element in out.iterall()}
    assert not any(tag.is_private or tag.group in (0x6000, 0x5000) for tag in tags)
    for keyword in (
        "IconImageSequence",
        "DigitalSignaturesSequence",
        "MACParametersSequence",
        "SmallestImagePixelValue",
        "ConcatenationUID",
        "InConcatenationNumber",
        "ConcatenationFrameOffsetNumber",
    ):
        assert keyword not in out
    assert out.ReferencedImageSequence[0].ReferencedSOPInstanceUID == "1.2.3"
    assert b"private" not in (tmp_path / "b.dcm").read_bytes()


@pytest.mark.parametrize("said", ["YES", "NO", None])
def test_burned_in_annotation_is_what_the_source_says(tmp_path, said):
    more = {} if said is None else {"BurnedInAnnotation": said}
    for what in ("tissue", "haze"):
        ds, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(1), **more), tmp_path / "b.dcm", what=what)
        assert ds.get("BurnedInAnnotation") == said


def test_frame_time_vector_is_cut_along(tmp_path):
    vector = [0, 10.5, 20, 30, 40]
    path = write_dicom(
        tmp_path / "a.dcm", fan_frames(5), FrameTimeVector=vector, FrameIncrementPointer=0x00181065, FrameTime=None
    )
    path_first = tmp_path / "b.dcm"
    ds, _ = derive(path, path_first, frames=slice(1, 4))
    assert [float(value) for value in ds.FrameTimeVector] == [0, 20, 30] and ds.NumberOfFrames == 3
    assert ds.FrameIncrementPointer == 0x00181065
    with open_dicom(path_first) as again:
        assert again.frame_times_s == pytest.approx([0, 0.02, 0.05])


def test_a_frame_time_vector_of_more_than_64_kib_keeps_its_times(tmp_path):
    """With explicit VR it is of VR UN, for its length (PS3.5 6.2.2)."""
    vector = [0, *(f"{33.3333 + i % 10 / 10000:.4f}" for i in range(8499))]
    frames = np.repeat(fan_frames(1, 16, 16), 8500, axis=0)
    ds = dataset(frames, FrameTimeVector=vector, FrameIncrementPointer=0x00181065, FrameTime=None)
    source = save(tmp_path / "a.dcm", ds, uid.ImplicitVRLittleEndian)
    derive(source, tmp_path / "b.dcm", chunk=8500)
    with open_dicom(source) as scan, open_dicom(tmp_path / "b.dcm") as again:
        assert again.frame_times_s == pytest.approx(scan.frame_times_s)
        assert scan.frame_times_s[-1] == pytest.approx(sum(map(float, vector)) / 1000)


def test_a_single_frame_of_a_cine_says_nothing_of_time(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(5), SOPClassUID=uid.UltrasoundImageStorage)
    ds, _ = derive(path, tmp_path / "b.dcm", frames=slice(1, 2))
    assert ds.SOPClassUID == uid.UltrasoundImageStorage
    assert not any(keyword in ds for keyword in ("NumberOfFrames", "FrameTime", "FrameIncrementPointer"))


def test_frames_without_times_are_told_apart_by_number(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(4), FrameTime=None, FrameIncrementPointer=None)
    ds, _ = derive(path, tmp_path / "b.dcm", frames=slice(1, 4))
    assert ds.FrameLabelVector == ["Frame 2", "Frame 3", "Frame 4"] and ds.FrameIncrementPointer == 0x00182002
    path = write_dicom(tmp_path / "a.dcm", fan_frames(4), FrameTime=None, FrameIncrementPointer=None, CineRate=50)
    ds, _ = derive(path, tmp_path / "b.dcm")
    assert ds.FrameTime == 20 and ds.FrameIncrementPointer == 0x00181063


def test_lossy_history_is_kept_and_completed(tmp_path):
    history = {"LossyImageCompression": "01", "LossyImageCompressionRatio": [10, 3]}
    history["LossyImageCompressionMethod"] = ["ISO_10918_1", "ISO_15444_1"]
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", fan_frames(1), **history), tmp_path / "b.dcm", transfer_syntax="rle")
    for keyword, value in history.items():
        assert ds[keyword].value == value
    ds, _ = derive(get_testdata_file("examples_ybr_color.dcm"), tmp_path / "b.dcm", frames=slice(0, 1))
    assert ds.LossyImageCompression == "01"
    near = dataset(fan_frames(2))
    near.compress(uid.JPEGLSNearLossless, fan_frames(2), jls_error=2, generate_instance_uid=False)
    for keyword in [keyword for keyword in history if keyword in near]:
        del near[keyword]
    ds, _ = derive(save(tmp_path / "a.dcm", near, uid.JPEGLSNearLossless), tmp_path / "b.dcm")
    assert (ds.LossyImageCompression, ds.LossyImageCompressionMethod) == ("01", "ISO_14495_1")
    assert 1 < ds.LossyImageCompressionRatio < 10


@pytest.mark.parametrize("syntax", [uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian])
def test_other_encodings_become_explicit_little_endian(tmp_path, syntax):
    ds = dataset(fan_frames(2), regions=[region(ReferencePixelX0=-5)])
    if syntax == uid.ImplicitVRLittleEndian:
        ds["PixelData"].VR = "OW"
    out, _ = derive(save(tmp_path / "a.dcm", ds, syntax), tmp_path / "b.dcm")
    item = out.SequenceOfUltrasoundRegions[0]
    assert (item.RegionLocationMaxX1, item.ReferencePixelX0, item.PhysicalDeltaX) == (63, -5, 0.05)
    assert (out.PatientName, out.FrameTime, out.Rows) == (SENTINEL, 40, 64)


@pytest.mark.parametrize(
    ("charset", "name"),
    [
        ("ISO_IR 100", "Müller^Jürgen".encode("latin-1")),
        ("ISO_IR 192", "Müller^Jürgen".encode()),
        ("\\ISO 2022 IR 87", b"Yamada^Tarou=\x1b$B;3ED\x1b(B^\x1b$BB@O:\x1b(B"),
        ("ISO_IR 192", b"M\xfcller^broken"),  # latin-1 bytes under another name
        ("ISO_IR 6789", b"M\xfcller^unknown"),
    ],
)
def test_a_name_keeps_its_bytes_whatever_the_character_set(tmp_path, charset, name):
    ds = dataset(fan_frames(1), SpecificCharacterSet="X" * len(charset), PatientName="P" * len(name))
    path = save(tmp_path / "a.dcm", ds)
    content = path.read_bytes().replace(b"X" * len(charset), charset.encode(), 1).replace(b"P" * len(name), name, 1)
    path.write_bytes(content)
    derive(path, tmp_path / "b.dcm")
    out = (tmp_path / "b.dcm").read_bytes()
    length = len(name) + len(name) % 2
    assert struct.pack("<HH2sH", 0x0010, 0x0010, b"PN", length) + name in out
    assert charset.encode() in out


@pytest.mark.parametrize("group", [0, 2])
def test_elements_of_commands_and_headers_among_the_attributes_are_left_out(tmp_path, group):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(1))
    before, stray = b"\x10\0\x20\0LO", struct.pack("<HH2sH4s", group, 0x16, b"AE", 4, b"TITL")
    assert path.read_bytes().count(before) == 1
    path.write_bytes(path.read_bytes().replace(before, stray + before))
    ds, _ = derive(path, tmp_path / "b.dcm")
    assert ds.PatientID == "SENTINEL-ID" and ds.PatientName == SENTINEL and (group, 0x16) not in ds


def test_an_attribute_that_cannot_be_read_does_not_stop_the_others(tmp_path):
    ds = dataset(fan_frames(1))
    path = save(tmp_path / "a.dcm", ds)
    broken = path.read_bytes().replace(
        struct.pack("<HH2sH", 0x0020, 0x0013, b"IS", 2), b"\x20\x00\x13\x00QQ\x02\x00", 1
    )
    path.write_bytes(broken)
    out, _ = derive(path, tmp_path / "b.dcm")
    assert out.PatientName == SENTINEL and "Rows" in out


# --- files


def test_the_file_appears_whole_or_not_at_all(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", fan_frames(4))
    before = path.read_bytes()
    with open_dicom(path) as scan:
        with pytest.raises(RuntimeError, match="2 of 4 frames"), DicomWriter(tmp_path / "b.dcm", scan) as writer:
            writer.append(lowered(scan.read(0, 2)))
        with pytest.raises(KeyboardInterrupt), DicomWriter(tmp_path / "b.dcm", scan, transfer_syntax="rle") as writer:
            writer.append(lowered(scan.read(0, 2)))
            raise KeyboardInterrupt
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.dcm"]
    derive(path, tmp_path / "b.dcm")
    with open_dicom(path) as scan, pytest.raises(InputError, match="exists already"):
        with DicomWriter(tmp_path / "b.dcm", scan):
            pass
    assert path.read_bytes() == before


def test_a_derived_image_can_be_read_again(tmp_path):
    for name, frames, photometric in (("grey", fan_frames(3), "MONOCHROME2"), ("rgb", doppler_frames(), "RGB")):
        for syntax in SYNTAXES:
            ds, _ = derive(
                write_dicom(tmp_path / "a.dcm", frames, photometric), tmp_path / f"{name}.dcm", transfer_syntax=syntax
            )
            with open_dicom(tmp_path / f"{name}.dcm") as scan:
                picture = scan.picture(2)
                assert np.array_equal(picture.levels if picture.rgb is None else picture.rgb, ds.pixel_array[2])


def test_images_made_of_one_opened_source_do_not_change_what_the_next_one_is_told_of_it(tmp_path):
    times = {"FrameTimeVector": [0, 40, 50, 60], "FrameIncrementPointer": 0x00181065, "SeriesDescription": "apical"}
    source = write_dicom(tmp_path / "a.dcm", fan_frames(4), **times)
    alone, _ = derive(source, tmp_path / "alone.dcm", frames=slice(1, 3), what="haze")
    with open_dicom(source, frames=slice(1, 3)) as scan:
        paths = {what: tmp_path / f"{what}.dcm" for what in ("tissue", "haze")}
        for what, path in paths.items():
            with DicomWriter(path, scan, what=what) as writer:
                writer.append(lowered(scan.read(0, 2)))
        assert (scan.attributes.SOPInstanceUID, scan.attributes.NumberOfFrames) == ("1.2.3.4.5.6", 4)
    tissue, haze = map(pydicom.dcmread, paths.values())
    for image in (tissue, haze):
        assert image.SourceImageSequence[0].ReferencedSOPInstanceUID == "1.2.3.4.5.6"
        assert list(image.FrameTimeVector) == [0, 50] and image.SeriesDescription.endswith(": apical")
    assert haze == alone
