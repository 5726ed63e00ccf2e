"""Frames dehazed as they come: what is dropped, what is counted, what is written, how it ends."""

import errno
import io
import os
import signal
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _live import Given, dimmed
from _scans import fan_frames
from test_io_films import film

from usdehaze import stopping
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io import h5_output, open_scan, read_result
from usdehaze.io.doubts import doubts_of
from usdehaze.io.ffmpeg import Device
from usdehaze.io.film import Mp4
from usdehaze.io.reading import Reading
from usdehaze.io.sink import SinkSet
from usdehaze.live import open_source, run
from usdehaze.live.device import VideoDevice, device_of
from usdehaze.live.figures import Counter
from usdehaze.live.files import LiveFilm, LiveResult
from usdehaze.live.newest import Latest, Newest
from usdehaze.live.recorded import times_of
from usdehaze.live.stream import Changed

FRAMES = fan_frames(8, 64, 64, seed=3)
FOREVER = threading.Event()


def result_in(path):
    return lambda stream: [LiveResult(path, stream)]


def grey_of(cine):
    return np.rint(255 * (cine.frames / 60 + 1)).astype(int)


def test_who_takes_gets_the_newest_and_the_rest_counts_as_dropped():
    newest = Newest()
    for thing in "abc":
        newest.put(thing)
    newest.put("d", missed=2)
    assert (newest.take(0), newest.came, newest.dropped) == ("d", 6, 5)
    assert newest.take(0) is None and not newest.over
    newest.put("e")
    newest.close(InputError("x", "broke"))
    assert not newest.over and newest.take(0) == "e"  # what came before the error is not lost
    assert not newest.over
    with pytest.raises(InputError, match="x: broke"):
        newest.take(0)
    assert newest.over


def test_where_none_may_be_dropped_who_puts_waits():
    newest, put = Newest(every=True), []

    def hand_over():
        for thing in range(3):
            newest.put(thing)
            put.append(thing)
        newest.close()

    thread = threading.Thread(target=hand_over)
    thread.start()
    taken = []
    while not newest.over:
        time.sleep(0.01)
        assert len(put) <= len(taken) + 1
        taken.append(newest.take(5))
    thread.join()
    assert (taken, newest.came, newest.dropped) == ([0, 1, 2], 3, 0)


def test_many_see_the_latest_and_none_twice():
    latest = Latest()
    assert latest.wait(0, 0) is None
    latest.set("a")
    latest.set("b")
    assert latest.wait(0, 0) == latest.wait(1, 0) == (2, "b") and latest.wait(2, 0) is None
    latest.close()
    assert latest.wait(2, 60) is None  # at once


def test_percentiles_are_right_to_two_per_cent_and_take_no_more_memory_for_more_frames():
    counter, rng = Counter(), np.random.default_rng(0)
    latencies = rng.lognormal(-4, 1, 5000)
    for latency in latencies[:1000]:
        counter.add(latency)
    before = counter.figures(1000, 0)
    for latency in latencies[1000:]:
        counter.add(latency)
    now = counter.figures(5100, 100)
    for share in (0.5, 0.9, 0.99):
        for figures, part in ((now, latencies), (now.since(before), latencies[1000:])):
            assert figures.latency_s(share) == pytest.approx(np.quantile(part, share), rel=0.03)
    assert now.latencies.nbytes == before.latencies.nbytes
    assert now.since(before).line().startswith("4100 frames in, 4000 dehazed, 100 dropped, ")


def test_frames_that_come_while_one_is_dehazed_are_dropped_but_for_the_newest(tmp_path):
    more, all_there = threading.Event(), threading.Event()
    seen = []

    def before(index):
        if index == 1:
            more.wait(20)
        if index == 6:
            all_there.set()

    def dehaze(cine):
        grey = grey_of(cine)
        if grey.max():
            seen.append(next(i for i, frame in enumerate(FRAMES) if (grey[0] == frame).all()))
            more.set()
            assert all_there.wait(20)
        return dimmed(cine)

    source = Given(FRAMES[:6], before=before)
    figures = run(source, dehaze, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"))
    assert seen == [0, 5] and (figures.came, figures.dehazed, figures.dropped) == (6, 2, 4) and source.closed
    result = read_result(tmp_path / "a.dehazed.h5")
    assert (grey_of(result.cine) == FRAMES[[0, 5]]).all() and np.diff(result.cine.frame_times_s) > 0
    assert result.cine.source.assumptions[-1].startswith("Dehazed live: 6 frames in, 2 dehazed, 4 dropped, ")
    assert doubts_of(tmp_path / "a.dehazed.h5") == []


def test_without_dropping_every_frame_is_there_also_those_that_the_fan_was_found_in(tmp_path):
    black = np.zeros((1, 64, 64), np.uint8)
    given = Given([*black, *FRAMES, *black], first_frames=4)  # no image yet; 8 frames; the probe is lifted
    figures = run(given, dimmed, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"), every=True)
    assert (figures.came, figures.dehazed, figures.dropped) == (10, 9, 1)
    result = read_result(tmp_path / "a.dehazed.h5")
    assert (grey_of(result.cine) == [*FRAMES, *black]).all() and result.cine.geometry.found_by == "sector finder"
    assert np.array_equal(result.tissue[-1], result.cine.frames[-1])  # black stays black


def test_a_frame_that_cannot_be_used_is_counted_and_passed_over(tmp_path):
    frames = FRAMES[:4].astype(np.float32)
    frames[2, 30, 30] = np.nan
    figures = run(Given(frames), dimmed, FOREVER, every=True)
    assert (figures.came, figures.dehazed, figures.unusable) == (4, 3, 1)
    assert ", 1 unusable, " in figures.line()


def test_memory_does_not_grow_with_frames():
    class Many:
        def __len__(self):
            return 1301

        def __iter__(self):
            return (FRAMES[index % 8, :16, 24:40] for index in range(len(self)))

    held = {}

    def watch(figures):
        if figures.dehazed in (300, 1300):
            held[figures.dehazed] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        run(Given(Many()), dimmed, FOREVER, every=True, watch=watch)
    finally:
        tracemalloc.stop()
    assert held[1300] - held[300] < 16_000  # bytes; 1000 numbers in a list would be 32,000


@pytest.mark.parametrize("broken", ["source", "size"])
def test_what_was_dehazed_is_kept_when_the_source_breaks_or_changes(tmp_path, broken):
    def before(index):
        if broken == "source" and index == 3:
            raise InputError("given", "was unplugged")

    given = [*FRAMES[:3], FRAMES[3, :40], *FRAMES[4:]]
    expected = "was unplugged" if broken == "source" else "its frames are now 40 x 64; expected 64 x 64"
    with pytest.raises(UsdehazeError, match=expected):
        run(Given(given, before=before), dimmed, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"), every=True)
    assert (grey_of(read_result(tmp_path / "a.dehazed.h5").cine) == FRAMES[:3]).all()


@pytest.mark.parametrize("late", [False, True])
def test_who_asks_for_the_end_twice_gets_what_was_dehazed_all_the_same(tmp_path, monkeypatch, late):
    def before(index):
        if index == 3 and late:
            ended.set()
        elif index == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)  # in the middle of the stream

    def commit(files, plain=SinkSet.commit):
        if late:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        plain(files)

    monkeypatch.setattr(SinkSet, "commit", commit)
    ended = threading.Event()
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)  # what the second signal meets
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Given(FRAMES, before=before), dimmed, ended, files=result_in(tmp_path / "a.dehazed.h5"), every=True)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert 1 <= len(read_result(tmp_path / "a.dehazed.h5").tissue) <= 4


def test_a_frame_that_was_handed_over_as_a_signal_came_is_written_before_files_are_completed(tmp_path, monkeypatch):
    def append(writer, result, plain=LiveResult._append):
        time.sleep(0.1)  # is written still when the signal acts
        plain(writer, result)

    def submit(thread, *work, plain=ThreadPoolExecutor.submit):
        handed.append(plain(thread, *work))
        if len(handed) == 3:
            raise KeyboardInterrupt
        return handed[-1]

    handed = []
    monkeypatch.setattr(LiveResult, "_append", append)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        run(Given(FRAMES), dimmed, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"), every=True)
    assert (grey_of(read_result(tmp_path / "a.dehazed.h5").cine) == FRAMES[:3]).all()
    assert doubts_of(tmp_path / "a.dehazed.h5") == []


def test_where_a_file_cannot_be_written_nothing_is_left(tmp_path, monkeypatch):
    def full(self, result):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LiveResult, "_append", full)
    with pytest.raises(InputError, match="No space left on device"):
        run(Given(FRAMES), dimmed, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"), every=True)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_gets_full_ends_a_recording_with_the_frames_until_then(tmp_path, monkeypatch):
    """What the result sets aside is given back once: it then takes 100 KB more, here, and no more frames."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    left = [90_000]

    class File:
        def __init__(self, path, mode, buffering):
            self.file = open(path, mode, buffering=buffering)

        def write(self, values):
            if len(values) > left[0]:
                raise full
            left[0] -= len(values)
            return self.file.write(values)

        def __getattr__(self, name):
            return getattr(self.file, name)

    class Reserve(io.BytesIO):
        def close(self):
            left[0] += 100_000
            super().close()

    monkeypatch.setattr(h5_output, "open", File, raising=False)
    monkeypatch.setattr(h5_output.tempfile, "TemporaryFile", lambda dir, buffering: Reserve())
    out = tmp_path / "a.dehazed.h5"
    with pytest.raises(UsdehazeError) as told:
        run(Given(FRAMES), dimmed, FOREVER, files=result_in(out), every=True)
    result = read_result(out)
    kept = len(result.tissue)
    assert 1 < kept < len(FRAMES) and len(result.cine.frame_times_s) == kept
    assert (grey_of(result.cine) == FRAMES[:kept]).all() and np.array_equal(result.tissue, dimmed(result.cine).tissue)
    assert str(told.value) == (
        f"{out}: cannot be written (No space left on device); what was dehazed until then is in {out} ({kept} frames)"
    )
    assert doubts_of(out) == [] and list(tmp_path.iterdir()) == [out]


def test_a_film_that_cannot_be_written_costs_no_result(tmp_path, monkeypatch):
    def broken(self, picture, shown_s=None):
        raise UsdehazeError("ffmpeg could not write")

    monkeypatch.setattr(Mp4, "add", broken)
    out = tmp_path / "a.dehazed.h5"
    files = lambda stream: [LiveResult(out, stream), LiveFilm(tmp_path / "a.mp4", stream, False, False)]  # noqa: E731
    with pytest.raises(UsdehazeError, match=r"could not write; what was dehazed until then is in .*h5 \(1 frames\)"):
        run(Given(FRAMES), dimmed, FOREVER, files=files, every=True)
    assert (grey_of(read_result(out).cine) == FRAMES[:1]).all() and list(tmp_path.iterdir()) == [out]


def test_a_source_of_nothing_is_an_error_and_makes_no_file(tmp_path):
    for frames in ([], np.zeros((3, 64, 64), np.uint8)):
        with pytest.raises(InputError, match="given: gave no frame to dehaze"):
            run(Given(frames), dimmed, FOREVER, files=result_in(tmp_path / "a.dehazed.h5"))
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_nobody_foresaw_reaches_the_caller_from_the_source_s_thread():
    def before(index):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Given(FRAMES, before=before), dimmed, FOREVER)


def test_a_film_shows_a_picture_until_the_next_one_s_time(tmp_path):
    recorded = film(
        tmp_path / "a.mkv", FRAMES[:4], "-c:v", "ffv1", filters=("-vf", "setpts=N*N/(25*TB)", "-fps_mode", "vfr")
    )
    source = open_source(str(recorded))
    files = lambda stream: [LiveFilm(tmp_path / "a.mp4", stream, False, False)]  # noqa: E731
    run(source, dimmed, FOREVER, files=files, every=True)
    with open_scan(tmp_path / "a.mp4") as scan:  # of frames at 0, 1, 4 and 9 times 0.04 s; a picture is 0.12 s long
        assert scan.n_frames == 4 and scan.frame_times_s[-1] == pytest.approx(0.36, abs=0.01)


def test_recordings_are_played_at_their_own_times_and_what_is_late_is_left_out(tmp_path):
    path = film(tmp_path / "a.avi", FRAMES, "-c:v", "ffv1", rate="40")
    source, stop = open_source(str(path)), threading.Event()
    began = time.monotonic()
    frames = list(source.frames(True, stop))
    assert time.monotonic() - began >= 7 / 40
    np.testing.assert_allclose([frame.at_s for frame in frames], np.arange(8) / 40)
    assert all(frame.came_s - began >= frame.at_s - 1e-3 for frame in frames)
    slow = source.frames(False, stop)
    first = next(slow)
    time.sleep(0.11)
    second = next(slow)
    assert first.at_s == 0 and second.missed >= 3 and second.at_s == pytest.approx((1 + second.missed) / 40)
    source.close()
    np.testing.assert_allclose(times_of(np.array([3.0, 1.0, 2.0]), 3), [0, 0.05, 0.1])


def test_a_video_device_gives_pictures_until_it_is_stopped():
    source = VideoDevice(
        Device("lavfi", "testsrc=size=96x64:rate=50"), "camera", Reading(force=True)
    )  # coloured, never ends
    stop = threading.Event()
    frames = source.frames(False, stop)
    frame = next(frames)
    assert frame.values.shape == (64, 96) and not frame.picture().grey().all()
    assert source.stream([frame]).cine_of(next(frames)).tissue_mask.shape == (1, 64, 96)
    stop.set()
    source.interrupt()
    assert list(frames) == [] or stop.is_set()
    source.close()
    gone = VideoDevice(Device("v4l2", "/dev/null"), "/dev/null", Reading())
    with pytest.raises(InputError, match="/dev/null: no picture comes from it"):
        next(gone.frames(False, stop))
    assert device_of("dshow:video=USB Video") == Device("dshow", "video=USB Video")
    assert device_of("a.avi") is None


def test_the_first_signal_asks_for_the_end_and_the_second_acts_as_ever():
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append("ever"))
    try:
        with stopping.ending() as asked:
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked.wait(5) and came == []
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            assert came == ["ever"]
        assert signal.getsignal(signal.SIGTERM) is not before
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that hang up here")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_terminal_that_is_closed_asks_for_the_end_but_not_under_nohup(handler):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with stopping.ending() as asked, stopping.uninterrupted():
            assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == (handler is signal.SIG_IGN)
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked.is_set() == (handler is signal.SIG_DFL) and signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("grey", [0, 100, 255])
def test_a_frame_of_one_value_comes_out_as_it_went_in(grey):
    stream = Given(FRAMES).stream(list(Given(FRAMES).frames(True, FOREVER))[:2])
    cine = stream.cine_of(next(Given(np.full_like(FRAMES[:1], grey)).frames(True, FOREVER)))
    assert not cine.tissue_mask.any() and cine.tissue_mask.shape == cine.frames.shape
    assert stream.source.assumptions[-1].startswith("Frames of one value throughout")
    assert stream.cine_of(next(Given(FRAMES).frames(True, FOREVER))).tissue_mask is None


def test_a_change_of_size_is_told_from_a_frame_that_cannot_be_used():
    stream = Given(FRAMES).stream(list(Given(FRAMES).frames(True, FOREVER))[:2])
    frame = next(Given(FRAMES[:, :40]).frames(True, FOREVER))
    with pytest.raises(Changed, match="start again"):
        stream.cine_of(frame)
