"""Regions of interest: the right pixels, and one clear line for every file that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from usdehaze.errors import InputError
from usdehaze.validation.regions import polygon_mask, read_regions

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


@pytest.mark.parametrize(
    "change, message",
    [
        ({"role": "septum"}, 'role "septum"; expected "tissue" or "haze"'),
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
        ({"role": "haze"}, "no tissue region"),
        ({"polygon": [[9, 3], [12, 3], [12, 10], [9, 10]]}, "overlap in 14 pixels of frame 0"),
    ],
)
def test_a_wrong_region_is_refused_in_one_line(tmp_path: Path, change: dict, message: str) -> None:
    path = written(tmp_path / "r.json", {**TISSUE, **change}, HAZE)
    with pytest.raises(InputError, match=message) as caught:
        read_regions(path, SHAPE)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_regions_that_never_meet_in_a_frame_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame has both"):
        read_regions(written(tmp_path / "r.json", TISSUE, {**HAZE, "frames": [1, 2]}), SHAPE)


def test_files_of_another_kind_or_size_are_refused_in_one_line(tmp_path: Path) -> None:
    cases: dict[str, tuple[bytes, str]] = {
        "missing.json": (b"", "cannot be read"),
        "broken.json": (b'{"regions": [', "not valid JSON .line 1"),
        "list.json": (b"[1, 2]", "no list of regions"),
        "empty.json": (b'{"regions": []}', "no list of regions"),
        "bytes.json": (b"\xff\xfe\x00\x81", "neither JSON, PNG nor HDF5"),
        "broken.png": (b"\x89PNG\r\n\x1a\nrubbish", "damaged PNG"),
        "broken.h5": (b"\x89HDF\r\n\x1a\nrubbish", "cannot be read"),
    }
    for name, (content, message) in cases.items():
        if name != "missing.json":
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_regions(tmp_path / name, SHAPE)

    Image.fromarray(np.full((20, 31), 255, np.uint8)).save(tmp_path / "wide.png")
    with pytest.raises(InputError, match=r"20 x 31 pixels .* expected 20 x 30"):
        read_regions(tmp_path / "wide.png", SHAPE)
    Image.fromarray(np.full((20, 30), 255, np.uint8)).save(tmp_path / "one.png")
    with pytest.raises(InputError, match="labels 255; expected both"):
        read_regions(tmp_path / "one.png", SHAPE)
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a"], file["b"] = np.zeros((2, 20, 30))
    with pytest.raises(InputError, match="several label datasets"):
        read_regions(tmp_path / "two.h5", SHAPE)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["label"] = np.zeros((4, 20, 30))
    with pytest.raises(InputError, match=r"label \(4, 20, 30\)"):
        read_regions(tmp_path / "other.h5", SHAPE)


def test_the_regions_of_the_real_clips_are_read(data_dir: Path) -> None:
    paths = sorted((data_dir / "echo-haze").glob("*.rois.json"))
    assert len(paths) == 6
    for path in paths:
        regions = read_regions(path, (4, 256, 256))
        assert regions.frames() == [0]
        assert regions.mask("tissue", 0).sum() > 100 and regions.mask("haze", 0).sum() > 300
