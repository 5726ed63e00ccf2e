"""``usdehaze archive``: the bytes of ``process``, a manifest that is exact, and nothing lost or done twice."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from _dicom import write_dicom
from _scans import fan_frames, write
from _tiny_priors import write_tiny_posterior
from click.testing import CliRunner
from PIL import Image

from usdehaze.cli import main

ABSENT = 'usdehaze[archive] is not installed: pip install "usdehaze[archive]"'
fsspec = pytest.importorskip("fsspec", reason=ABSENT)
pytest.importorskip("pyarrow.parquet", reason=ABSENT)

from usdehaze.archive.actor import Task, Worker, row_of  # noqa: E402
from usdehaze.archive.manifest import Manifest, Row, identity, left_of  # noqa: E402
from usdehaze.archive.pool import Pool  # noqa: E402
from usdehaze.archive.scratch import PREFIX, Scratch, sweep  # noqa: E402
from usdehaze.archive.sources import Source, list_sources, look  # noqa: E402
from usdehaze.archive.store import Store  # noqa: E402
from usdehaze.cli.archive import Making  # noqa: E402
from usdehaze.errors import InputError, UsdehazeError  # noqa: E402
from usdehaze.io import read_result  # noqa: E402
from usdehaze.io.detect import sha256_of  # noqa: E402
from usdehaze.io.reading import Reading  # noqa: E402

MODEL = {
    "preset": "fast", "guidance": None, "observation": None, "sampler": None, "tissue_prior": None, "haze_prior": None,
    "device": "cpu", "engine": "auto", "precision": "fp32", "steps": None, "seed": 0, "strength": 1.0, "samples": 1,
    "caution": None, "batch_size": "auto", "scale": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    path = tmp_path_factory.mktemp("networks") / "tiny.safetensors"
    write_tiny_posterior(path)
    return str(path)


@pytest.fixture
def scans(tmp_path):
    """Two cines of one stem, a DICOM file, a folder of images, and a file that is broken."""
    folder = tmp_path / "in"
    (folder / "p1").mkdir(parents=True)
    write(folder / "a.h5", {"cine": fan_frames(2, seed=1)})
    write(folder / "a.hdf5", {"cine": fan_frames(1, seed=2)})
    write_dicom(folder / "p1" / "1.2.840.7", fan_frames(2, seed=3), PatientName="Doe^Jane", PatientID="PID-77")
    (folder / "p2").mkdir()
    for number, frame in enumerate(fan_frames(2, seed=4)):
        Image.fromarray(frame).save(folder / "p2" / f"{number}.png")
    (folder / "p1" / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n broken")
    return folder


GOOD = ["a.h5.dehazed.h5", "a.hdf5.dehazed.h5", "p1/1.2.840.7.dehazed.dcm", "p1/1.2.840.7.dehazed.h5", "p2.dehazed.h5"]


def making(posterior, **changes):
    values = {"model": {**MODEL, "posterior": posterior}, "reading": Reading(), "overwrite": False, "preview": None}
    values |= dict.fromkeys(("zea", "save_haze", "review", "with_screen", "mark"), False)
    return Making(**{**values, "transfer_syntax": "explicit", "max_memory": 2**29, **changes})


def worker(posterior, out, attempts=2, scratch=None, **changes):
    make = making(posterior, **changes)
    settings = make.settings()
    version = settings["usdehaze_version"]
    identified = identity(settings)
    return Worker(
        Task(
            make=make, out=str(out), scratch=scratch, attempts=attempts, settings=identified,
            usdehaze_version=version, environment={},
        )
    )  # fmt: skip


def files_in(folder):
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: content for name, content in sorted(files.items()) if not name.startswith("manifest/")}


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def processed(folder, out, posterior):
    done = run("process", folder, "-o", out, "--posterior", posterior, "--samples", 1, "--device", "cpu")
    assert done.exit_code == 1 and "4 scans dehazed, 1 failed" in done.stdout, done.output
    return files_in(out)


def test_files_are_those_of_process_wherever_scans_and_results_lie(tmp_path, scans, posterior):
    wanted = processed(scans, tmp_path / "wanted", posterior)
    assert sorted(wanted) == GOOD
    for kind, source, out in (
        ("in place", str(scans), tmp_path / "there"),
        ("fetched and put back", scans.as_uri(), (tmp_path / "back").as_uri()),
        ("put back alone", str(scans), (tmp_path / "put").as_uri()),
    ):
        scratch = tmp_path / "scratch"
        working = worker(posterior, out, scratch=str(scratch))
        rows = {row.source.rpartition("/in/")[2]: row for row in map(working.work, list_sources([source]))}
        made = Path(str(out).removeprefix("file://"))
        assert files_in(made) == wanted, kind
        outcomes = {name: row.outcome for name, row in rows.items()}
        assert outcomes.pop("p1/bad.h5") == "quarantined" and set(outcomes.values()) == {"dehazed"}, kind
        named = {name: digest for row in rows.values() for name, digest in row.results.items()}
        assert named == {name: sha256_of(made / name) for name in GOOD}
        bad = rows["p1/bad.h5"]
        assert bad.error.startswith(f"{source}/p1/bad.h5: cannot be read as HDF5") and bad.attempts == 2
        assert rows["a.h5"].sha256 == sha256_of(scans / "a.h5") and rows["a.h5"].frames == 2
        assert "Dynamic range assumed to be 60 dB. Decide with --dynamic-range." in rows["a.h5"].notes
        assert not any("Doe" in str(row) or "PID-77" in str(row) for row in rows.values())
        del working
        left = [p for p in scratch.rglob("*") if p.name != "lock"] if scratch.is_dir() else []
        assert left == [p for p in left if p.name.startswith(PREFIX)]  # of scans nothing


def test_results_of_a_run_that_was_ended_are_kept_and_those_of_other_settings_are_not_replaced(tmp_path, posterior):
    write(tmp_path / "a.h5", {"cine": fan_frames(2)})
    (source,) = list_sources([str(tmp_path / "a.h5")])
    for out in (tmp_path / "out", tmp_path / "far"):
        at = out.as_uri() if out.name == "far" else out
        assert worker(posterior, at).work(source).outcome == "dehazed"
        before = (out / "a.dehazed.h5").stat().st_mtime_ns
        again = worker(posterior, at).work(source)
        assert again.outcome == "kept" and (again.frames, len(again.results)) == (2, 1)
        assert (out / "a.dehazed.h5").stat().st_mtime_ns == before
        other = worker(posterior, at, attempts=1, model={**MODEL, "posterior": posterior, "seed": 1})
        assert other.task.settings != worker(posterior, at).task.settings
        refused = other.work(source)
        assert refused.outcome == "failed" and "a.dehazed.h5: exists already; replace it" in refused.error
        assert refused.error.startswith(str(at)) and (out / "a.dehazed.h5").stat().st_mtime_ns == before
        model = {**MODEL, "posterior": posterior, "seed": 1}
        assert worker(posterior, at, overwrite=True, model=model).work(source).outcome == "dehazed"
        assert read_result(out / "a.dehazed.h5").settings["seed"] == 1


def test_a_result_in_the_way_of_a_scan_without_suffix_is_no_fault_of_the_scan(tmp_path, posterior):
    write_dicom(tmp_path / "IM1", fan_frames(1))
    (tmp_path / "p2").mkdir()
    Image.fromarray(fan_frames(1)[0]).save(tmp_path / "p2" / "1.png")
    for name in ("IM1", "p2"):
        (tmp_path / f"{name}.dehazed.h5").write_text("of somebody else")
    rows = [worker(posterior, tmp_path, attempts=1).work(source) for source in list_sources([str(tmp_path)])]
    assert [row.outcome for row in rows] == ["failed", "failed"]
    assert all("dehazed.h5: exists already" in row.error for row in rows)


class Broken:
    """A dehazer that always fails."""

    def __init__(self, error):
        self.error = error

    def dehaze(self, cine, progress=None):
        raise self.error


def test_what_is_no_fault_of_the_scan_is_no_reason_for_quarantine(tmp_path, posterior):
    write(tmp_path / "a.h5", {"cine": fan_frames(1)})
    (source,) = list_sources([str(tmp_path / "a.h5")])
    (tmp_path / "file").write_text("no folder")
    row = worker(posterior, tmp_path / "file", attempts=1).work(source)
    assert row.outcome == "failed" and "is not a folder" in row.error
    working = worker(posterior, tmp_path / "out", attempts=1)
    working._prepare()
    for error, outcome in ((RuntimeError("CUDA"), "failed"), (UsdehazeError("broke down"), "quarantined")):
        working._process.worker.dehazer = Broken(error)
        assert working.work(source).outcome == outcome
    (tmp_path / "a.h5").unlink()
    row = worker(posterior, tmp_path / "out", attempts=1).work(source)
    assert row.outcome == "failed" and row.error == f"{tmp_path / 'a.h5'}: cannot be read (No such file or directory)"
    away = replace(source, uri=f"file://{tmp_path}/a.h5")
    row = worker(posterior, tmp_path / "out", attempts=1).work(away)
    assert row.outcome == "failed" and row.error.startswith(f"file://{tmp_path}/a.h5: cannot be fetched")


def test_workers_that_can_dehaze_nothing_say_so_for_all_scans(tmp_path, posterior):
    write(tmp_path / "a.h5", {"cine": fan_frames(1)})
    (source,) = list_sources([str(tmp_path / "a.h5")])
    item = {"index": 7, "source": source.to_json()}
    working = worker(posterior, tmp_path / "out")
    working.task = replace(working.task, usdehaze_version="0.0.1")
    assert working(item)["fatal"].endswith("expected 0.0.1 on every machine") and working(item)["row"] == ""
    working = worker(posterior, tmp_path / "out", model={**MODEL, "posterior": posterior})
    working.task = replace(working.task, make=making(str(tmp_path / "gone.safetensors")))
    assert "no such posterior" in working(item)["fatal"]
    done = worker(posterior, tmp_path / "out")(item)
    assert done["index"] == 7 and row_of(done["row"]).outcome == "dehazed" and done["fatal"] == ""


def test_scans_under_a_uri_are_told_by_their_names():
    files = fsspec.filesystem("memory")
    names = ["a.h5", "a.dcm", "a.dehazed.h5", "IM1", "1.2.840.1", "notes.txt", ".hidden.h5", "DICOMDIR", "x/y.json"]
    names += ["pictures/1.png", "pictures/2.png", "mixed/3.png", "mixed/c.nii.gz"]
    for name in names:
        files.pipe(f"/listed/{name}", b"12345")
    found = {s.uri.removeprefix("memory://listed/"): s for s in list_sources(["memory://listed"])}
    assert sorted(found) == ["1.2.840.1", "IM1", "a.dcm", "a.h5", "mixed/c.nii.gz", "pictures"]
    assert (found["a.h5"].stem, found["a.dcm"].stem, found["1.2.840.1"].stem) == ("a.h5", "a.dcm", "1.2.840.1")
    assert (found["mixed/c.nii.gz"].folder, found["mixed/c.nii.gz"].stem) == ("mixed", "c")
    pictures = found["pictures"]
    assert (pictures.folder, pictures.stem, pictures.images, pictures.size) == ("", "pictures", ("1.png", "2.png"), 10)
    assert Source.from_json(pictures.to_json()) == pictures
    (one,) = list_sources(["memory://listed/a.h5"])
    assert (one.uri, one.size, one.folder, one.stem) == ("memory://listed/a.h5", 5, "", "a")
    assert one.stamp == found["a.h5"].stamp != ""
    with pytest.raises(InputError, match="no such file or folder"):
        list_sources(["memory://nowhere"])
    with pytest.raises(UsdehazeError, match="password"):
        list_sources(["sftp://me:secret@host/scans"])


def test_beside_images_under_a_uri_a_file_without_suffix_is_dicom_or_left_out():
    files = fsspec.filesystem("memory")
    contents = {"frames/1.png": b"1", "frames/2.png": b"2", "frames/README": b"what this is", "study/IM1": b"\0" * 128}
    contents["study/IM1"] += b"DICM"
    for name, content in {**contents, "study/snapshot.jpg": b"3", "study/VERSION": b""}.items():
        files.pipe(f"/beside/{name}", content)
    found = {s.uri.removeprefix("memory://beside/"): s for s in list_sources(["memory://beside"])}
    assert sorted(found) == ["frames", "study/IM1"]
    assert found["frames"].images == ("1.png", "2.png") and found["frames"].size == 2


def test_a_manifest_beside_the_scans_is_no_scan():
    files = fsspec.filesystem("memory")
    for name in ("a.h5", "manifest/part-20260101T000000Z-abcdef-00000.parquet"):
        files.pipe(f"/together/{name}", b"1")
    assert [source.uri for source in list_sources(["memory://together"])] == ["memory://together/a.h5"]


def test_an_image_that_is_exchanged_for_an_older_one_makes_another_scan(tmp_path, monkeypatch):
    for name, at in (("1.png", 100), ("2.png", 200)):
        Image.new("L", (8, 8)).save(tmp_path / name)
        os.utime(tmp_path / name, (at, at))
    before = look(tmp_path)
    os.utime(tmp_path / "1.png", (50, 50))
    assert look(tmp_path)[0] == before[0] and look(tmp_path)[1] != before[1]

    def listed(*tags):
        entries = {f"/tags/{i}.png": {"size": 3, "ETag": tag} for i, tag in enumerate(tags)}
        monkeypatch.setattr(fsspec.filesystem("memory"), "find", lambda path, detail: entries)
        return list_sources(["memory://tags"])[0].stamp

    assert listed("b", "f") == listed("b", "f") != listed("a", "f")


@pytest.mark.parametrize("end", ["/", ""])  # some clients leave it out
def test_empty_objects_that_stand_for_folders_are_no_scans(end, monkeypatch):
    sizes = {f"/marked{end}": 0, f"/marked/p1{end}": 0, f"/marked/p1/deep{end}": 0, "/marked/p1/deep/a.h5": 5}
    sizes |= {f"/marked/p2{end}": 0, "/marked/p2/1.png": 5, f"/marked/p2/more{end}": 0, "/marked/p2/more/IM1": 5}
    entries = {name: {"name": name, "size": size, "type": "file"} for name, size in sizes.items()}
    monkeypatch.setattr(fsspec.filesystem("memory"), "find", lambda path, detail: entries)
    found = [source.uri.removeprefix("memory://marked/") for source in list_sources(["memory://marked"])]
    assert sorted(found) == ["p1/deep/a.h5", "p2", "p2/more/IM1"]


def test_two_scans_never_write_one_file(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.h5", {"cine": fan_frames(1)})
    with pytest.raises(UsdehazeError, match="would write one file"):
        list_sources([str(tmp_path / "x"), str(tmp_path / "y")])
    assert len(list_sources([str(tmp_path), str(tmp_path / "x" / "a.h5")])) == 2


def test_a_store_shows_files_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "here").write_bytes(b"1234")
    store = Store((tmp_path / "out").as_uri())
    store.put(tmp_path / "here", "long/" + 250 * "n")
    store.put(tmp_path / "here", "a/b")
    assert store.exists("a/b") and not store.exists("a/c") and store.names("a") == ["b"] and store.names("z") == []

    def full(source, target):
        Path(target).write_bytes(b"12")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.files, "put_file", full)
    with pytest.raises(InputError, match=r"a/b: cannot be written \(OSError \(No space left on device\)\)"):
        store.put(tmp_path / "here", "a/b")
    assert [p.name for p in (tmp_path / "out" / "a").iterdir()] == ["b"]
    assert (tmp_path / "out" / "a" / "b").read_bytes() == b"1234"
    bucket = Store("gs://bucket/scans")  # fsspec's client, or pyarrow's own where there is none
    assert not bucket.moves and bucket.path == "bucket/scans" and bucket.name_of("x/y") == "gs://bucket/scans/x/y"


def row(source, outcome, settings="s", **more):
    return Row(source=source, size=1, stamp="t", settings=settings, outcome=outcome, **more)


def test_the_manifest_knows_what_is_finished_and_sums_up(tmp_path):
    manifest, settings = Manifest(Store(str(tmp_path))), {"seed": 0}
    own = identity(settings)
    first = [row("a", "dehazed", own, frames=3, seconds=1.5, results={"a.h5": "0f"}, notes=("one", "two"))]
    first += [row("b", "quarantined", own, error="b: is broken"), row("c", "failed", own, error="c: no disk")]
    manifest.append(first, settings)
    assert list(manifest.rows()) == [
        replace(r, finished=r.finished.replace(microsecond=r.finished.microsecond // 1000 * 1000)) for r in first
    ]
    later = Manifest(Store(str(tmp_path)))
    sources = [Source(name, 1, "t", "", name) for name in "abcd"]
    assert [s.uri for s in left_of(sources, later.finished(own))] == ["c", "d"]
    assert [s.uri for s in left_of(sources, later.finished(own, retry_quarantined=True))] == ["b", "c", "d"]
    assert [s.uri for s in left_of(sources, later.finished("other"))] == ["a", "b", "c", "d"]
    assert [s.uri for s in left_of([replace(sources[0], stamp="u")], later.finished(own))] == ["a"]
    time.sleep(0.002)
    later.append([row("c", "dehazed", own, frames=2, seconds=0.5, results={"c.h5": "1f"})], settings)
    summary = later.summary()
    assert summary.scans == {"dehazed": 2, "kept": 0, "quarantined": 1, "failed": 0}
    assert (summary.frames, summary.seconds, summary.parts) == (5, 2.0, 2)
    assert summary.troubles == [("b", "quarantined", "b: is broken")]
    assert summary.settings == {own: '{"seed": 0}'}
    done = run("archive", "--status", tmp_path)
    assert done.exit_code == 1 and "3 scans: 2 dehazed, 0 kept, 1 quarantined, 0 failed; 5 frames" in done.stdout
    assert "quarantined: b: is broken" in done.stdout and own in done.stdout
    next(tmp_path.glob("manifest/*.parquet")).write_bytes(b"PAR1 broken")
    done = run("archive", "--status", tmp_path)
    assert done.exit_code == 1 and "cannot be read as a part of a manifest" in done.stderr


def test_a_scan_whose_result_a_run_of_other_settings_replaced_is_left_to_do(tmp_path):
    sources, manifest = [Source(name, 1, "t", "", name) for name in "ab"], Manifest(Store(str(tmp_path)))

    def left(seed):
        return [s.uri for s in left_of(sources, Manifest(Store(str(tmp_path))).finished(identity({"seed": seed})))]

    def dehazed(name, seed):
        time.sleep(0.002)
        manifest.append([row(name, "dehazed", identity({"seed": seed}), results={f"{name}.h5": "0f"})], {"seed": seed})

    dehazed("a", 0)
    dehazed("b", 0)
    dehazed("a", 1)
    assert (left(0), left(1)) == (["a"], ["b"])
    dehazed("a", 0)
    assert (left(0), left(1)) == ([], ["a", "b"])


def test_a_folder_for_what_is_fetched_does_not_outlive_its_process(tmp_path):
    script = "from usdehaze.archive.scratch import Scratch; kept = Scratch(sys.argv[1]); print('made', flush=True)"
    command = [sys.executable, "-c", f"import sys, time; {script}; time.sleep(600)", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "made\n"
        (folder,) = tmp_path.glob(PREFIX + "*")
        (folder / "fetched").write_bytes(b"frames")
        mine = Scratch(str(tmp_path))
        assert folder.is_dir() and mine.folder.is_dir()
        other.kill()
        other.wait()
    sweep(tmp_path)
    assert not folder.exists() and mine.folder.is_dir()
    with pytest.raises(InputError, match="GB free; expected"), mine.one(2**62):
        pass


def test_workers_are_as_many_as_there_is_room_for():
    assert (Pool().fitted(8, 0).workers, Pool().fitted(8, 0).gpus) == (8, 0.0)
    assert (Pool().fitted(8, 2).workers, Pool(gpus=0.5).fitted(8, 2).workers) == (2, 4)
    assert Pool(cpus=4, gpus=0).fitted(10, 2).workers == 2
    with pytest.raises(UsdehazeError, match="no room for 3 workers of 1 cores and 0 GPUs each"):
        Pool(workers=3).fitted(2, 0)


def test_what_is_no_scan_in_a_folder_is_told(tmp_path, posterior, monkeypatch):
    from collections import Counter

    asked = []
    monkeypatch.setattr("usdehaze.archive.run.run_archive", lambda listed, *_, **__: asked.extend(listed) or Counter())
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.h5", {"cine": fan_frames(1)})
    (tmp_path / "in" / "b.h5").write_bytes(b"")
    (tmp_path / "in" / "c.nrrd").write_bytes(b"NRRD0004\n")
    monkeypatch.chdir(tmp_path)
    done = run("archive", "in", "-o", "out", "--posterior", posterior)
    assert done.exit_code == 1 and [source.uri for source in asked] == [str(tmp_path / "in" / "a.h5")]
    assert f"{tmp_path / 'in' / 'b.h5'}: is no scan (empty)" in done.stderr
    assert f"{tmp_path / 'in' / 'c.nrrd'}: NRRD, which is not read; left out" in done.stderr


def test_wrong_usage_is_refused_before_anything_starts(tmp_path):
    for args, part in (
        (["archive", "x"], "--out DEST"),
        (["archive", "--status", "x", "y"], "stands alone"),
        (["archive", "x", "-o", tmp_path / "o", "--device", "cuda:1"], "use --device cuda"),
    ):
        done = run(*args)
        assert done.exit_code == 2 and part in done.stderr
    (tmp_path / "file").touch()
    done = run("archive", tmp_path / "gone", "-o", tmp_path / "file" / "o")
    assert done.exit_code == 1 and f"cannot be written ({tmp_path / 'file'} is not a folder)" in done.stderr
    done = run("archive", tmp_path / "gone", "-o", tmp_path / "o", "--posterior", tmp_path / "p.safetensors")
    assert done.exit_code == 1 and "no such posterior" in done.stderr and not (tmp_path / "o").exists()


class Deadly:
    """Dehazes, save that scans named "deadly" end the process; leaves a file named by the process ID."""

    def __init__(self, making, folder):
        self.making, self.folder = making, folder

    def __call__(self):
        (self.folder / str(os.getpid())).touch()
        process = self.making()

        def dehaze(scan, folder, stem):
            if stem == "deadly":
                os._exit(1)
            time.sleep(0.2)
            return process(scan, folder, stem)

        return dehaze


@pytest.fixture(scope="module")
def ray_address():
    """Where Ray is: a local one, or what USDEHAZE_RAY says."""
    if find_spec("ray") is None:  # not imported here: it reads its variables when it is
        pytest.skip(reason=ABSENT)
    return os.environ.get("USDEHAZE_RAY", "local")


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(
    tmp_path, posterior, ray_address, monkeypatch, capfd
):
    here = str(Path(__file__).parent)  # workers of Ray import this module
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    from usdehaze.archive.run import run_archive

    (tmp_path / "in").mkdir()
    (tmp_path / "pids").mkdir()
    for number in range(6):
        write(tmp_path / "in" / f"{number}.h5", {"cine": fan_frames(1, seed=number)})
    write(tmp_path / "in" / "deadly.h5", {"cine": fan_frames(1)})
    out, sources = tmp_path / "out", list_sources([str(tmp_path / "in")])
    task = worker(posterior, out).task
    task = replace(task, make=Deadly(task.make, tmp_path / "pids"))
    killed, seen = [], []

    def told(row, done, in_all):
        seen.append((Path(row.source).stem, done, in_all))
        if done == 2:
            last = max((tmp_path / "pids").iterdir(), key=lambda p: p.stat().st_mtime_ns)
            os.kill(int(last.name), signal.SIGKILL)
            killed.append(last.name)

    def again():
        manifest = Manifest(Store(str(out)))
        return run_archive(sources, manifest, task, Pool(ray_address, 1), {"seed": 0}, told=told)

    outcomes = again()
    assert len(killed) == 1 and len(list((tmp_path / "pids").iterdir())) > 1
    assert outcomes["quarantined"] == 1 and outcomes["dehazed"] + outcomes["kept"] == 6
    assert sorted(name for name, _, _ in seen) == [*map(str, range(6)), "deadly"]
    assert [done for _, done, _ in seen] == list(range(1, 8)) and {in_all for *_, in_all in seen} == {7}
    rows = {Path(row.source).stem: row for row in Manifest(Store(str(out))).rows()}
    assert sorted(rows) == sorted(name for name, _, _ in seen)
    assert sum(1 for _ in Manifest(Store(str(out))).rows()) == 7
    assert rows["deadly"].error.endswith("deadly.h5: ended the process that worked on it, 2 times")
    assert files_in(out).keys() == {f"{number}.dehazed.h5" for number in range(6)}
    for name, done in rows.items():
        assert name == "deadly" or done.results == {f"{name}.dehazed.h5": sha256_of(out / f"{name}.dehazed.h5")}
    assert again().total() == 0
    told_by_ray = capfd.readouterr()
    assert told_by_ray.out == "" and told_by_ray.err == ""


@pytest.mark.slow
def test_a_run_that_is_killed_is_gone_on_with(tmp_path, posterior, ray_address):
    (tmp_path / "in").mkdir()
    for number in range(30):
        write(tmp_path / "in" / f"{number:02}.h5", {"cine": fan_frames(2, 128, 128, seed=number)})
    out = tmp_path / "out"
    command = [sys.executable, "-m", "usdehaze", "archive", tmp_path / "in", "-o", out, "--address", ray_address]
    command = [*map(str, command), "--posterior", posterior, "--samples", "1", "--device", "cpu", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        while len(list(out.glob("*.h5"))) < 3 and first.poll() is None:
            time.sleep(0.01)
        first.kill()
        assert "30 scans" not in first.communicate()[0]
    before, now = {}, {"": 0}
    while before != now:  # its workers end with it
        before, now = now, {path.name: path.stat().st_mtime_ns for path in out.glob("*.h5")}
        time.sleep(1)
    assert 3 <= len(before) < 30 and not (out / "manifest").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    counts = f"30 scans: {30 - len(before)} dehazed, {len(before)} kept, 0 quarantined, 0 failed, 0 recorded before"
    assert counts in done.stdout
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    rows = list(Manifest(Store(str(out))).rows())
    assert len({row.source for row in rows}) == len(rows) == 30
    assert {row.outcome for row in rows if f"{Path(row.source).stem}.dehazed.h5" in before} == {"kept"}
    assert sorted(p.name for p in out.iterdir()) == [*(f"{n:02}.dehazed.h5" for n in range(30)), "manifest"]
