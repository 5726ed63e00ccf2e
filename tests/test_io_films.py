"""Films as scans: MP4, AVI, animated GIF; made by the ffmpeg of imageio-ffmpeg, as other programs make them."""

import resource
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from _scans import fan_frames
from PIL import Image

import usdehaze as ud
from usdehaze.budget import max_memory
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.io import kind_of, list_scans, open_scan

FRAMES = fan_frames(8, 112, 112)
DAMAGED = "The film seems damaged or cut off"


def film(path, frames, *encode, rate="50", filters=()):
    """``frames`` ``(T, H, W[, 3])`` uint8 as a film."""
    pixels = "gray" if frames.ndim == 3 else "rgb24"
    read = ["-f", "rawvideo", "-pix_fmt", pixels, "-s", f"{frames.shape[2]}x{frames.shape[1]}", "-r", rate, "-i", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *read, *filters, *encode, str(path)]
    subprocess.run(command, input=frames.tobytes(), check=True)
    return path


def rgb(frames):
    return np.repeat(frames[..., None], 3, axis=3)


def grey_of(cine):
    return 255 * (cine.frames / 60 + 1)


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("a.avi", ("-c:v", "rawvideo", "-pix_fmt", "bgr24")),
        ("b.mkv", ("-c:v", "ffv1", "-pix_fmt", "gray")),
        ("c.mov", ("-c:v", "png")),
    ],
)
def test_films_without_loss_are_read_exactly_with_their_times(tmp_path, name, encode):
    path = film(tmp_path / name, rgb(FRAMES), *encode)
    with open_scan(path) as scan:
        assert (scan.n_frames, scan.shape, scan.source.units) == (8, (112, 112), "8-bit")
        for start, stop in ((5, 7), (0, 2), (7, 8)):  # forwards and back
            cine = scan.read(start, stop)
            assert np.abs(grey_of(cine) - FRAMES[start:stop]).max() < 0.01 and cine.tissue_mask is None
        np.testing.assert_allclose(scan.frame_times_s, np.arange(8) / 50)
        assert "Frame times are those of the film, 50 frames/s." in scan.source.assumptions


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("echonet.avi", ("-c:v", "mjpeg", "-q:v", "2")),  # full range
        ("b.mp4", ("-c:v", "libx264", "-crf", "8", "-pix_fmt", "yuv420p")),  # limited range
        ("c.mpg", ("-c:v", "mpeg2video", "-q:v", "2")),
        ("d.m1v", ("-c:v", "mpeg1video", "-q:v", "2")),
        ("e.ts", ("-c:v", "libx264", "-crf", "8", "-pix_fmt", "yuv420p")),
        ("f.m2ts", ("-c:v", "mpeg2video", "-q:v", "2", "-mpegts_m2ts_mode", "1")),
    ],
)
def test_films_with_loss_are_close_over_the_whole_range(tmp_path, name, encode):
    cine = ud.open_cine(film(tmp_path / name, rgb(FRAMES), *encode))
    off = grey_of(cine) - FRAMES
    assert cine.frames.shape == FRAMES.shape and np.abs(off).mean() < 2 and abs(off.mean()) < 0.5
    assert cine.geometry.found_by == "sector finder"


def test_films_of_uneven_frames_keep_their_times(tmp_path):
    path = film(tmp_path / "a.mkv", FRAMES, "-c:v", "ffv1", filters=("-vf", "setpts=N*N/(25*TB)", "-fps_mode", "vfr"))
    cine = ud.open_cine(path, frames=slice(2, 5))
    np.testing.assert_allclose(cine.frame_times_s, np.array([4, 9, 16]) / 25, atol=2e-3)
    assert not any(DAMAGED in note for note in cine.source.assumptions)
    assert np.abs(grey_of(cine) - FRAMES[2:5]).max() < 0.01


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_times_of_a_variable_frame_rate_are_not_rounded_to_a_constant_one(tmp_path, name):
    shown_s = np.array([0, 10, 35, 70, 80, 300, 305, 400]) / 1000  # as of a phone, or of a screen that is recorded
    stamps = "+".join(f"eq(N,{index})*{time}/TB" for index, time in enumerate(shown_s))
    times = ("-vf", f"settb=1/90000,setpts='{stamps}'", "-fps_mode", "vfr", "-enc_time_base", "1/90000")
    cine = ud.open_cine(film(tmp_path / name, FRAMES, "-c:v", "libx264", "-qp", "0", filters=times, rate="25"))
    np.testing.assert_allclose(cine.frame_times_s, shown_s, atol=2e-5)


def test_a_film_of_pixels_that_are_not_square_has_a_fan_of_round_arcs(tmp_path):
    tall = np.repeat(fan_frames(4, 128, 160), 2, axis=1)
    square = ud.open_cine(film(tmp_path / "a.mkv", tall[:, ::2], "-c:v", "ffv1")).geometry.sector
    cine = ud.open_cine(film(tmp_path / "b.mkv", tall, "-c:v", "ffv1", filters=("-vf", "setsar=2/1")))
    found = cine.geometry.sector
    assert found.aspect == 0.5 and not any("taken as square" in note for note in cine.source.assumptions)
    expected = [square.apex_x, square.apex_y, square.r_max]
    assert [found.apex_x, found.apex_y, found.r_max] == pytest.approx(expected, abs=1)
    assert [found.angle_min, found.angle_max] == pytest.approx([square.angle_min, square.angle_max], abs=0.02)


def test_colour_in_a_film_is_left_as_it_is(tmp_path):
    colour = rgb(FRAMES)
    colour[:, 40:60, 50:70] = (200, 40, 20)
    cine = ud.open_cine(film(tmp_path / "a.avi", colour, "-c:v", "rawvideo", "-pix_fmt", "bgr24"))
    expected = np.ones(FRAMES.shape, bool)
    expected[:, 40:60, 50:70] = False
    assert np.array_equal(cine.tissue_mask, expected)
    share = 100 * 400 / np.count_nonzero(image_mask(cine.geometry, FRAMES.shape[1:]))
    assert f"Colour is left as it is: {share:.2g} % of the pixels in the image." in cine.source.assumptions


def test_an_animated_gif_is_a_cine_with_its_times(tmp_path):
    images = [Image.fromarray(frame) for frame in FRAMES]
    times = [40, 40, 80, 40, 40, 40, 40, 40]
    images[0].save(tmp_path / "a.gif", save_all=True, append_images=images[1:], duration=times, loop=0)
    with open_scan(tmp_path / "a.gif") as scan:
        for start, stop in ((6, 8), (0, 3), (3, 5)):
            assert np.abs(grey_of(scan.read(start, stop)) - FRAMES[start:stop]).max() < 0.01
        np.testing.assert_allclose(scan.frame_times_s, np.cumsum([0, *times[:-1]]) / 1000)
        assert scan.source.layout == "GIF film"
    images[0].save(tmp_path / "b.gif")
    assert ud.open_cine(tmp_path / "b.gif").frames.shape == (1, 112, 112)


def test_films_in_folders_are_scans_and_previews_are_not(tmp_path):
    for name in ("a.avi", "a.dehazed.avi"):
        film(tmp_path / name, FRAMES[:2], "-c:v", "ffv1")
    film(tmp_path / "a.dehazed.mp4", rgb(FRAMES[:2]), "-c:v", "libx264", "-pix_fmt", "yuv420p")
    Image.fromarray(FRAMES[0]).save(tmp_path / "a.dehazed.gif")
    (tmp_path / "notes.txt").write_text("no film")
    assert [path.name for path in list_scans([tmp_path])] == ["a.avi", "a.dehazed.avi"]
    assert kind_of(tmp_path / "a.avi") == "film"


@pytest.mark.parametrize("name", ["-y.avi", "a:b.avi", "concat:a.avi", "%03d.avi"])
def test_names_that_ffmpeg_would_take_for_something_else(tmp_path, monkeypatch, name):
    film(tmp_path / "a.avi", FRAMES[:2], "-c:v", "ffv1")
    (tmp_path / "a.avi").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert np.abs(grey_of(ud.open_cine(name)) - FRAMES[:2]).max() < 0.01


def test_films_that_cannot_be_used(tmp_path, monkeypatch):
    path = film(tmp_path / "a.avi", FRAMES, "-c:v", "ffv1")
    content = path.read_bytes()

    def refused(*parts, **options):
        with pytest.raises(InputError) as caught:
            ud.open_cine(path, **options)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{path}: ")
        for part in parts:
            assert part in str(caught.value)

    refused("film images hold log-compressed grey levels", units="dB")
    refused("has no datasets (film)", dataset="x")
    path.write_bytes(content[:200])
    refused("has no picture that can be decoded")
    path.write_bytes(content)
    monkeypatch.setattr("usdehaze.io.ffmpeg.MAX_FRAMES", 3)
    refused("holds more than 3 frames")
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    refused("video needs a decoder that is not installed")


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("a.avi", ("-c:v", "mjpeg", "-q:v", "2")),
        ("b.mkv", ("-c:v", "ffv1")),
        ("c.mp4", ("-c:v", "libx264", "-crf", "8", "-pix_fmt", "yuv420p", "-g", "2", "-movflags", "+faststart")),
        ("d.mpg", ("-c:v", "mpeg2video", "-q:v", "2", "-g", "3")),
    ],
)
def test_films_that_are_cut_off_or_damaged_are_said_to_be(tmp_path, name, encode):
    path = film(tmp_path / name, rgb(FRAMES), *encode)
    content = path.read_bytes()
    with open_scan(path) as scan:
        assert not any(DAMAGED in note for note in scan.source.assumptions)
    path.write_bytes(content[: len(content) * 3 // 5])
    with open_scan(path) as scan:
        assert 2 <= scan.n_frames < 8 and any(DAMAGED in note for note in scan.source.assumptions)
    with pytest.raises(InputError, match=f"--strict allows no guess: .*{DAMAGED}"):
        open_scan(path, strict=True)


def test_films_damaged_inside_or_cut_off_between_two_frames_are_said_to_be(tmp_path):
    path = film(tmp_path / "a.avi", rgb(FRAMES), "-c:v", "mjpeg", "-q:v", "2")
    content = path.read_bytes()
    ends = [at for at in range(content.index(b"movi"), len(content)) if content.startswith(b"00dc", at)]
    path.write_bytes(content[: ends[5]])
    cut = ud.open_cine(path)
    assert len(cut.frames) == 5 and any(DAMAGED in note for note in cut.source.assumptions)
    path.write_bytes(content[:4] + b"\xff" * 4 + content[8:])  # as it comes out of a pipe
    assert not any(DAMAGED in note for note in ud.open_cine(path).source.assumptions)
    path.write_bytes(content[: ends[5] + 900] + bytes(200) + content[ends[5] + 1100 :])
    assert any(DAMAGED in note for note in ud.open_cine(path).source.assumptions)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux bounds another process")
def test_ffmpeg_gets_the_memory_that_a_file_may_cost_and_no_more(tmp_path, monkeypatch):
    path = film(tmp_path / "a.avi", FRAMES, "-c:v", "ffv1")
    program = tmp_path / "ffmpeg"
    asked = "import resource as r, sys, time; time.sleep(1); print(r.getrlimit(r.RLIMIT_DATA)[0]); sys.exit(244)"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{asked}' > {tmp_path}/limit\n")
    program.chmod(0o700)
    with max_memory(2**24):
        assert len(ud.open_cine(path).frames) == 8
        monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(program))
        with pytest.raises(InputError, match=r"needs more memory to be decoded than a film does; .*--max-memory"):
            ud.open_cine(path)
    assert int((tmp_path / "limit").read_text()) == 2**28 + 2**24
