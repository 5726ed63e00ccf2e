"""``usdehaze process``: which files it makes, what it tells, what it refuses."""

import errno
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import h5py
import numpy as np
import pytest
from _scans import fan_frames, write
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.dehazing.registry import LEARNED, OBSERVATIONS, RULES, SAMPLERS
from usdehaze.dehazing.settings import PRESETS
from usdehaze.errors import UsdehazeError
from usdehaze.io import read_result
from usdehaze.result import Result


@pytest.fixture
def model(monkeypatch):
    """Stands in for the priors: takes 1 dB off everything, remembers what it was asked."""
    asked = SimpleNamespace(settings=None, cines=[], loaded=0, during=lambda: None)

    class Dehazer:
        group = 1

        @classmethod
        def from_pretrained(cls, **settings):
            asked.settings, asked.loaded = settings, asked.loaded + 1
            if settings["device"] == "cuda:7":
                raise UsdehazeError("device cuda:7 is not there; expected cpu")
            return cls()

        @property
        def told(self):
            told = {"preset": "fast", "guidance": "proximal", "steps": 20, "tissue_prior": "t sha256:0"}
            given = {"strength": asked.settings["strength"], "caution": asked.settings["caution"] or 0.85}
            return told | {"haze_prior": "h sha256:1", "seed": asked.settings["seed"]} | given

        def dehaze(self, cine, progress=None):
            asked.cines.append(cine)
            asked.during()
            tissue = np.maximum(cine.frames - 1, -cine.dynamic_range_db)
            return Result(cine, tissue, tissue - 5, None, self.told)

    module = ModuleType("usdehaze.dehazing.dehazer")
    module.Dehazer = Dehazer
    monkeypatch.setitem(sys.modules, "usdehaze.dehazing.dehazer", module)

    def told_of(**settings):
        asked.settings = settings
        return Dehazer().told

    monkeypatch.setattr("usdehaze.dehazing.told.told_of", told_of)
    return asked


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


NOTES = ("Dynamic range assumed", "No geometry in the file", "No frame times")


def failed(code, *args, names=()):
    """One line of error on stderr, beside notes on other scans; it holds every name, and nothing like a traceback."""
    done = run(*args)
    assert done.exit_code == code, done.output
    errors = [line for line in done.stderr.splitlines() if not any(f": {note}" in line for note in NOTES)]
    assert len(errors) == 1 and errors[0].startswith("usdehaze: "), done.stderr
    for name in names:
        assert str(name) in errors[0]
    return done


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_result_lies_next_to_the_scan_and_the_scan_is_untouched(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"cine": fan_frames(3)})
    before = (scan.read_bytes(), scan.stat().st_mtime_ns)
    done = run("process", scan)
    assert done.exit_code == 0
    assert f"usdehaze: {scan}: Dynamic range assumed to be 60 dB. Decide with --dynamic-range. " in done.stderr
    assert f"{scan} -> {tmp_path / 'scan.dehazed.h5'} (3 frames in" in done.stdout
    assert files_in(tmp_path) == ["scan.dehazed.h5", "scan.h5"]
    result = read_result(tmp_path / "scan.dehazed.h5")
    assert result.attrs["source_sha256"] == hashlib.sha256(before[0]).hexdigest()
    assert np.array_equal(result.input, model.cines[0].frames)
    assert np.array_equal(result.tissue, np.maximum(result.input - 1, -60))
    assert (scan.read_bytes(), scan.stat().st_mtime_ns) == before


def test_every_option_reaches_its_place(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"a": fan_frames(5), "b": fan_frames(5, seed=1)})
    done = run(
        *("process", scan, "-o", tmp_path / "new" / "out", "--preset", "paper", "--guidance", "pigdm", "--steps", 7),
        *("--seed", 11, "--strength", 0.25, "--samples", 4, "--device", "cpu", "--batch-size", 3, "--frames", "1:4"),
        *("--tissue-prior", "T", "--haze-prior", "H", "--dataset", "b", "--dynamic-range", 50, "--quiet"),
        *("--observation", "additive", "--sampler", "heun", "--lambda", 0.5, "--kappa", 0.25, "--caution", 0.6),
    )
    assert done.exit_code == 0 and done.output == ""
    assert model.settings == {
        **{"preset": "paper", "guidance": "pigdm", "steps": 7, "seed": 11, "strength": 0.25, "samples": 4},
        **{
            "device": "cpu",
            "batch_size": 3,
            "engine": "auto",
            "precision": "fp32",
            "posterior": None,
            "tissue_prior": "T",
            "haze_prior": "H",
        },
        **{"observation": "additive", "sampler": "heun", "scale": (0.5, 0.25), "caution": 0.6},
    }
    cine = model.cines[0]
    assert (cine.source.dataset, cine.source.first_frame, len(cine.frames), cine.dynamic_range_db) == ("b", 1, 3, 50)
    assert files_in(tmp_path / "new") == ["out/scan.dehazed.h5"]
    assert run("process", scan, "--dataset", "a", "--posterior", "Q").exit_code == 0
    assert model.settings["posterior"] == "Q"


def test_without_options_the_presets_decide(tmp_path, model):
    run("process", write(tmp_path / "scan.h5", {"x": fan_frames()}))
    assert model.settings == {
        **{"preset": "fast", "guidance": None, "steps": None, "seed": 0, "strength": 1.0, "samples": None},
        **{
            "device": "auto",
            "batch_size": "auto",
            "engine": "auto",
            "precision": "fp32",
            "posterior": None,
            "tissue_prior": None,
            "haze_prior": None,
        },
        **{"observation": None, "sampler": None, "scale": None, "caution": None},
    }


def test_the_command_line_knows_every_name_that_the_settings_know():
    choices = {p.name: getattr(p.type, "choices", None) for p in main.commands["process"].params}
    assert [tuple(choices[name]) for name in ("preset", "guidance", "observation", "sampler")] == [
        tuple(PRESETS), (LEARNED, *RULES), tuple(OBSERVATIONS), tuple(SAMPLERS),
    ]  # fmt: skip


@pytest.mark.parametrize("one", ["--lambda", "--kappa"])
def test_one_of_lambda_and_kappa_without_the_other_is_wrong_usage(tmp_path, model, one):
    failed(2, "process", write(tmp_path / "scan.h5", {"x": fan_frames()}), one, 0.5, names=["give both or neither"])
    assert model.loaded == 0


def test_a_folder_is_mirrored_and_one_bad_scan_stops_nothing(tmp_path, model):
    folder = tmp_path / "in"
    for name in ("a.h5", "sub/a.h5", "sub/b.h5", "sub/b.hdf5", "done.dehazed.h5"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, {"x": fan_frames()})
    write(folder / "bad.h5", {"x": np.zeros((2, 32, 32), np.uint8)})
    done = failed(1, "process", folder, "-o", tmp_path / "out", names=[folder / "bad.h5", "constant"])
    assert done.stdout.splitlines()[-1] == "4 scans dehazed, 1 failed"
    assert files_in(tmp_path / "out") == [
        *("a.dehazed.h5", "sub/a.dehazed.h5", "sub/b.h5.dehazed.h5", "sub/b.hdf5.dehazed.h5"),
    ]
    assert model.loaded == 1


def test_what_is_no_scan_in_a_folder_is_told(tmp_path, model):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.h5", {"x": fan_frames()})
    for name in ("b.nrrd", "c.nrrd"):
        (folder / name).write_bytes(b"NRRD0004\n")
    done = run("process", folder)
    assert done.exit_code == 0 and done.stdout.splitlines()[-1] == "1 scans dehazed, 0 failed"
    assert f"usdehaze: {folder / 'b.nrrd'} and 1 more: NRRD, which is not read; left out" in done.stderr.splitlines()
    (folder / "copy.h5").write_bytes(b"")
    done = run("process", folder, "--skip-existing", "--log", tmp_path / "log.jsonl")
    assert done.exit_code == 1 and done.stdout.splitlines()[-1] == "0 scans dehazed, 1 failed, 1 skipped"
    assert (
        f"{folder / 'copy.h5'}: is no scan (empty)" in done.stderr and "copy.h5" in (tmp_path / "log.csv").read_text()
    )
    done = run("info", folder)
    assert done.exit_code == 1 and "is no scan (empty)" in done.stderr


def forbid(monkeypatch, private):
    """Makes the system tell as little of a folder as it tells those who may not look into it."""
    real = os.stat

    def fake(path, *args, **options):
        if not isinstance(path, int) and os.path.realpath(os.fsdecode(path)).startswith(str(private)):
            raise PermissionError(errno.EACCES, "Permission denied", os.fsdecode(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, "stat", fake)


def test_what_somebody_else_keeps_private_stops_no_other_scan(tmp_path, model, monkeypatch):
    folder, private = tmp_path / "in", tmp_path / "private"
    for path in (folder / "a.h5", folder / "closed.h5", private / "b.h5"):
        path.parent.mkdir(exist_ok=True)
        write(path, {"x": fan_frames()})
    (folder / "link.h5").symlink_to(private / "b.h5")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "closed.h5" not in str(path) and access(path, mode))
    (folder / "closed.h5").chmod(0)
    forbid(monkeypatch, private)
    done = run("process", folder, "-o", tmp_path / "out")
    assert done.exit_code == 1 and (tmp_path / "out" / "a.dehazed.h5").exists()
    for name, why in (("link.h5", "(Permission denied)"), ("closed.h5", "(no permission)")):
        assert f"usdehaze: {folder / name}: cannot be read {why}" in done.stderr.splitlines()
    for command in (("process", private / "b.h5"), ("info", private / "b.h5"), ("validate", private / "b.h5")):
        failed(1, *command, names=[private / "b.h5", "cannot be read"])
    for more in (("-o", private / "x"), ("--log", private / "x.jsonl")):
        failed(1, "process", folder / "a.h5", *more, names=[private, "(Permission denied)"])


def test_an_unexpected_error_in_one_scan_is_one_line_too(tmp_path, model):
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, {"x": fan_frames()})
    model.during = lambda: len(model.cines) == 1 and [][1]
    done = failed(1, "process", tmp_path, names=["a.h5", "unexpected IndexError", "--debug"])
    assert "1 scans dehazed, 1 failed" in done.stdout
    assert (tmp_path / "b.dehazed.h5").exists() and not (tmp_path / "a.dehazed.h5").exists()


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_shows_the_traceback_wherever_it_stands(tmp_path, model, where):
    args = (
        ["--debug", "process", tmp_path / "no.h5"] if where == "before" else ["process", tmp_path / "no.h5", "--debug"]
    )
    done = run(*args)
    assert done.exit_code == 1 and "Traceback" in done.stderr and "InputError" in done.stderr


BAD_SCANS = {
    "missing": (None, "no such file"),
    "text": (b"no scan", "is no scan (unknown content)"),
    "no dataset": ({"note": 3.0}, "no numeric dataset that could be frames"),
    "several": ({"a": fan_frames(), "b": fan_frames()}, "2 datasets could be the frames: a (2, 64, 64) uint8, b"),
    "empty": ({"x": np.zeros((0, 32, 32))}, "is empty"),
    "constant": ({"x": np.full((1, 32, 32), 9, np.uint8)}, "is constant"),
    "NaN": ({"x": np.full((2, 32, 32), np.nan)}, "no finite value"),
    "shape": ({"x": np.zeros((2, 32, 32, 5), np.uint8)}, "x (2, 32, 32, 5) uint8"),
}


@pytest.mark.parametrize("case", BAD_SCANS)
@pytest.mark.parametrize("command", ["process", "info"])
def test_a_bad_scan_gives_one_line_and_leaves_nothing_behind(tmp_path, model, case, command):
    content, message = BAD_SCANS[case]
    scan = tmp_path / "scan.h5"
    if isinstance(content, bytes):
        scan.write_bytes(content)
    elif content is not None:
        write(scan, content)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    done = failed(1, command, scan, names=[scan, message])
    assert done.stdout == ""
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert model.loaded == 0  # nobody waits for priors that are not needed


def test_a_result_that_exists_is_kept_unless_it_may_be_overwritten(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    (tmp_path / "scan.dehazed.h5").write_bytes(b"precious")
    failed(1, "process", scan, names=["scan.dehazed.h5: exists already", "--overwrite"])
    assert (tmp_path / "scan.dehazed.h5").read_bytes() == b"precious" and model.cines == []
    assert run("process", scan, "--overwrite").exit_code == 0
    assert len(read_result(tmp_path / "scan.dehazed.h5").tissue) == 2


def test_an_output_that_cannot_be_written_is_found_out_before_the_work(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    (tmp_path / "file").write_text("")
    failed(1, "process", scan, "-o", tmp_path / "file" / "out", names=["scan.dehazed.h5: cannot be written"])
    assert model.cines == [] and files_in(tmp_path) == ["file", "scan.h5"]


@pytest.mark.parametrize(
    "option",
    [
        *(["--steps", "0"], ["--steps", "x"], ["--seed", "-1"], ["--strength", "1.5"], ["--strength", "nan"]),
        *(["--caution", "1.01"], ["--caution", "-1"]),
        *(["--samples", "0"], ["--batch-size", "0"], ["--frames", "5"], ["--frames", "3:3"]),
        *(["--device", "tpu"], ["--device", "cpu,cuda:1"]),
        *(["--frames", "0:9:2"], ["--preset", "slow"], ["--guidance", "magic"], ["--dynamic-range", "-3"]),
        *(["--preview", "bmp"], ["--config", "nowhere.yaml"], ["--nonsense"]),
        *(["--observation", "loud"], ["--sampler", "coin"], ["--lambda", "-1"], ["--kappa", "inf"]),
    ],
    ids=" ".join,
)
def test_options_out_of_range_are_wrong_usage(tmp_path, model, option):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    failed(
        2, "process", scan, *option, names=[option[0], "usdehaze process --help"] if len(option) > 1 else [option[0]]
    )
    assert files_in(tmp_path) == ["scan.h5"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--lambda", 1, "--kappa", 1], "the learned posterior takes no lambda and kappa"),
        (["--guidance", "dps", "--posterior", "posterior"], "guidance dps takes no posterior"),
        (["--guidance", "projection", "--observation", "log-power"], "projection needs the additive"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(tmp_path, model, options, told):
    failed(2, "process", tmp_path / "none.h5", *options, names=[told, "see usdehaze process --help"])
    assert model.loaded == 0


def test_two_scans_for_one_result_are_wrong_usage(tmp_path, model):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "scan.h5", {"x": fan_frames()})
    one, two = tmp_path / "a" / "scan.h5", tmp_path / "b" / "scan.h5"
    failed(2, "process", one, two, "-o", tmp_path / "out", names=[one, two, "would both write"])
    assert not (tmp_path / "out").exists()
    assert run("process", one, two, one, tmp_path / "a").exit_code == 0  # the same scan again is no conflict
    assert len(model.cines) == 2


def test_a_result_never_replaces_a_scan(tmp_path, model):
    one = write(tmp_path / "scan.h5", {"x": fan_frames()})
    two = write(tmp_path / "scan.dehazed.h5", {"x": fan_frames(seed=1)})
    before = two.read_bytes()
    failed(2, "process", one, two, "--overwrite", names=[two, "would replace an input"])
    assert two.read_bytes() == before


def test_priors_that_cannot_be_loaded_are_one_line_not_one_a_scan(tmp_path, model):
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, {"x": fan_frames()})
    failed(1, "process", tmp_path, "--device", "cuda:7", names=["usdehaze: device cuda:7 is not there"])
    assert model.loaded == 1 and files_in(tmp_path) == ["a.h5", "b.h5"]


def test_config_gives_defaults_and_the_command_line_wins(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"a": fan_frames(40), "b": fan_frames(40)})
    config = tmp_path / "c.yaml"
    config.write_text(
        "preset: paper\nframes: 0:30\nsteps: 5\nbatch-size: 2\ndataset: b\noverwrite: true\nstrength: 0.5\n"
    )
    assert run("process", scan, "--config", config, "--steps", 9).exit_code == 0
    assert (model.settings["preset"], model.settings["steps"], model.settings["batch_size"]) == ("paper", 9, 2)
    assert model.settings["strength"] == 0.5
    assert model.cines[0].source.dataset == "b" and len(model.cines[0].frames) == 30
    assert run("process", scan, "--config", config).exit_code == 0  # overwrite: true


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stepz: 5", "no option 'stepz'; expected"),
        ("config: other.yaml", "no option 'config'"),
        ("steps: 0", "'--steps': 0 is not in the range"),
        ("steps: [1, 2]", "steps must have a single value"),
        ("steps:", "steps must have a single value"),
        ("steps: 5\nseed: 1\nsteps: 6", "steps is given twice"),
        ("- steps", "expected lines such as 'preset: fast'"),
        ("a: b: c", "not YAML"),
        ("steps: !!python/object/apply:os.getcwd []", "steps must have a single value"),
    ],
)
def test_a_config_with_anything_else_is_wrong_usage(tmp_path, model, content, message):
    config = tmp_path / "c.yaml"
    config.write_text(content)
    failed(2, "process", write(tmp_path / "scan.h5", {"x": fan_frames()}), "--config", config, names=[message])


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_previews_lie_next_to_the_result(tmp_path, model, kind):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    done = run("process", scan, "-o", tmp_path / "out", "--preview", kind)
    assert done.exit_code == 0 and f"scan.dehazed.{kind}" in done.stdout
    assert files_in(tmp_path / "out") == sorted(["scan.dehazed.h5", f"scan.dehazed.{kind}"])


def test_an_mp4_of_uneven_times_is_told(tmp_path, model):
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'video'")
    scan = write(tmp_path / "scan.h5", {"x": fan_frames(5), "frame_times_s": np.array([0, 0.04, 0.5, 0.54, 0.58])})
    done = run("process", scan, "--preview", "mp4")
    told = "scan.dehazed.mp4: shows each frame for 40 ms, though their times are uneven; --preview gif keeps the times"
    assert done.exit_code == 0 and told in done.stderr
    assert "times are uneven" not in run("process", scan, "--overwrite", "--preview", "gif").stderr


def test_the_review_page_lies_next_to_the_result_and_is_named_before_the_work(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"cine": fan_frames()})
    done = run("process", scan, "-o", tmp_path / "out", "--review")
    page = tmp_path / "out" / "scan.review.html"
    assert done.exit_code == 0 and f"scan.dehazed.h5, {page} (2 frames" in done.output
    assert page.read_text().count('<script type="text/plain" id="frame-') == 2
    (tmp_path / "out" / "scan.dehazed.h5").unlink()
    n_dehazed = len(model.cines)
    failed(1, "process", scan, "-o", tmp_path / "out", "--review", names=["scan.review.html: exists already"])
    assert len(model.cines) == n_dehazed


def test_regions_go_onto_the_review_page_and_bad_ones_are_found_out_before_the_work(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"cine": fan_frames()})
    height, width = fan_frames().shape[1:]
    square = [[width // 2 - 9, height // 4], [width // 2 + 9, height // 4], [width // 2, height // 4 + 20]]
    regions = {"regions": [{"name": "septum", "role": "tissue", "polygon": square}]}
    regions["regions"].append({"name": "pool", "role": "haze", "polygon": [[x, y + 24] for x, y in square]})
    (tmp_path / "rois").mkdir()
    roi = tmp_path / "rois" / "scan.rois.json"
    roi.write_text(json.dumps(regions))
    for k, given in enumerate((roi, roi.parent)):  # a file, and a folder with one for each scan
        done = run("process", scan, "-o", tmp_path / str(k), "--review", "--roi", given)
        assert done.exit_code == 0, done.output
        text = (tmp_path / str(k) / "scan.review.html").read_text()
        page = json.loads(re.search(r'id="page-json">(.*?)</script>', text)[1])
        assert [region["name"] for region in page["polygons"]] == ["septum", "pool"]
    for patient in ("p1", "p2"):
        (tmp_path / "in" / patient).mkdir(parents=True)
        write(tmp_path / "in" / patient / "scan.h5", {"cine": fan_frames()})
    done = run("process", tmp_path / "in", "-o", tmp_path / "3", "--review", "--roi", roi.parent)
    assert done.exit_code == 1 and "p2/scan.h5: its regions, " in done.stderr
    assert "are those of another scan of this name" in done.stderr
    assert [page.parent.name for page in (tmp_path / "3").rglob("*.review.html")] == ["p1"]
    done = run("process", tmp_path / "in", "-o", tmp_path / "3", "--review", "--roi", roi.parent, "--skip-existing")
    assert done.exit_code == 1 and "p2/scan.h5: its regions, " in done.stderr and "there already" in done.stdout
    n_dehazed = len(model.cines)
    roi.write_text(json.dumps(regions).replace("tissue", "wall"))
    failed(1, "process", scan, "-o", tmp_path / "2", "--review", "--roi", roi, names=[f"{roi}: "])
    assert len(model.cines) == n_dehazed and not list(tmp_path.glob("2/*"))
    done = run("process", scan, "--roi", roi)
    assert done.exit_code == 2 and "--roi belongs to --review" in done.stderr


def test_a_preview_that_cannot_be_made_is_found_out_before_the_work(tmp_path, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    failed(1, "process", scan, "--preview", "mp4", names=['pip install "usdehaze[video]"'])
    assert model.cines == [] and files_in(tmp_path) == ["scan.h5"]


def test_ctrl_c_stops_everything_and_leaves_nothing_half_written(tmp_path, model):
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, {"x": fan_frames()})

    def interrupt():
        raise KeyboardInterrupt

    model.during = interrupt
    done = run("process", tmp_path)
    assert done.exit_code == 130 and done.stderr.strip() == "usdehaze: stopped"
    assert len(model.cines) == 1 and files_in(tmp_path) == ["a.h5", "b.h5"]


def test_being_told_to_end_while_writing_leaves_nothing_half_written(tmp_path, model, monkeypatch):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    plain = h5py.Group.create_dataset

    def end(self, name, *args, **kwargs):
        if name == "haze":
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, name, *args, **kwargs)

    monkeypatch.setattr(h5py.Group, "create_dataset", end)
    before = signal.getsignal(signal.SIGTERM)
    assert run("process", scan).exit_code == 128 + signal.SIGTERM
    assert files_in(tmp_path) == ["scan.h5"] and signal.getsignal(signal.SIGTERM) is before


def test_being_told_to_end_while_torch_is_imported_is_one_line_and_no_dump():
    code = """
import signal, sys
from usdehaze.stopping import stoppable

class Ender:
    def find_spec(self, name, *_):
        if name == "torch.distributed":
            signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Ender())
with stoppable():
    import torch
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "usdehaze: stopped\n")


def test_notes_that_nobody_can_be_told_stop_nothing(tmp_path, model, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, {"x": fan_frames()})
    monkeypatch.setattr(sys, "stderr", Full())
    with pytest.raises(SystemExit) as ended:
        main(["process", str(tmp_path)])
    assert ended.value.code == 0 and files_in(tmp_path) == ["a.dehazed.h5", "a.h5", "b.dehazed.h5", "b.h5"]


def test_names_from_a_file_cannot_command_the_terminal(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"a\x1b[2Jb": fan_frames(), "c": fan_frames()})
    done = failed(1, "process", scan, names=["a?[2Jb"])
    assert "\x1b" not in done.output


def test_axes_and_units_say_what_a_file_does_not(tmp_path, model):
    frames = np.random.default_rng(0).uniform(0.1, 1, (5, 40, 30)).astype(np.float32)
    scan = write(tmp_path / "scan.h5", {"x": frames.transpose(1, 2, 0)})
    assert run("process", scan, "--axes", "HWT", "--units", "GREY").exit_code == 0
    cine = model.cines[0]
    assert cine.source.units == "grey" and np.abs(cine.frames - (frames - 1) * 60).max() < 1e-3
    done = run("info", scan, "--axes", "HWT", "--units", "envelope")
    assert "40 x 30 (rows x columns)" in done.stdout and "units:         envelope" in done.stdout
    failed(2, "process", scan, "--units", "volts", names=["--units"])


def test_a_file_for_zea_lies_beside_the_result_and_is_no_scan(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    done = run("process", scan, "--format", "zea")
    assert done.exit_code == 0 and "scan.dehazed.zea.hdf5" in done.stdout
    assert files_in(tmp_path) == ["scan.dehazed.h5", "scan.dehazed.zea.hdf5", "scan.h5"]
    with h5py.File(tmp_path / "scan.dehazed.zea.hdf5") as file:
        haze = file["tracks/track_0/data/haze/values"][()]
    assert np.array_equal(haze, read_result(tmp_path / "scan.dehazed.h5").haze)
    assert run("process", tmp_path, "--overwrite").stdout.splitlines()[-1].startswith("1 scans dehazed")


def test_a_long_cine_is_dehazed_a_few_frames_at_a_time(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames(150)})
    assert run("process", scan, "--frames", "5:145").exit_code == 0
    assert [(c.source.first_frame, len(c.frames)) for c in model.cines] == [(5, 128), (133, 12)]
    result = read_result(tmp_path / "scan.dehazed.h5")
    assert result.cine.source.first_frame == 5 and len(result.tissue) == 140
    assert np.array_equal(result.input, np.concatenate([c.frames for c in model.cines]))


def test_files_of_another_run_beside_the_result_are_told(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})

    def told(*options):
        done = run("process", scan, *options)
        assert done.exit_code == 0
        return [line for line in done.stderr.splitlines() if not any(note in line for note in NOTES)]

    assert told("--preview", "gif") == []
    assert told("--overwrite") == []  # the same run once more
    (line,) = told("--overwrite", "--seed", "1")
    assert "scan.dehazed.h5: of another run are scan.dehazed.gif; make them again" in line
    assert told("--overwrite", "--seed", "1", "--preview", "gif") == []


def test_a_source_that_changes_while_it_is_dehazed_gives_no_result(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    other = write(tmp_path / "other.h5", {"x": fan_frames(3, seed=1)})
    model.during = lambda: other.exists() and other.replace(scan)
    failed(1, "process", scan, "--preview", "gif", names=["scan.h5: ", "while it was read"])
    assert files_in(tmp_path) == ["scan.h5"]


def test_a_page_that_cannot_be_made_does_not_cost_the_result(tmp_path, model, monkeypatch):
    monkeypatch.setattr("usdehaze.review.page.MAX_PAGE_BYTES", 10)
    scan = write(tmp_path / "scan.h5", {"x": fan_frames()})
    failed(1, "process", scan, "--review", names=["a page of 2 frames would be larger than"])
    assert files_in(tmp_path) == ["scan.dehazed.h5", "scan.h5"]


def test_max_memory_says_how_large_frames_may_be(tmp_path, model):
    scan = write(tmp_path / "scan.h5", {"x": fan_frames(1, 1500, 1500)})
    failed(1, "info", scan, "--max-memory", "0.125", names=["frames of 1500 x 1500", "at most 2097152", "--max-memory"])
    assert run("info", scan).exit_code == 0
