"""Names that a screen shows around its images leave in no picture, unless asked for."""

import numpy as np
import pytest
from _dicom import region, write_dicom
from _dicom_results import lowered
from _results import write_preview
from _scans import fan_frames
from click.testing import CliRunner
from PIL import Image
from test_review import frames_of

from usdehaze.cli import main
from usdehaze.geometry import image_mask
from usdehaze.io import write_result
from usdehaze.io.dicom import DicomWriter, open_dicom
from usdehaze.preview import CAPTION_HEIGHT
from usdehaze.review import build_review

NAME = np.random.default_rng(4).integers(0, 2, (8, 70), dtype=np.uint8) * 255


def screen(kind):
    """Frames with a name beside a fan, in a corner of its region, beside two fans, or beside a linear image."""
    frames = np.zeros((2, 140, 300), np.uint8)
    regions = []
    if kind == "linear":
        frames[:, 30:120, 100:280] = np.random.default_rng(1).integers(40, 255, (90, 180), dtype=np.uint8)
    else:
        frames[:, 12:132, 10:130] = fan_frames(2, 120, 120)
        if kind == "two fans":
            frames[:, 12:132, 160:280] = fan_frames(2, 120, 120)
        if kind == "in the region":
            regions = [region(0, 0, 299, 139)]
    places = [(2, 2), (2, 225)]
    for top, left in places:
        frames[:, top : top + 8, left : left + 70] = NAME
    return frames, regions, places


def shows_name(picture):
    """Whether the name stands anywhere in a picture."""
    windows = np.lib.stride_tricks.sliding_window_view(picture > 127, NAME.shape)
    return bool((windows == (NAME > 127)).all(axis=(2, 3)).any())


@pytest.mark.parametrize("kind", ["beside", "in the region", "two fans", "linear"])
@pytest.mark.parametrize("with_screen", [False, True])
def test_previews_review_pages_and_reports(tmp_path, kind, with_screen):
    frames, regions, places = screen(kind)
    path = write_dicom(tmp_path / "a.dcm", frames, regions=regions)
    with open_dicom(path) as scan:
        result = lowered(scan.read())
        with DicomWriter(tmp_path / "b.dcm", scan) as writer:
            writer.append(result)
    image = image_mask(result.cine.geometry, frames.shape[1:])
    assert not any(image[top : top + 8, left : left + 70].any() for top, left in places)
    write_result(tmp_path / "a.dehazed.h5", result)
    write_preview(tmp_path / "a.png", result, with_screen=with_screen)
    preview = np.asarray(Image.open(tmp_path / "a.png"))
    assert shows_name(preview) == with_screen
    panel = preview[CAPTION_HEIGHT : CAPTION_HEIGHT + 140, :300]
    assert np.array_equal(panel[image], frames[1][image]) and (with_screen or not panel[~image].any())
    page = build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", frames=slice(0, 1), with_screen=with_screen)
    planes = frames_of(page)[0]
    assert shows_name(planes[0]) == with_screen and np.array_equal(planes[0][image], frames[0][image])
    with open_dicom(tmp_path / "b.dcm") as derived:  # DICOM results keep the screen
        assert shows_name(derived.picture(0).levels)
    (tmp_path / "rois.json").write_text(
        '{"regions": [{"name": "a", "role": "tissue", "polygon": [[50, 60], [80, 60], [80, 80], [50, 80]]},'
        ' {"name": "b", "role": "haze", "polygon": [[50, 82], [80, 82], [80, 110], [50, 110]]}]}'
    )
    asked = ["--with-screen"] if with_screen else []
    report = ["--roi", tmp_path / "rois.json", "--report", tmp_path / "report"]
    done = CliRunner().invoke(main, [str(a) for a in ("validate", tmp_path / "a.dehazed.h5", *report, *asked)])
    assert done.exit_code == 0, done.output
    panels = sorted((tmp_path / "report").glob("*.png"))
    assert panels and all(shows_name(np.asarray(Image.open(p).convert("L"))) == with_screen for p in panels)
