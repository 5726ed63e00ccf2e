"""``usdehaze live``: the frames of ``process``, one by one; what it tells and refuses; how it ends."""

import io
import os
import signal
import threading
import time

import numpy as np
import pytest
from _scans import fan_frames
from _tiny_priors import write_tiny_posterior
from click.testing import CliRunner
from PIL import Image
from test_io_films import film, rgb

from usdehaze.cli import main
from usdehaze.io import open_scan, read_result

FRAMES = fan_frames(6, 96, 112, seed=6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("posterior") / "tiny.safetensors"
    write_tiny_posterior(path)
    return ("--posterior", path, "--device", "cpu")


def invoke(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.fixture(scope="module")
def processed(tmp_path_factory, tiny):
    """A film with a coloured bar, and what process makes of it."""
    folder = tmp_path_factory.mktemp("film")
    pixels = rgb(FRAMES)
    pixels[:, 50:60, 40:60] = 200, 40, 20
    path = film(folder / "a.avi", pixels, "-c:v", "rawvideo", "-pix_fmt", "bgr24", rate="50")
    made = invoke("process", path, "--preset", "preview", *tiny)
    assert made.exit_code == 0, made.output
    return path, read_result(folder / "a.dehazed.h5")


def test_a_live_frame_is_that_of_process_bit_for_bit(tmp_path, tiny, processed):
    path, expected = processed
    out = tmp_path / "live.dehazed.h5"
    made = invoke("live", path, "-o", out, "-o", tmp_path / "live.mp4", "--every-frame", "--web", *tiny)
    assert made.exit_code == 0, made.output
    result = read_result(out)
    assert not np.array_equal(result.tissue, result.input)  # something was taken off
    for name in ("input", "tissue", "haze"):
        assert np.array_equal(getattr(result, name), getattr(expected, name)), name
    assert np.array_equal(result.cine.frame_times_s, expected.cine.frame_times_s)
    assert result.cine.geometry == expected.cine.geometry
    told = ("preset", "own_settings", "posterior", "seed", "source_sha256", "source_name", "dynamic_range_db")
    assert all(result.attrs.get(name) == expected.attrs.get(name) for name in told)
    assert result.attrs["preset"] == "preview"
    assert "6 frames in, 6 dehazed, 0 dropped, " in made.stdout and f"-> {out}, " in made.stdout
    assert made.stdout.startswith("http://127.0.0.1:") and "the sector was found in the image" in made.stderr
    with open_scan(tmp_path / "live.mp4") as scan:
        assert scan.n_frames == 6


def test_frames_that_are_not_dropped_are_those_of_process_too(tmp_path, tiny, processed):
    path, expected = processed
    assert invoke("live", path, "-o", tmp_path / "live.h5", "--status", *tiny).exit_code == 0
    result = read_result(tmp_path / "live.h5")
    kept = np.searchsorted(expected.cine.frame_times_s, result.cine.frame_times_s)
    assert len(kept) >= 1 and np.array_equal(result.tissue, expected.tissue[kept])


def test_openigtlink_out_is_announced_and_a_missing_package_named(tiny, processed, monkeypatch):
    pytest.importorskip("pyigtl", reason="the extra igtl is not installed")
    made = invoke("live", processed[0], "--igtl", "0", *tiny)
    assert made.exit_code == 0 and made.stdout.startswith("OpenIGTLink at 127.0.0.1:"), made.output
    monkeypatch.setitem(__import__("sys").modules, "pyigtl", None)
    made = invoke("live", "igtl://127.0.0.1", "--web")
    assert made.exit_code == 1 and 'pip install "usdehaze[igtl]"' in made.stderr


@pytest.fixture(params=["SIGTERM", "SIGINT", "SIGHUP"])
def number(request):
    number = getattr(signal, request.param)
    before = signal.getsignal(number)
    if request.param == "SIGHUP":  # of a terminal that is closed; the tests may run under nohup
        signal.signal(number, signal.SIG_DFL)
    yield number
    signal.signal(number, before)


def test_a_signal_ends_it_with_the_result_complete(tmp_path, tiny, number):
    folder, out = tmp_path / "frames", tmp_path / "live.dehazed.h5"
    folder.mkdir()
    ended, asked = threading.Event(), threading.Event()

    def writes():
        return any(part.stat().st_size for part in tmp_path.glob(".live.*"))

    def scanner():
        index = 0
        while not ended.is_set():
            Image.fromarray(FRAMES[index % 6]).save(folder / "next.part", "PNG")
            os.replace(folder / "next.part", folder / f"{index % 20}.png")
            index += 1
            if not asked.is_set() and writes():
                asked.set()
                os.kill(os.getpid(), number)
            time.sleep(0.02)

    thread = threading.Thread(target=scanner)
    thread.start()
    try:
        made = invoke("live", folder, "-o", out, *tiny)
    finally:
        ended.set()
        thread.join()
    assert made.exit_code == 0, made.output
    result = read_result(out)
    assert f", {len(result.tissue)} dehazed, " in made.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frames", "live.dehazed.h5"]


def test_who_reads_its_lines_no_more_costs_no_result(tmp_path, tiny, processed, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    out = tmp_path / "a.dehazed.h5"
    with pytest.raises(SystemExit) as ended:
        main(["live", str(processed[0]), "--every-frame", "--status", "-o", str(out), *map(str, tiny)])
    assert ended.value.code == 0 and len(read_result(out).tissue) == 6


def test_it_ends_after_so_many_seconds(tmp_path, tiny):
    Image.fromarray(FRAMES[0]).save(tmp_path / "0.png")
    made = invoke("live", tmp_path, "-o", tmp_path / "out" / "a.dehazed.h5", "--seconds", "0.5", *tiny)
    if made.exit_code == 0:
        assert len(read_result(tmp_path / "out" / "a.dehazed.h5").tissue) == 1
    else:  # a machine too busy to begin in that time
        assert "gave no frame to dehaze" in made.stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["a.avi"], 2, "nowhere to put what is made; name -o FILE, --web or --igtl PORT"),
        (["a.avi", "-o", "a.png"], 2, "a.png: expected a name that ends in .h5 or .mp4"),
        (["a.avi", "-o", "a.h5", "-o", "./a.h5"], 2, "-o names a file twice"),
        (["a.avi", "--igtl", "0", "--port", "80"], 2, "--port belongs to --web"),
        (["none.avi", "--web"], 1, "none.avi: no such file"),
        (["igtl://", "--web"], 1, "igtl://: names no server"),
        ([".", "--web", "--axes", "THW"], 1, ".: has no datasets"),
        (["a.avi", "-o", "there.h5"], 1, "there.h5: exists already; replace it with --overwrite"),
    ],
)
def test_what_it_refuses_before_anything_is_loaded(tmp_path, monkeypatch, args, code, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.h5").write_text("")
    made = invoke("live", *args)
    assert (made.exit_code, made.stderr.count("\n")) == (code, 1) and told in made.stderr


def test_the_preset_is_preview_unless_another_is_asked_for():
    text = " ".join(invoke("live", "--help").stdout.split())
    assert "[default: preview]" in text
