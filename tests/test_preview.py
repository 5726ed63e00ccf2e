import sys
from dataclasses import replace

import numpy as np
import pytest
from _results import write_preview
from PIL import Image

from usdehaze.cine import Cartesian, Cine, Polar, Sector
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.scan import CineScan
from usdehaze.preview import CAPTION_HEIGHT, GAP, PreviewWriter, as_seen, frame_time_s, scan_convert, side_by_side
from usdehaze.result import Result

HEIGHT, WIDTH = 40, 31


def a_result(n_frames=3, polar=False, times=None):
    """Frame ``i``: input -30 dB everywhere but ``i`` bright rows, tissue all floor, haze all full scale."""
    frames = np.full((n_frames, HEIGHT, WIDTH), -30, np.float32)
    for index in range(n_frames):
        frames[index, :index] = 0
    geometry = Polar(np.linspace(0.01, 0.1, HEIGHT), np.linspace(-0.6, 0.6, WIDTH)) if polar else Cartesian()
    cine = Cine(frames, geometry, 60.0, times)
    return Result(cine, np.full_like(frames, -60), np.zeros_like(frames), None, {})


def panels_of(picture):
    """Input, tissue and haze panels of a picture of Cartesian frames."""
    lefts = [index * (WIDTH + GAP) for index in range(3)]
    return [picture[CAPTION_HEIGHT : CAPTION_HEIGHT + HEIGHT, left : left + WIDTH] for left in lefts]


def test_a_png_shows_the_middle_frame_of_input_tissue_and_haze_as_it_is(tmp_path):
    write_preview(tmp_path / "p.png", a_result(3))
    shown, tissue, haze = panels_of(np.asarray(Image.open(tmp_path / "p.png")))
    assert np.all(shown[:1] == 255) and np.all(shown[1:] == 128)  # one bright row: frame 1; -30 of 60 dB is mid-grey
    assert np.all(tissue == 0) and np.all(haze == 255)


def test_captions_stay_above_the_panels():
    picture = side_by_side([np.zeros((HEIGHT, WIDTH), np.uint8)] * 3)
    assert picture[:CAPTION_HEIGHT].max() > 100 and picture[CAPTION_HEIGHT:].max() == 0
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0


def test_scan_conversion_puts_every_echo_where_its_depth_and_angle_say():
    depths, angles = np.linspace(0.02, 0.12, 101), np.deg2rad(np.linspace(-40, 40, 81))
    frame = np.zeros((101, 81), np.uint8)
    frame[59:62, 59:62] = 255  # 80 mm deep, 20 degrees to the right
    picture = scan_convert(frame, Polar(depths, angles), height=301)
    top_m, pitch_m = 0.02 * np.cos(np.deg2rad(40)), (0.12 - 0.02 * np.cos(np.deg2rad(40))) / 300
    row, column = (np.average(axis, weights=picture) for axis in np.indices(picture.shape))
    assert top_m + row * pitch_m == pytest.approx(0.08 * np.cos(np.deg2rad(20)), abs=3e-4)
    assert -0.12 * np.sin(np.deg2rad(40)) + column * pitch_m == pytest.approx(0.08 * np.sin(np.deg2rad(20)), abs=3e-4)


def test_scan_conversion_is_black_outside_the_fan_and_full_inside():
    picture = scan_convert(
        np.full((50, 40), 200, np.uint8), Polar(np.linspace(0.01, 0.1, 50), np.linspace(-0.5, 0.5, 40))
    )
    assert set(np.unique(picture)) == {0, 200}
    assert picture[-1, 0] == picture[0, 0] == picture[0, picture.shape[1] // 2] == 0
    assert picture[picture.shape[0] // 2, picture.shape[1] // 2] == 200


def test_a_gif_holds_every_frame_at_the_rate_of_the_cine(tmp_path):
    write_preview(tmp_path / "p.gif", a_result(4, polar=True, times=np.arange(4) * 0.04), kind="gif")
    with Image.open(tmp_path / "p.gif") as film:
        assert film.n_frames == 4 and film.info["duration"] == 40
        bright = []
        for index in range(4):
            film.seek(index)
            bright.append(np.asarray(film.convert("L"))[CAPTION_HEIGHT:].astype(int).sum())
    assert bright == sorted(bright) and bright[0] < bright[3]


def test_an_mp4_plays_everywhere(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'video'")
    path = tmp_path / "p.mp4"
    write_preview(path, a_result(5, times=np.arange(5) * 0.05), kind="mp4")
    reader = ffmpeg.read_frames(str(path), pix_fmt="gray", bits_per_pixel=8)
    about = next(reader)
    assert about["codec"] == "h264" and about["pix_fmt"].startswith("yuv420p") and about["fps"] == 20
    width, height = about["size"]
    assert (width % 2, height % 2) == (0, 0)
    pictures = [np.frombuffer(frame, np.uint8).reshape(height, width) for frame in reader]
    assert len(pictures) == 5
    _, tissue, haze = panels_of(pictures[3])
    assert np.median(tissue) < 5 and np.median(haze) > 250
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # plays before it is loaded to the end


@pytest.mark.parametrize("kind", ["png", "gif", "mp4"])
def test_the_same_result_gives_the_same_bytes(tmp_path, kind):
    if kind == "mp4":
        pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'video'")
    for name in ("a", "b"):
        write_preview(tmp_path / name, a_result(3, polar=True), kind=kind)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_without_the_extra_an_mp4_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsdehazeError, match=r'pip install "usdehaze\[video\]"'):
        write_preview(tmp_path / "p.mp4", a_result(), kind="mp4")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_preview_is_kept(tmp_path):
    (tmp_path / "p.png").write_bytes(b"precious")
    with pytest.raises(InputError, match="exists already"):
        write_preview(tmp_path / "p.png", a_result())
    assert (tmp_path / "p.png").read_bytes() == b"precious"


def test_an_encoder_that_fails_gives_one_line_and_no_file(tmp_path, monkeypatch):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'video'")
    monkeypatch.setattr(ffmpeg._io, "get_ffmpeg_exe", lambda: "/bin/false")
    with pytest.raises(UsdehazeError, match="ffmpeg could not write the MP4"):
        write_preview(tmp_path / "p.mp4", a_result(), kind="mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("geometry", [Cartesian((1e-4, 4e-4)), Cartesian(sector=Sector(15, -9, 5, 30, -1, 1, -0.25))])
def test_pixels_that_are_not_square_are_shown_in_their_true_proportions(tmp_path, geometry):
    result = a_result()
    frames = np.full((1, 80, 40), -60, np.float32)
    frames[:, 40:, :10] = 0  # lower left, a square of 4 by 4 mm
    cine = replace(result.cine, frames=frames, geometry=geometry)
    write_preview(tmp_path / "p.png", Result(cine, frames, frames, None, {}), with_screen=True)
    picture = np.asarray(Image.open(tmp_path / "p.png"))
    assert picture.shape == (CAPTION_HEIGHT + 40, 3 * 80 + 2 * GAP)
    rows, columns = np.nonzero(picture[CAPTION_HEIGHT:, :80] > 128)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 39, 0, 19)


def test_pixels_far_from_square_make_no_picture_that_no_film_could_hold():
    frame = np.full((600, 800), 9, np.uint8)
    for spacing_m, shape in (((1e-5, 5e-3), (6, 4096)), ((5e-3, 1e-5), (4096, 11)), ((1e-7, 1), (1, 4096))):
        assert as_seen(frame, Cartesian(spacing_m)).shape == shape


def test_a_fan_of_more_than_a_half_circle_and_one_to_the_side_are_shown_whole():
    for first, last, sides in (
        (-100, 100, (-1, 1, np.cos(np.deg2rad(100)), 1)),
        (20, 60, (0.2 * 0.342, 0.866, 0.1, 0.94)),
    ):
        geometry = Polar(np.linspace(0.02, 0.1, 60), np.deg2rad(np.linspace(first, last, 181)))
        picture = scan_convert(np.full((60, 181), 255, np.uint8), geometry, 401)
        left, right, top, bottom = (0.1 * side for side in sides)
        assert picture.shape[1] - 1 == pytest.approx(400 * (right - left) / (bottom - top), abs=2)
        assert all(edge.any() for edge in (picture[1], picture[-2], picture[:, 1], picture[:, -2]))


def test_a_gif_of_30_frames_a_second_takes_the_time_of_the_cine(tmp_path):
    write_preview(tmp_path / "p.gif", a_result(31, times=np.arange(31) / 30), kind="gif")
    with Image.open(tmp_path / "p.gif") as film:
        shown = []
        for index in range(31):
            film.seek(index)
            shown.append(film.info["duration"])
    assert sum(shown[:30]) == 1000 and set(shown) == {30, 40}


def test_a_gif_shows_each_frame_until_the_next_one_s_time_and_an_mp4_that_cannot_knows_it(tmp_path):
    times = np.array([0, 0.04, 0.08, 0.5, 0.54, 20, 20.04, 20.08, 20.12])  # 20 s are no time for a frame
    write_preview(tmp_path / "p.gif", uneven := a_result(9, times=times), kind="gif")
    with Image.open(tmp_path / "p.gif") as film:
        shown = []
        for index in range(9):
            film.seek(index)
            shown.append(film.info["duration"])
    assert shown == [40, 40, 420, 40, 40, 40, 40, 40, 40]
    even = a_result(9, times=np.round(np.arange(9) / 30, 3))
    for result, kind, expected in ((uneven, "mp4", True), (uneven, "gif", False), (even, "mp4", False)):
        assert PreviewWriter(tmp_path / "p", CineScan(result.cine), kind).untimely == expected


def test_times_in_whole_ms_and_with_a_pause_are_shown_at_their_rate():
    times = np.round(np.arange(301) / 30, 3)  # as MKV, WebM and WMV have them
    assert frame_time_s(times) == pytest.approx(1 / 30, rel=1e-4)
    times[150:] += 5
    assert frame_time_s(times) == pytest.approx(1 / 30, rel=1e-4)
    assert frame_time_s(np.array([0, 0.01, 0.1])) == pytest.approx(0.05)  # nothing is usual
