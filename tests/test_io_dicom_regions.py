"""Ultrasound regions, pixel spacing, frame times: where the image lies, how large it is, when it was taken."""

import pickle

import numpy as np
import pytest
from _dicom import dataset, region, save, write_dicom
from _dicom_results import derive, lowered
from _scans import fan_frames, refused
from pydicom.dataset import Dataset

from usdehaze.errors import InputError
from usdehaze.geometry import make_mapper, sector_mask
from usdehaze.io import ResultWriter, open_cine, open_scan, read_result
from usdehaze.io.dicom import open_dicom
from usdehaze.io.dicom.regions import Region
from usdehaze.io.dicom.timing import find_frame_times
from usdehaze.io.doubts import doubts_of


def screen(n_frames=1, height=200, width=300):
    """Speckle everywhere: no fan to be found."""
    return np.random.default_rng(3).integers(60, 255, (n_frames, height, width), dtype=np.uint8)


def scan_of(tmp_path, frames, *regions, **attributes):
    return open_dicom(write_dicom(tmp_path / "a.dcm", frames, regions=regions, **attributes))


def test_a_region_without_a_fan_is_a_rectangle_to_the_pixel(tmp_path):
    with scan_of(tmp_path, screen(), region(40, 30, 239, 169, delta=(0.02, 0.02))) as scan:
        place, cine = scan.geometry, scan.read()
    expected = np.zeros((200, 300), bool)
    expected[30:170, 40:240] = True
    assert place.found_by == "file" and place.spacing_m == (2e-4, 2e-4)
    assert np.array_equal(sector_mask(place.sector, (200, 300)), expected)
    assert np.array_equal(make_mapper(place, (200, 300)).image_mask, expected)
    assert np.array_equal(cine.tissue_mask[0], expected)


@pytest.mark.parametrize("pitch", [(0.02, 0.03), (0.03, 0.01)])
def test_anisotropic_pixels(tmp_path, pitch):
    with scan_of(tmp_path, screen(), region(40, 30, 239, 169, delta=pitch)) as scan:
        assert scan.geometry.spacing_m == pytest.approx((pitch[0] / 100, pitch[1] / 100))
        assert scan.geometry.sector.aspect == pytest.approx(pitch[0] / pitch[1])
        assert sector_mask(scan.geometry.sector, (200, 300)).sum() == 200 * 140


def test_a_rectangle_keeps_its_lines_straight_on_the_model_grid(tmp_path):
    frames = screen()
    frames[0] = 20 + np.arange(200)[:, None]  # level by row
    with scan_of(tmp_path, frames, region(40, 30, 239, 169)) as scan:
        mapper = make_mapper(scan.geometry, scan.shape)
        on_grid = mapper.to_model(frames.astype(np.float32))[0]
    assert mapper.valid.all()
    assert np.ptp(on_grid, axis=1).max() < 0.02
    np.testing.assert_allclose(on_grid[:, 0], 20 + 30 - 0.5 + 140 * (np.arange(128) + 0.5) / 128, atol=0.3)


def test_the_fan_is_sought_within_the_region_and_told_in_the_frames_coordinates(tmp_path):
    frames = np.zeros((2, 400, 500), np.uint8)
    frames[:, 60:316, 120:376] = fan_frames(2, 256, 256)
    frames[:, 5:50, 5:490] = 200  # a bar of text
    with scan_of(tmp_path, frames, region(120, 60, 375, 315)) as scan:
        sector = scan.geometry.sector
        assert scan.geometry.found_by == "sector finder"
    assert sector.apex_x == pytest.approx(120 + 127.5, abs=1.5)
    assert sector.apex_y == pytest.approx(59, abs=2)
    assert np.degrees([sector.angle_min, sector.angle_max]) == pytest.approx([-35, 35], abs=1)


def test_which_region_is_chosen(tmp_path):
    regions = (
        region(0, 0, 299, 20),
        region(0, 0, 299, 199, kind=(0, 0)),
        region(0, 0, 299, 199, kind=(3, 1)),  # M-mode
        region(0, 0, 299, 199, kind=(1, 2)),  # colour flow
        region(50, 30, 249, 169),
    )
    with scan_of(tmp_path, screen(), *regions) as scan:
        assert sector_mask(scan.geometry.sector, scan.shape).sum() == 200 * 140
        assert [sector_mask(other, scan.shape).sum() for other in scan.geometry.others] == [21 * 300]
        assert "2 B-mode regions in the file: each is dehazed by itself." in scan.source.assumptions
    with scan_of(tmp_path, screen(), *regions[1:4]) as scan:
        assert sector_mask(scan.geometry.sector, scan.shape).sum() == 200 * 300
    with pytest.raises(InputError, match="no grey-scale B-mode"):
        scan_of(tmp_path, screen(), *regions[1:3])
    with scan_of(tmp_path, screen(), regions[1]) as scan:
        assert scan.geometry.sector is None


@pytest.mark.parametrize("units", [0, 1, 4])
def test_deltas_that_are_no_centimetres_are_no_spacing(tmp_path, units):
    with scan_of(tmp_path, screen(), region(40, 30, 239, 169, units=units)) as scan:
        assert scan.geometry.spacing_m is None and scan.geometry.sector.aspect == 1


def test_signed_deltas(tmp_path):
    with scan_of(tmp_path, screen(), region(40, 30, 239, 169, delta=(-0.02, 0.03))) as scan:
        assert scan.geometry.spacing_m == pytest.approx((2e-4, 3e-4)) and scan.geometry.origin_m == (0, 0)


def test_the_reference_pixel_counts_from_the_regions_corner(tmp_path):
    where = {"ReferencePixelX0": 100, "ReferencePixelY0": 5, "ReferencePixelPhysicalValueX": 0.5}
    where["ReferencePixelPhysicalValueY"] = 1.0
    with scan_of(tmp_path, screen(), region(40, 30, 239, 169, delta=(0.02, 0.02), **where)) as scan:
        z, x = scan.geometry.origin_m
    assert z == pytest.approx((1.0 - 35 * 0.02) / 100) and x == pytest.approx((0.5 - 140 * 0.02) / 100)


@pytest.mark.parametrize(("right", "bottom", "spaced"), [(300, 200, True), (301, 201, True), (600, 400, False)])
def test_regions_are_clamped_and_those_of_another_image_size_lend_no_spacing(tmp_path, right, bottom, spaced):
    with scan_of(tmp_path, screen(), region(100, 50, right, bottom)) as scan:
        mask = sector_mask(scan.geometry.sector, scan.shape)
        assert (scan.geometry.spacing_m is not None) == spaced
    expected = np.zeros((200, 300), bool)
    expected[50:, 100:] = True
    assert np.array_equal(mask, expected)


def test_a_fan_is_sought_in_the_whole_image_where_the_region_does_not_fit(tmp_path):
    frames = np.zeros((2, 256, 256), np.uint8)
    frames[:, :, :] = fan_frames(2, 256, 256)
    with scan_of(tmp_path, frames, region(100, 20, 500, 400)) as scan:
        assert scan.geometry.found_by == "sector finder"
        assert scan.geometry.sector.apex_x == pytest.approx(127.5, abs=1.5)
        assert scan.read().tissue_mask is None


def test_broken_regions_are_passed_over(tmp_path):
    empty, odd, outside = Dataset(), region(10, 10, 10, 10), region(400, 300, 500, 400)
    several, tiny = region(40, 30, 239, 169), region(100, 60, 106, 160)
    several.RegionDataType = [1, 2]
    with scan_of(tmp_path, screen(), empty, odd, outside, several, tiny) as scan:
        assert scan.geometry.sector is None
        assert "No ultrasound region in the file lies in the image" in " ".join(scan.source.assumptions)
    assert Region(1, 2, 3, 4, None, (0, 0), True).area == 9


@pytest.mark.parametrize(
    ("corners", "expected", "word"),
    [
        ((0xFFFFFFFF, 0xFFFFFFFF, 239, 169), (0, 0, 239, 169), ""),  # -1 in an unsigned attribute
        ((239, 169, 40, 30), (40, 30, 239, 169), "the other way round"),
        ((40, 169, 239, 30), (40, 30, 239, 169), "the other way round"),
        ((0, 0, 0, 0), (0, 0, 299, 199), "all its corners at 0"),
    ],
)
def test_odd_corners_of_the_region(tmp_path, corners, expected, word):
    with scan_of(tmp_path, screen(), region(*corners, delta=(0.02, 0.02))) as scan:
        mask = sector_mask(scan.geometry.sector, scan.shape)
        assert scan.geometry.spacing_m == (2e-4, 2e-4) and word in " ".join(scan.source.assumptions)
    if corners == (0, 0, 0, 0):  # beside another one it says nothing
        with scan_of(tmp_path, screen(), region(*corners), region(40, 30, 239, 169)) as scan:
            assert sector_mask(scan.geometry.sector, scan.shape).sum() == 200 * 140
    left, top, right, bottom = expected
    assert mask[top : bottom + 1, left : right + 1].all() and mask.sum() == (bottom - top + 1) * (right - left + 1)


@pytest.mark.parametrize("odd", [{"units": 0}, {"delta": (0, 0)}, {"right": 900, "bottom": 800}])
def test_pixel_spacing_serves_where_the_region_tells_none(tmp_path, odd):
    item = region(**{"left": 40, "top": 30, "right": 239, "bottom": 169} | odd)
    with scan_of(tmp_path, screen(), item, PixelSpacing=[0.3, 0.2]) as scan:
        assert scan.geometry.spacing_m == pytest.approx((3e-4, 2e-4)) and scan.geometry.sector.aspect == pytest.approx(
            1.5
        )


@pytest.mark.parametrize(("other", "told"), [(0.02, True), (0.05, False)])
def test_regions_of_several_spacings_are_told(tmp_path, other, told):
    second = region(151, 0, 299, 199, delta=(other, other))
    with scan_of(tmp_path, screen(), region(0, 0, 150, 199), second) as scan:
        assert scan.geometry.spacing_m == (5e-4, 5e-4)
        assert ("differ in pixel spacing" in " ".join(scan.source.assumptions)) == told


def test_pixel_spacing_serves_where_there_are_no_regions(tmp_path):
    with scan_of(tmp_path, screen(), PixelSpacing=[0.3, 0.2]) as scan:
        assert scan.geometry.spacing_m == pytest.approx((3e-4, 2e-4))
    with scan_of(tmp_path, fan_frames(1, 256, 256), PixelAspectRatio=[1, 1]) as scan:
        assert scan.geometry.sector.aspect == 1 and scan.geometry.spacing_m is None


@pytest.mark.parametrize(
    ("attributes", "times"),
    [
        ({"FrameTime": 40}, [0, 0.04, 0.08, 0.12]),
        ({"FrameTimeVector": [0, 10, 20, 30]}, [0, 0.01, 0.03, 0.06]),
        ({"FrameTimeVector": [33, 10, 20, 30]}, [0, 0.01, 0.03, 0.06]),
        ({"FrameTimeVector": [0, 10, 20]}, None),
        ({"FrameTimeVector": [0, 10, 20], "FrameTime": 40}, [0, 0.04, 0.08, 0.12]),
        ({"FrameTimeVector": [0, 10, 20, 30], "FrameTime": 40}, [0, 0.01, 0.03, 0.06]),
        (
            {"FrameTimeVector": [0, 10, 20, 30], "FrameTime": 40, "FrameIncrementPointer": 0x00181063},
            [0, 0.04, 0.08, 0.12],
        ),
        ({"CineRate": 50}, [0, 0.02, 0.04, 0.06]),
        ({"RecommendedDisplayFrameRate": 25}, [0, 0.04, 0.08, 0.12]),
        ({"FrameTime": 0, "CineRate": 50}, [0, 0.02, 0.04, 0.06]),
        ({"FrameTime": -3}, None),
        (
            {"FrameTimeVector": [0, 10, 20, 30], "FrameTime": 0, "FrameIncrementPointer": 0x00181063},
            [0, 0.01, 0.03, 0.06],
        ),
        ({"FrameTimeVector": [0, 33, -5, 33], "CineRate": 50}, [0, 0.02, 0.04, 0.06]),
        ({"FrameTimeVector": [0, 0, 0, 0], "CineRate": 50}, [0, 0.02, 0.04, 0.06]),
        ({"FrameTimeVector": [0, 0, 0, 0]}, None),
        ({"FrameTimeVector": [0, 21, 40, 60], "CineRate": 50}, [0, 0.021, 0.04, 0.06]),  # since the first frame
        ({"FrameTimeVector": [0, 20, 20, 21], "CineRate": 50}, [0, 0.02, 0.04, 0.061]),
        ({"FrameTimeVector": [0, 60, 70, 80], "CineRate": 50}, [0, 0.06, 0.13, 0.21]),
        ({"FrameTime": 0.02, "CineRate": 50}, [0, 0.02, 0.04, 0.06]),  # in s
        ({"FrameTime": 0.02}, [0, 0.02, 0.04, 0.06]),  # 50,000 frames/s of no probe
        ({"FrameTime": 0.2}, [0, 2e-4, 4e-4, 6e-4]),
        ({"FrameTime": 0.05, "CineRate": 20000}, [0, 5e-5, 1e-4, 1.5e-4]),  # Cine Rate bears it out
        ({"FrameTimeVector": [0, 0.05, 0.05, 0.05], "CineRate": 20000}, [0, 5e-5, 1e-4, 1.5e-4]),
        ({"FrameTimeVector": [0, 0.05, 0.05, 0.05], "CineRate": 20}, [0, 0.05, 0.1, 0.15]),
        ({"FrameTimeVector": [0, 0.02, 0.02, 0.021]}, [0, 0.02, 0.04, 0.061]),
        ({}, None),
    ],
)
def test_frame_times(attributes, times):
    ds = Dataset()
    for keyword, value in attributes.items():
        setattr(ds, keyword, value)
    found = find_frame_times(ds, 4).times_s
    assert found is None if times is None else found == pytest.approx(times)


def test_a_vector_that_rises_all_along_is_of_times_since_the_first_frame():
    ds = Dataset()
    for values, times in (
        ([0, 33, 67, 100, 133, 167, 200, 233], np.array([0, 33, 67, 100, 133, 167, 200, 233])),
        ([0, 33, 34, 33, 33, 34, 33, 34], np.cumsum([0, 33, 34, 33, 33, 34, 33, 34])),
        ([0, 0.03, 0.07, 0.1, 0.13, 0.16, 0.2, 0.23], np.array([0, 30, 70, 100, 130, 160, 200, 230])),  # in s
    ):
        ds.FrameTimeVector = values
        found = find_frame_times(ds, 8)
        assert found.times_s == pytest.approx(times / 1000)
        assert len(found.notes) == {233: 1, 34: 0, 0.23: 2}[values[-1]]


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"FrameTimeVector": [0, 33, -5, 33], "CineRate": 50}, "negative"),
        ({"FrameTimeVector": [0, 0, 0, 0], "CineRate": 50}, "no time above 0"),
        ({"FrameTimeVector": [0, 20, 40, 60], "CineRate": 50}, "taken as since the first"),
        ({"FrameTimeVector": [20, 20, 20], "CineRate": 50}, "Vector has 3 times for 4 frames: it is not used"),
        ({"FrameTime": 0.02, "CineRate": 50}, "taken as s"),
        ({"FrameTime": 0.02}, "taken as s"),
        ({"FrameTimeVector": [0, 0.02, 0.02, 0.021]}, "taken as s"),
        ({"FrameTime": 5, "CineRate": 50}, "of 200 frames/s, Cine Rate says 50"),
        ({"FrameTime": 33.3, "CineRate": 30}, ""),
    ],
)
def test_frame_times_that_contradict_themselves_or_cine_rate_are_told_and_written_as_they_were_read(
    tmp_path, attributes, word
):
    given = {"FrameTime": None, "FrameIncrementPointer": None} | attributes
    source = write_dicom(tmp_path / "a.dcm", fan_frames(4), **given)
    derive(source, tmp_path / "b.dcm")
    with open_dicom(source) as scan, open_dicom(tmp_path / "b.dcm") as derived:
        told = [note for note in scan.source.assumptions if "Frame Time" in note or "Frame times" in note]
        assert derived.frame_times_s == pytest.approx(scan.frame_times_s)
    assert [word in note for note in told] == ([True] if word else [])


def test_frames_asked_for_keep_their_times_and_their_place(tmp_path):
    frames = fan_frames(6, 96, 96)
    path = write_dicom(tmp_path / "a.dcm", frames)
    with open_dicom(path, frames=slice(2, 5)) as scan, open_dicom(path) as whole:
        assert scan.n_frames == 3 and scan.source.first_frame == 2
        assert scan.frame_times_s == pytest.approx([0.08, 0.12, 0.16])
        assert np.array_equal(scan.read_db(1, 3), whole.read_db(3, 5))
        assert scan.read(1).source.first_frame == 3
        assert scan.geometry == whole.geometry
    assert open_cine(path, frames=slice(2, 5)).frames.shape == (3, 96, 96)


def test_a_scan_works_in_another_process(tmp_path):
    with open_dicom(write_dicom(tmp_path / "a.dcm", fan_frames(3))) as scan:
        with pickle.loads(pickle.dumps(scan)) as copy:
            assert np.array_equal(copy.read_db(0, 3), scan.read_db(0, 3))
        assert scan.read_db(0, 1).shape == (1, 64, 64)


def test_black_frames_among_others_come_out_as_they_went_in(tmp_path):
    frames = fan_frames(4)
    frames[2] = 0
    ds, _ = derive(write_dicom(tmp_path / "a.dcm", frames), tmp_path / "b.dcm", chunk=4)
    assert not ds.pixel_array[2].any() and (ds.pixel_array[3] != frames[3]).any()
    assert "Frames of one value" in ds.DerivationDescription
    refused(tmp_path / "a.dcm", "frame 2 is constant (-60 dB everywhere)", frames=slice(2, 3))


@pytest.mark.parametrize("syntax", ["explicit", "rle"])
def test_what_late_frames_tell_is_told_as_what_the_first_ones_do(tmp_path, syntax):
    frames = fan_frames(5)
    frames[4] = 0
    path = write_dicom(tmp_path / "a.dcm", frames)
    made = []
    for chunk in (5, 2):
        ds, _ = derive(path, tmp_path / f"{chunk}.dcm", chunk=chunk, transfer_syntax=syntax)
        assert "Frames of one value" in ds.DerivationDescription
        made.append((tmp_path / f"{chunk}.dcm").read_bytes())
    assert made[0] == made[1] and len(list(tmp_path.iterdir())) == 3
    with open_scan(path) as scan, ResultWriter(tmp_path / "a.h5", scan) as writer:
        for cine in scan.chunks(2):
            writer.append(lowered(cine))
    assert read_result(tmp_path / "a.h5").cine.source.assumptions[-1].startswith("Frames of one value")
    assert doubts_of(tmp_path / "a.h5") == []


def test_attributes_of_the_wrong_kind_are_no_traceback(tmp_path):
    ds = dataset(fan_frames(2))
    ds.FrameTime = None
    ds.add_new(0x00180040, "LO", "fast")  # Cine Rate
    ds.add_new(0x00186011, "LO", "region")  # Sequence of Ultrasound Regions
    ds.add_new(0x00280030, "LO", "0.1 mm")  # Pixel Spacing
    with open_dicom(save(tmp_path / "a.dcm", ds)) as scan:
        assert scan.frame_times_s is None and scan.geometry.spacing_m is None


def test_pixels_that_are_all_height_tell_no_spacing(tmp_path):
    ds = dataset(fan_frames(2), PixelSpacing=[1e-30, 0.3])
    with open_dicom(save(tmp_path / "a.dcm", ds)) as scan:
        assert scan.geometry.spacing_m is None
