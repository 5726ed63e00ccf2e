"""A folder that images are written to, as a source of frames."""

import io
import os
import threading
import time

import numpy as np
import pytest
from _scans import fan_frames
from PIL import Image

from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.live import folder as folders
from usdehaze.live.folder import Folder

FRAMES = fan_frames(8, 64, 64, seed=4)


@pytest.fixture
def said():
    return []


@pytest.fixture
def start(tmp_path, said):
    """Begins to watch the folder: an iterator of frames."""
    stop = threading.Event()
    yield lambda every=False: Folder(tmp_path, Reading(), said.append).frames(every, stop)
    stop.set()


def write(path, frame, at_s=None):
    """An image that appears as a whole, changed at a time since now."""
    Image.fromarray(frame).save(path.with_suffix(".part"), "PNG")
    if at_s is not None:
        os.utime(path.with_suffix(".part"), ns=(0, time.time_ns() + int(at_s * 1e9)))
    os.replace(path.with_suffix(".part"), path)


def test_it_begins_with_the_newest_and_then_takes_the_newest_again(tmp_path, start):
    for index in range(3):
        write(tmp_path / f"{index}.png", FRAMES[index], index - 9)
    frames = start()
    frame = next(frames)
    assert (frame.values == FRAMES[2]).all() and frame.missed == 0
    for index in range(3, 7):
        write(tmp_path / f"{index}.png", FRAMES[index], index - 9)
    (tmp_path / "notes.txt").write_text("no image")
    write(tmp_path / ".7.png", FRAMES[7])
    frame = next(frames)
    assert (frame.values == FRAMES[6]).all() and frame.missed == 3


def test_where_none_may_be_left_out_those_that_are_there_come_by_name_and_then_all_in_order(tmp_path, start):
    for place, index in enumerate((10, 9, 2)):
        write(tmp_path / f"{index}.png", FRAMES[index % 8], place - 9)
    frames = start(every=True)
    assert [next(frames).values[32, 32] for _ in range(3)] == [FRAMES[i % 8][32, 32] for i in (2, 9, 10)]
    for index in (11, 12, 13):
        write(tmp_path / f"{index}.png", FRAMES[index % 8], 0)
    assert all((next(frames).values == FRAMES[index % 8]).all() for index in (11, 12, 13))


def test_an_image_that_is_half_written_is_waited_for(tmp_path, start, said):
    whole = io.BytesIO()
    Image.fromarray(FRAMES[0]).save(whole, "PNG")
    path = tmp_path / "0.png"
    path.write_bytes(whole.getvalue()[:500])
    timer = threading.Timer(0.1, path.write_bytes, (whole.getvalue(),))
    timer.start()
    assert (next(start()).values == FRAMES[0]).all() and said == []
    timer.join()


def test_an_image_that_stays_unreadable_is_told_and_passed_over(tmp_path, start, said, monkeypatch):
    monkeypatch.setattr(folders, "GRACE_S", 0.05)
    (tmp_path / "0.png").write_bytes(b"\x89PNG and no more")
    timer = threading.Timer(0.3, write, (tmp_path / "1.png", FRAMES[1]))
    timer.start()
    assert (next(start()).values == FRAMES[1]).all()
    timer.join()
    assert len(said) == 1 and str(tmp_path / "0.png") in said[0]


def test_what_is_waited_for_is_told(tmp_path, start, said):
    (tmp_path / "a.dcm").write_bytes(b"no image for this")
    timer = threading.Timer(0.2, write, (tmp_path / "1.png", FRAMES[1]))
    timer.start()
    next(start())
    timer.join()
    assert len(said) == 1 and said[0].startswith(f"{tmp_path}: holds no image yet (") and ".png" in said[0]


def test_a_ring_of_files_that_are_written_over_again_gives_new_frames(tmp_path, start):
    frames = start(every=True)
    for index in range(6):
        write(tmp_path / f"{index % 2}.png", FRAMES[index], index / 100)
        assert (next(frames).values == FRAMES[index]).all()


def test_files_of_any_time_are_new_when_they_come(tmp_path, start):
    write(tmp_path / "ahead.png", FRAMES[0], 3600)  # of another clock, an hour ahead
    (tmp_path / "folder.png").mkdir()
    frames = start()
    assert (next(frames).values == FRAMES[0]).all()
    for index, at_s in ((1, 0), (2, -86400), (3, -86401)):  # the last ones copied with their times
        write(tmp_path / f"{index}.png", FRAMES[index], at_s)
        frame = next(frames)
        assert (frame.values == FRAMES[index]).all() and frame.missed == 0


def test_of_a_file_that_grows_only_new_frames_come(tmp_path, start):
    def save(n_frames, at_s):
        first, *more = map(Image.fromarray, FRAMES[:n_frames])
        first.save(tmp_path / "a.part", "TIFF", save_all=True, append_images=more)
        os.utime(tmp_path / "a.part", ns=(0, time.time_ns() + int(at_s * 1e9)))
        os.replace(tmp_path / "a.part", tmp_path / "a.tif")

    frames = start(every=True)
    save(2, 0)
    assert all((next(frames).values == FRAMES[index]).all() for index in range(2))
    os.utime(tmp_path / "a.tif", ns=(0, time.time_ns() + 10**8))  # touched alone
    save(5, 0.2)
    assert all((next(frames).values == FRAMES[index]).all() for index in range(2, 5))


def test_a_folder_that_goes_away_is_one_line(tmp_path):
    gone = Folder(tmp_path / "gone", Reading(), print)
    with pytest.raises(InputError, match="gone: cannot be looked through"):
        next(gone.frames(False, threading.Event()))


def coloured(frame):
    """A frame with a box of colour, as of Doppler."""
    rgb = np.repeat(frame[..., None], 3, axis=2)
    rgb[20:40, 20:40] = 200, 40, 20
    return rgb


def tinted(frame):
    """A frame under a colour map."""
    return (frame[..., None] * np.array([1, 0.8, 0.5])).astype(np.uint8)


@pytest.mark.parametrize("drawn", [np.asarray, coloured, tinted])
def test_frames_are_those_that_process_reads_of_the_same_folder(tmp_path, drawn):
    import usdehaze as ud

    for index in range(5):
        write(tmp_path / f"{index}.png", drawn(FRAMES[index]))
    source, stop = Folder(tmp_path, Reading(), print), threading.Event()
    came = source.frames(True, stop)
    first = [next(came) for _ in range(5)]
    stream, cine = source.stream(first), ud.open_cine(tmp_path)
    assert stream.geometry == cine.geometry and stream.dynamic_range_db == cine.dynamic_range_db
    frames = [stream.cine_of(frame) for frame in first]
    assert np.array_equal(np.concatenate([frame.frames for frame in frames]), cine.frames)
    whole = np.ones((1, 64, 64), bool)
    masks = np.concatenate([whole if frame.tissue_mask is None else frame.tissue_mask for frame in frames])
    assert np.array_equal(masks, np.repeat(whole, 5, 0) if cine.tissue_mask is None else cine.tissue_mask)
    assert masks[:, 25:35, 25:35].any() == (drawn is not coloured)
    live, read = ([note for note in each.source.assumptions if "olour" in note] for each in (stream, cine))
    assert live == [note for note in read if "Colours taken" not in note]
