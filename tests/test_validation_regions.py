"""Regions of interest: the right pixels, and one clear line for every file that cannot be used."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels.utils import pack_bits
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from usdehaze.cine import Cartesian, Cine, Polar, Sector
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.geometry import sector_mask
from usdehaze.validation.regions import (
    automatic_regions,
    find_regions,
    parse_labels,
    polygon_mask,
    read_regions,
)
from usdehaze.validation.regions.automatic import BINS, otsu_level

SHAPE = (3, 20, 30)
TISSUE = {"name": "wall", "role": "tissue", "frames": [0], "polygon": [[2, 3], [8, 3], [8, 10], [2, 10]]}
HAZE = {"name": "cavity", "role": "haze", "polygon": [[10, 3], [25, 3], [25, 15], [10, 15]]}


def written(path: Path, *regions: Any) -> Path:
    path.write_text(json.dumps({"regions": list(regions)}))
    return path


def test_polygons_cover_x_to_the_right_and_y_down_in_their_frames(tmp_path: Path) -> None:
    regions = read_regions(written(tmp_path / "r.json", TISSUE, HAZE), SHAPE)
    expected = np.zeros(SHAPE[1:], dtype=bool)
    expected[3:10, 2:8] = True  # rows are y, columns are x; 6 x 7 pixels = the polygon's area
    assert np.array_equal(regions.mask("tissue", 0), expected)
    assert not regions.mask("tissue", 1).any()
    assert regions.mask("haze", 2).sum() == 15 * 12
    assert regions.frames() == [0]


def test_a_slanted_polygon_covers_the_pixel_centres_that_a_ray_says_are_inside() -> None:
    polygon = np.array([[2.3, 1.1], [17.7, 6.4], [9.2, 18.6], [7.5, 9.9]])
    mask = polygon_mask(polygon, (20, 20))
    (x, y), (x_next, y_next) = polygon.T, np.roll(polygon, -1, axis=0).T
    area = 0.5 * abs(np.sum(x * y_next - x_next * y))
    assert mask.sum() == pytest.approx(area, rel=0.05)
    assert mask[7, 10] and not mask[14, 7] and not mask[2, 15]  # inside, in the notch, above the slope


def test_polygons_that_share_an_edge_share_no_pixel() -> None:
    corners = np.array([[1.0, 1.0], [15.0, 2.0], [17.0, 16.0], [3.0, 14.0]])
    whole = polygon_mask(corners, (20, 20))
    halves = [polygon_mask(corners[[0, 1, 2]], (20, 20)), polygon_mask(corners[[0, 2, 3]], (20, 20))]
    assert not (halves[0] & halves[1]).any()
    assert np.array_equal(halves[0] | halves[1], whole)


def test_the_whole_frame_can_be_outlined() -> None:
    polygon = np.array([[-0.5, -0.5], [29.5, -0.5], [29.5, 19.5], [-0.5, 19.5]])
    assert polygon_mask(polygon, (20, 30)).all()


def test_labels_of_a_palette_with_colours_are_its_numbers_and_of_a_grey_one_its_levels(tmp_path: Path) -> None:
    numbers = np.zeros((12, 16), np.uint8)
    numbers[:6], numbers[6:, 8:] = 1, 2
    for name, second, labels in (("l.png", (128, 0, 0), "tissue=1 haze=2"), ("grey.png", (128, 128, 128), None)):
        image = Image.fromarray(numbers, "P")
        image.putpalette([0, 0, 0, 255, 255, 255, *second])
        image.save(tmp_path / name)
        found = read_regions(tmp_path / name, (1, 12, 16), labels=labels and parse_labels(labels))
        assert np.array_equal(found.mask("tissue", 0), numbers == 1) and np.array_equal(
            found.mask("haze", 0), numbers == 2
        )


def test_label_png_and_label_hdf5_give_the_same_regions(tmp_path: Path) -> None:
    labels = np.zeros(SHAPE[1:], dtype=np.uint8)
    labels[2:6, 3:9], labels[10:18, 4:20], labels[0, 0] = 255, 128, 85
    Image.fromarray(labels).save(tmp_path / "l.png")
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["image"] = np.ones(SHAPE, dtype=np.uint8)
        file["label"] = labels
    with h5py.File(tmp_path / "moving.h5", "w") as file:
        file["anything"] = np.stack([labels, np.roll(labels, 1, axis=0), 0 * labels])
    for name in ("l.png", "l.h5"):
        regions = read_regions(tmp_path / name, SHAPE)
        assert regions.frames() == [0, 1, 2]
        assert np.array_equal(regions.mask("tissue", 1), labels == 255)
        assert np.array_equal(regions.mask("haze", 1), labels == 128)
    moving = read_regions(tmp_path / "moving.h5", SHAPE)
    assert moving.frames() == [0, 1]
    assert np.array_equal(moving.mask("haze", 1), np.roll(labels, 1, axis=0) == 128)


def test_a_stack_of_labels_is_of_the_result_or_of_all_of_its_source(tmp_path: Path) -> None:
    """One of another number of frames belongs to another scan."""
    labels = np.zeros((6, *SHAPE[1:]), np.uint8)
    for k in range(6):
        labels[k, 2 + k : 6 + k, 3:9], labels[k, 14:18, 4:20] = 255, 128
    for n in (3, 4, 5, 6):
        with h5py.File(tmp_path / f"{n}.h5", "w") as file:
            file["label"] = labels[:n]
        nibabel = pytest.importorskip("nibabel")
        nibabel.Nifti1Image(labels[:n].T, np.eye(4)).to_filename(tmp_path / f"{n}.nii")
    for suffix, said in (("h5", r"no label dataset that fits"), ("nii", "labels of . frames")):
        for n, first in ((3, 0), (5, 2)):
            regions = read_regions(tmp_path / f"{n}.{suffix}", SHAPE, 2, source_frames=5)
            assert np.array_equal(regions.mask("tissue", 1), labels[first + 1] == 255)
        for n in (4, 6):
            with pytest.raises(InputError, match=said):
                read_regions(tmp_path / f"{n}.{suffix}", SHAPE, 2, source_frames=5)


def test_polygons_in_millimetres_cover_what_they_cover_in_pixels(tmp_path: Path) -> None:
    geometry = Cartesian(spacing_m=(0.5e-3, 0.25e-3), origin_m=(5e-3, -4e-3))
    in_mm = [[-4 + 0.25 * x, 5 + 0.5 * y] for x, y in TISSUE["polygon"]]
    pixels = read_regions(written(tmp_path / "px.json", TISSUE, HAZE), SHAPE)
    mixed = written(tmp_path / "mm.json", {**TISSUE, "polygon": in_mm, "units": "mm"}, HAZE)
    metres = {"units": "m", "regions": [{**r, "polygon": None} for r in (TISSUE, HAZE)]}
    for region, source in zip(metres["regions"], (TISSUE, HAZE), strict=True):
        region["polygon"] = [[-4e-3 + 0.25e-3 * x, 5e-3 + 0.5e-3 * y] for x, y in source["polygon"]]
    (tmp_path / "m.json").write_text(json.dumps(metres))
    for path in (mixed, tmp_path / "m.json"):
        found = read_regions(path, SHAPE, geometry=geometry)
        for role in ("tissue", "haze"):
            difference = found.mask(role, 0) ^ pixels.mask(role, 0)
            assert difference.sum() <= 8  # pixel centres on an edge may fall either way in floating point
        assert found.leaving(np.ones(SHAPE[1:], bool)) == []
    with pytest.raises(InputError, match="physical units, but the scan has no pixel spacing"):
        read_regions(mixed, SHAPE, geometry=Cartesian())
    with pytest.raises(InputError, match='units "cm"; expected "px"'):
        read_regions(written(tmp_path / "cm.json", {**TISSUE, "units": "cm"}, HAZE), SHAPE, geometry=geometry)


def test_physical_polygons_on_a_polar_frame_are_where_the_beams_are(tmp_path: Path) -> None:
    geometry = Polar(np.linspace(0.01, 0.048, 20), np.linspace(-0.6, 0.6, 30))
    left = {"role": "tissue", "units": "mm", "polygon": [[-50, 0], [-5, 0], [-5, 30], [-50, 30]]}
    right = {"role": "haze", "units": "mm", "polygon": [[5, 0], [50, 0], [50, 60], [5, 60]]}
    regions = read_regions(written(tmp_path / "r.json", left, right), SHAPE, geometry=geometry)
    depth, angle = np.meshgrid(geometry.depths_m, geometry.angles_rad, indexing="ij")
    x, z = depth * np.sin(angle), depth * np.cos(angle)
    assert np.array_equal(regions.mask("tissue", 0), (x < -5e-3) & (z < 30e-3))
    assert np.array_equal(regions.mask("haze", 1), x > 5e-3)
    told = [f"Its {role} regions reach beyond the frame: measured is what lies in it." for role in ("tissue", "haze")]
    assert regions.leaving(np.ones(SHAPE[1:], bool)) == told


def test_a_region_may_move_from_frame_to_frame(tmp_path: Path) -> None:
    moved = {**TISSUE, "frames": [2], "polygon": [[x + 1, y + 2] for x, y in TISSUE["polygon"]]}
    regions = read_regions(written(tmp_path / "r.json", TISSUE, moved, HAZE), SHAPE)
    assert regions.frames() == [0, 2]
    assert np.array_equal(regions.mask("tissue", 2), np.roll(regions.mask("tissue", 0), (2, 1), (0, 1)))


def camus_like() -> np.ndarray:
    """Labels in the manner of CAMUS: a ring of myocardium (170) round a cavity (85), an atrium (255) below."""
    rows, columns = np.indices((60, 50))
    radius = np.hypot(rows - 25, columns - 25)
    labels = np.zeros((60, 50), dtype=np.uint8)
    labels[radius < 22], labels[radius < 12], labels[50:, 10:40] = 170, 85, 255
    return labels


def test_labels_by_name_are_eroded_by_the_margin(tmp_path: Path) -> None:
    labels = camus_like()
    shape = (1, *labels.shape)
    Image.fromarray(labels).save(tmp_path / "l.png")
    plain = read_regions(tmp_path / "l.png", shape, labels=parse_labels("tissue=170 haze=85"))
    assert np.array_equal(plain.mask("tissue", 0), labels == 170)
    assert np.array_equal(plain.mask("haze", 0), labels == 85)
    eroded = read_regions(tmp_path / "l.png", shape, labels=parse_labels("haze=85,255 tissue=170"), margin_px=3)
    rows, columns = np.indices(labels.shape)
    radius = np.hypot(rows - 25, columns - 25)
    wall, cavity = eroded.mask("tissue", 0), eroded.mask("haze", 0)
    assert radius[wall].min() >= 12 + 3 - 1 and radius[wall].max() < 22 - 3 + 1
    assert radius[cavity & (rows < 45)].max() < 12 - 3 + 1
    assert np.array_equal(cavity[50:, :], np.isin(columns[50:], range(13, 37)) & (rows[50:] >= 53))  # not at the edge
    assert eroded.margin_px == 3
    with pytest.raises(InputError, match=r"eroded by 9 pixels; .* smaller --margin"):
        read_regions(tmp_path / "l.png", shape, labels=parse_labels("tissue=170 haze=85"), margin_px=9)
    with pytest.raises(InputError, match=r"labels 0, 85, 170, 255; expected 7 \(tissue\)"):
        read_regions(tmp_path / "l.png", shape, labels=parse_labels("tissue=7 haze=85"))
    with pytest.raises(InputError, match="says tissue=wall, but a label image holds numbers"):
        read_regions(tmp_path / "l.png", shape, labels=parse_labels("tissue=wall haze=85"))


def test_labels_are_parsed_or_refused() -> None:
    assert parse_labels("tissue=170 haze=85") == {"tissue": ("170",), "haze": ("85",)}
    assert parse_labels("haze = Left ventricle, 3 tissue=Septum") == {
        "haze": ("Left ventricle", "3"),
        "tissue": ("Septum",),
    }
    for wrong in ("tissue=170", "tissue=170 haze=", "tissue=1 haze=2 atrium=3", "170 85", "", "tissue=1 tissue=2"):
        with pytest.raises(UsdehazeError, match="--labels is"):
            parse_labels(wrong)


def test_a_label_dataset_is_named_by_its_path_inside_the_file(tmp_path: Path) -> None:
    labels = np.zeros((8, *SHAPE[1:]), dtype=np.uint8)
    for t in range(8):
        labels[t, t : t + 5, 2:8], labels[t, 12:19, 10:20] = 255, 128
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["a/label"], file["b/label"] = labels, labels[:, ::-1].copy()
    with pytest.raises(InputError, match=r"several label datasets .* --roi l.h5:a/label"):
        read_regions(tmp_path / "l.h5", SHAPE)
    first = read_regions(f"{tmp_path}/l.h5:a/label", SHAPE)
    assert np.array_equal(first.mask("tissue", 1), labels[1] == 255)
    later = read_regions(f"{tmp_path}/l.h5:/a/label", SHAPE, first_frame=4)  # labels of the whole source
    assert np.array_equal(later.mask("tissue", 1), labels[5] == 255)
    upside_down = read_regions(f"{tmp_path}/l.h5:b/label", SHAPE)
    assert np.array_equal(upside_down.mask("haze", 0), labels[0, ::-1] == 128)
    for name, message in (("c", "no dataset 'c'"), ("a", "is not a dataset")):
        with pytest.raises(InputError, match=message):
            read_regions(f"{tmp_path}/l.h5:{name}", SHAPE)
    with pytest.raises(InputError, match=r"a/label is \(8, 20, 30\)"):
        read_regions(f"{tmp_path}/l.h5:a/label", (9, 20, 30))


def test_nifti_has_columns_first(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel", reason="NIfTI needs the extra usdehaze[nifti]")
    labels = np.zeros(SHAPE, dtype=np.uint8)
    labels[:, 2:6, 3:9], labels[1:, 10:18, 4:20] = 255, 128
    columns_first = labels.transpose(2, 1, 0)
    for name, array in (("a.nii.gz", columns_first), ("b.nii", columns_first[:, :, None, :])):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / name)
        regions = read_regions(tmp_path / name, SHAPE)
        assert regions.frames() == [1, 2]
        assert np.array_equal(regions.mask("haze", 2), labels[2] == 128)
    nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), tmp_path / "rows.nii.gz")
    with pytest.raises(InputError, match=r"NIfTI of shape \(3, 20, 30\); expected \(30, 20\)"):
        read_regions(tmp_path / "rows.nii.gz", SHAPE)
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes()[:60])
    with pytest.raises(InputError, match="damaged NIfTI"):
        read_regions(tmp_path / "cut.nii.gz", SHAPE)


def test_nifti_without_nibabel_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nibabel", None)
    (tmp_path / "a.nii").write_bytes(b"")
    with pytest.raises(InputError, match=r'pip install "usdehaze\[nifti\]"'):
        read_regions(tmp_path / "a.nii", SHAPE)


def segmentation(path: Path, masks: list[tuple[int, int | None, np.ndarray]], fractional: bool = False) -> Path:
    """A DICOM SEG: ``masks`` are (segment number, frame of the source from 1 or None, mask ``(H, W)``)."""
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.66.4", generate_uid()
    dataset.PatientName, dataset.Modality = "Secret^Name", "SEG"
    stack = np.stack([mask for *_, mask in masks])
    dataset.NumberOfFrames, dataset.Rows, dataset.Columns = stack.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PixelRepresentation = 1, "MONOCHROME2", 0
    dataset.SegmentationType = "FRACTIONAL" if fractional else "BINARY"
    bits = 8 if fractional else 1
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = bits, bits, bits - 1
    if fractional:
        dataset.MaximumFractionalValue = 200
        dataset.PixelData = stack.astype(np.uint8).tobytes()
    else:
        dataset.PixelData = pack_bits(stack.astype(np.uint8).ravel())
    dataset.SegmentSequence = []
    for number, label in ((1, "Septum of Secret Name"), (2, "LV"), (7, "Tissue"), (8, "haze")):
        segment = Dataset()
        segment.SegmentNumber, segment.SegmentLabel = number, label
        dataset.SegmentSequence.append(segment)
    dataset.PerFrameFunctionalGroupsSequence = []
    for number, frame, _ in masks:
        group, identification = Dataset(), Dataset()
        identification.ReferencedSegmentNumber = number
        group.SegmentIdentificationSequence = [identification]
        if frame is not None:
            source, derivation = Dataset(), Dataset()
            source.ReferencedFrameNumber = frame
            derivation.SourceImageSequence = [source]
            group.DerivationImageSequence = [derivation]
        dataset.PerFrameFunctionalGroupsSequence.append(group)
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.save_as(path, enforce_file_format=True)
    return path


def test_dicom_segmentations_are_read_by_segment_and_source_frame(tmp_path: Path) -> None:
    wall, cavity = np.zeros((2, *SHAPE[1:]), dtype=bool)
    wall[2:9, 3:8], cavity[4:15, 12:27] = True, True
    lower = np.roll(wall, 3, axis=0)
    path = segmentation(tmp_path / "a.dcm", [(1, 5, wall), (2, None, cavity), (1, 6, lower)])
    by_name = parse_labels("tissue=septum of secret name haze=LV")
    for labels in (by_name, parse_labels("tissue=1 haze=2")):
        regions = read_regions(path, SHAPE, first_frame=4, labels=labels)  # frames 5 and 6 of the source are 0 and 1
        assert regions.frames() == [0, 1]
        assert np.array_equal(regions.mask("tissue", 0), wall) and np.array_equal(regions.mask("tissue", 1), lower)
        assert np.array_equal(regions.mask("haze", 1), cavity)
    with pytest.raises(InputError, match="no segment for tissue among the segments 1, 2, 7, 8") as caught:
        read_regions(path, SHAPE, labels=parse_labels("tissue=9 haze=2"))
    assert "Secret" not in str(caught.value)


def test_dicom_segmentations_without_frame_numbers_are_static_or_follow_the_cine(tmp_path: Path) -> None:
    wall, cavity = np.zeros((2, *SHAPE[1:]))
    wall[2:9, 3:8], cavity[4:15, 12:27], cavity[4, 12:27] = 200, 100, 99  # half of the maximum is inside, less is not
    frames = [(8, None, np.roll(cavity, t, axis=0)) for t in range(3)]
    path = segmentation(tmp_path / "f.dcm", [(7, None, wall), *frames], fractional=True)
    regions = read_regions(path, SHAPE)  # segments called tissue and haze need no --labels
    assert np.array_equal(regions.mask("tissue", 2), wall > 0)
    assert np.array_equal(regions.mask("haze", 2), np.roll(cavity, 2, axis=0) >= 100)
    with pytest.raises(InputError, match="segment of 3 frames that do not say which"):
        read_regions(path, (5, *SHAPE[1:]))
    with pytest.raises(InputError, match=r"20 x 30 pixels .* expected 20 x 31"):
        read_regions(path, (3, 20, 31))


def test_other_and_damaged_dicom_is_refused_without_its_content(tmp_path: Path, data_dir: Path) -> None:
    with pytest.raises(InputError, match="a DICOM file, but not a Segmentation"):
        read_regions(data_dir / "dicom" / "other" / "CT_small.dcm", SHAPE)
    whole = segmentation(tmp_path / "a.dcm", [(7, None, np.ones(SHAPE[1:])), (8, None, np.ones(SHAPE[1:]))])
    cut = tmp_path / "cut.dcm"
    cut.write_bytes(whole.read_bytes()[:700])
    with pytest.raises(InputError, match=r"cut\.dcm: .*(cannot be read|not a Segmentation)") as caught:
        read_regions(cut, SHAPE)
    assert "Secret" not in str(caught.value)


def bright_wall_and_dark_cavity() -> Cine:
    """Two frames of a fan: a wall at -15 dB right of a cavity at -45 dB, which moves; the floor at -60 dB outside."""
    sector = Sector(apex_x=60, apex_y=-10, r_min=20, r_max=125, angle_min=-0.7, angle_max=0.7)
    inside = sector_mask(sector, (120, 120))
    columns = np.indices((120, 120))[1]
    noise = np.random.default_rng(0).normal(0, 3, (2, 120, 120))
    frames = np.stack([np.where(columns > split, -15.0, -45.0) for split in (50, 70)]) + noise
    frames[:, ~inside] = -60
    frames[:, :4, :30] = 0  # burned-in text outside the fan
    return Cine(np.clip(frames, -60, 0).astype(np.float32), Cartesian(sector=sector, found_by="file"), 60.0)


def test_automatic_regions_are_the_bright_and_the_dark_part_inside_the_sector() -> None:
    cine = bright_wall_and_dark_cavity()
    regions = automatic_regions(cine)
    assert regions.origin == "automatic" and regions.frames() == [0, 1]
    assert isinstance(cine.geometry, Cartesian) and cine.geometry.sector is not None
    inside = sector_mask(cine.geometry.sector, (120, 120))
    columns = np.indices((120, 120))[1]
    for t, split in enumerate((50, 70)):
        wall, cavity = regions.mask("tissue", t), regions.mask("haze", t)
        assert not (wall & cavity).any() and not ((wall | cavity) & ~inside).any()
        assert columns[wall].min() > split and columns[cavity].max() < split
        assert wall.sum() > 0.6 * (inside & (columns > split)).sum()
        assert cavity.sum() > 0.5 * (inside & (columns <= split)).sum()
    assert find_regions("auto", cine).origin == "automatic"


def test_automatic_regions_are_of_every_image_on_the_screen() -> None:
    one = bright_wall_and_dark_cavity()
    assert isinstance(one.geometry, Cartesian) and one.geometry.sector is not None
    other = replace(one.geometry.sector, apex_x=one.geometry.sector.apex_x + 120)
    both = replace(one, frames=np.tile(one.frames, 2), geometry=replace(one.geometry, others=(other,)))
    for role in ("tissue", "haze"):
        left, right = np.hsplit(automatic_regions(both).mask(role, 0), 2)
        assert right.sum() == pytest.approx(left.sum(), rel=0.05)


def test_automatic_regions_of_nothing_are_refused() -> None:
    black = Cine(np.full((1, 60, 60), -60, np.float32), Cartesian(), 60.0)
    with pytest.raises(InputError, match="nothing above the floor"):
        automatic_regions(black)
    grey = Cine(np.full((1, 60, 60), -30, np.float32), Cartesian(), 60.0)
    with pytest.raises(InputError, match="no automatic regions"):
        automatic_regions(grey)


def test_otsus_level_lies_between_two_clusters() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(-40, 2, 3000), rng.normal(-10, 4, 1000)])
    assert -34 < otsu_level(*np.histogram(values, bins=BINS)) < -20


def test_a_folder_holds_the_labels_of_each_scan_under_its_name(data_dir: Path) -> None:
    for name in ("patient0001", "patient0473"):
        with h5py.File(data_dir / "camus" / f"{name}.h5") as file:
            image, label = file["image"][()], file["label"][()]
        cine = Cine((image / 255 * 60 - 60).astype(np.float32), Cartesian(), 60.0)
        regions = find_regions(data_dir / "camus", cine, name, parse_labels("tissue=170 haze=85"), 3.0)
        assert regions.frames() == [0, 1]
        for t in (0, 1):
            wall, cavity = regions.mask("tissue", t), regions.mask("haze", t)
            assert (label[t][wall] == 170).all() and (label[t][cavity] == 85).all()
            assert 0.2 * (label[t] == 170).sum() < wall.sum() < 0.95 * (label[t] == 170).sum()
            assert image[t][wall].mean() > image[t][cavity].mean()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"role": "septum"}, 'role "septum"; expected "tissue", "haze" or "faint"'),
        ({"role": None}, "role null"),
        ({"polygon": [[1, 1], [5, 5]]}, "2 points; expected at least 3"),
        ({"polygon": [[1, 1], [5, 5], [31, 2]]}, r"\(31, 2\) outside the frame; expected x from 0 to 29"),
        ({"polygon": [[1, 1], [5, -2], [3, 2]]}, r"\(5, -2\) outside the frame"),
        ({"polygon": [[1, 1], [5], [3, 2]]}, "no usable polygon"),
        ({"polygon": [[1, 1], [5, float("nan")], [3, 2]]}, "no usable polygon"),
        ({"polygon": "circle"}, "no usable polygon"),
        ({"polygon": [[1.2, 1.2], [1.6, 1.2], [1.4, 1.6]]}, "no pixel centre"),
        ({"frames": [3]}, "names frame 3; expected 0 to 2"),
        ({"frames": [-1]}, "names frame -1"),
        ({"frames": "all"}, 'frames "all"'),
        ({"frames": []}, "frames \\[\\]"),
        ({"frame": 0}, 'region "wall" has "frame"; expected "frames"'),
        ({"Units": "mm"}, 'has "Units"; expected "units"'),
        ({"role": "haze"}, "no tissue region"),
        ({"polygon": [[9, 3], [12, 3], [12, 10], [9, 10]]}, "overlap in 14 pixels of frame 0"),
    ],
)
def test_a_wrong_region_is_refused_in_one_line(tmp_path: Path, change: dict, message: str) -> None:
    path = written(tmp_path / "r.json", {**TISSUE, **change}, HAZE)
    with pytest.raises(InputError, match=message) as caught:
        read_regions(path, SHAPE)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_polygons_of_the_whole_source_serve_a_result_of_some_of_its_frames(tmp_path: Path) -> None:
    early = {**TISSUE, "name": "early", "frames": [0]}
    path = written(tmp_path / "r.json", early, {**TISSUE, "frames": [0, 2, 4]}, {**HAZE, "frames": [4, 5]})
    regions = read_regions(path, SHAPE, 3, source_frames=6)  # frames 3 to 5
    assert [(region.role, sorted(region.frames)) for region in regions.regions] == [("tissue", [1]), ("haze", [1, 2])]
    with pytest.raises(InputError, match="names frame 5; expected 0 to 4"):
        read_regions(path, SHAPE, 2, source_frames=5)
    with pytest.raises(InputError, match="no region in frames 6 to 8; expected some in the frames of the result"):
        read_regions(path, SHAPE, 6, source_frames=9)


def test_polygons_of_frames_that_are_left_out_take_no_memory(tmp_path: Path) -> None:
    many = [{**region, "frames": [t]} for t in range(800) for region in (TISSUE, HAZE)]
    path, shape = written(tmp_path / "r.json", *many), (2, 600, 800)  # 0.7 GiB of masks of all of them
    assert len(read_regions(path, shape, 4, source_frames=800).regions) == 4


def test_regions_that_never_meet_in_a_frame_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame has both"):
        read_regions(written(tmp_path / "r.json", TISSUE, {**HAZE, "frames": [1, 2]}), SHAPE)


def test_files_of_another_kind_or_size_are_refused_in_one_line(tmp_path: Path) -> None:
    cases: dict[str, tuple[bytes, str]] = {
        "missing.json": (b"", "cannot be read"),
        "broken.json": (b'{"regions": [', "not valid JSON .line 1"),
        "list.json": (b"[1, 2]", "no list of regions"),
        "empty.json": (b'{"regions": []}', "no list of regions"),
        "bytes.json": (b"\xff\xfe\x00\x81", "neither JSON, PNG, HDF5, NIfTI nor DICOM"),
        "broken.png": (b"\x89PNG\r\n\x1a\nrubbish", "damaged PNG"),
        "broken.h5": (b"\x89HDF\r\n\x1a\nrubbish", "cannot be read"),
    }
    for name, (content, message) in cases.items():
        if name != "missing.json":
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_regions(tmp_path / name, SHAPE)

    Image.fromarray(np.arange(600).reshape(20, 30).astype(np.uint8)).save(tmp_path / "image.png")
    with pytest.raises(InputError, match="256 different values: an image, not labels"):  # 255 and 128 among them
        read_regions(tmp_path / "image.png", SHAPE)
    Image.fromarray(np.full((20, 31), 255, np.uint8)).save(tmp_path / "wide.png")
    with pytest.raises(InputError, match=r"20 x 31 pixels .* expected 20 x 30"):
        read_regions(tmp_path / "wide.png", SHAPE)
    Image.fromarray(np.full((20, 30), 255, np.uint8)).save(tmp_path / "one.png")
    with pytest.raises(InputError, match=r"labels 255; expected 128 \(haze\)"):
        read_regions(tmp_path / "one.png", SHAPE)
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a"], file["b"] = np.zeros((2, 20, 30))
    with pytest.raises(InputError, match="several label datasets"):
        read_regions(tmp_path / "two.h5", SHAPE)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["label"] = np.zeros((2, 20, 30))
    with pytest.raises(InputError, match=r"label \(2, 20, 30\)"):
        read_regions(tmp_path / "other.h5", SHAPE)


def test_the_regions_of_the_real_clips_are_read(data_dir: Path) -> None:
    paths = sorted((data_dir / "echo-haze").glob("*.rois.json"))
    assert len(paths) == 6
    for path in paths:
        regions = read_regions(path, (4, 256, 256))
        assert regions.frames() == [0]
        assert regions.mask("tissue", 0).sum() > 100 and regions.mask("haze", 0).sum() > 300


@pytest.mark.parametrize("name", ["l.h5", "l.mat"])
def test_labels_that_matlab_wrote_are_turned(tmp_path: Path, name: str) -> None:
    labels = np.zeros((3, 20, 20), np.uint8)
    labels[:, 2:6, 1:9], labels[:, 10:14, 3:19] = 255, 128
    for stored in (labels[0].T, labels.swapaxes(1, 2)):  # H x W, and H x W x T, as MATLAB lays them out
        with h5py.File(tmp_path / name, "w", userblock_size=512 if name == "l.mat" else 0) as file:
            file["labels"] = stored
            file["labels"].attrs["MATLAB_class"] = np.bytes_("uint8")
        for spec in (name, f"{name}:labels"):
            regions = read_regions(tmp_path / spec, (3, 20, 20))
            assert np.array_equal(regions.mask("tissue", 1), labels[0] == 255)
            assert np.array_equal(regions.mask("haze", 2), labels[0] == 128)


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_labels_under_no_opacity_are_none(tmp_path: Path, mode: str) -> None:
    grey, opacity = np.full(SHAPE[1:], 255, np.uint8), np.zeros(SHAPE[1:], np.uint8)
    grey[3:10, 10:20], opacity[3:10, 2:20] = 128, 200
    bands = [grey] * (len(mode) - 1) + [opacity]
    Image.fromarray(np.stack(bands, axis=2), mode).save(tmp_path / "l.png")
    regions = read_regions(tmp_path / "l.png", SHAPE)
    assert regions.mask("tissue", 0).sum() == 7 * 8 and regions.mask("haze", 0).sum() == 7 * 10


def test_a_region_that_fills_the_frame_has_no_border_to_be_eroded_from(tmp_path: Path) -> None:
    corners = [[-0.5, -0.5], [29.5, -0.5], [29.5, 19.5], [-0.5, 19.5]]
    path = written(tmp_path / "r.json", {"name": "all", "role": "faint", "polygon": corners})
    assert read_regions(path, SHAPE, margin_px=3).mask("faint", 0).all()
