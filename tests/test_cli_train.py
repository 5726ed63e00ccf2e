"""``usdehaze train``: what it writes, what it refuses, and what it never tells."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.io.reading import Reading
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.training.samples import draw_samples
from usdehaze.training.scans import frames_of_scan, frames_of_scans

ROOT = Path(__file__).parents[1]
FEW = ("--grid", "16x16", "--steps", "4", "--batch", "2", "--device", "cpu", "--pool", "4", "--fresh", "2")


def run(*words):
    return CliRunner().invoke(main, ["train", *map(str, words)])


def scan(path, n_frames=6, low=-60.0, high=0.0, seed=0):
    """A polar scan in dB on a 16 x 16 grid, which needs no resampling."""
    frames = np.random.default_rng(seed).uniform(low, high, (n_frames, 16, 16))
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["frames"] = frames.astype(np.float32)
        file.attrs["dynamic_range_db"] = 60.0
    return path


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A prior of haze that was trained on simulated frames, and all that a run leaves beside it."""
    prior = tmp_path_factory.mktemp("simulated") / "p.safetensors"
    done = run("haze", "-o", prior, *FEW)
    assert done.exit_code == 0, done.output
    return prior


def test_frames_of_a_scan_are_the_scan_between_0_and_1(tmp_path):
    path = scan(tmp_path / "a.h5")
    with h5py.File(path) as file:
        expected = torch.from_numpy(file["frames"][:]) / 60 + 1
    frames = frames_of_scan(path, (16, 16))
    assert frames.shape == (6, 16, 16)
    torch.testing.assert_close(frames.float(), expected, rtol=0, atol=5e-4)  # half precision: 0.03 dB
    halved = frames_of_scan(path, (8, 8)).float()
    torch.testing.assert_close(halved, expected.reshape(6, 8, 2, 8, 2).mean((2, 4)), rtol=0, atol=1e-3)


def test_a_share_of_the_scans_is_held_out(tmp_path):
    paths = [scan(tmp_path / f"{i}.h5", low=-12.0 * i - 10, high=-12.0 * i - 1) for i in range(5)]
    source = frames_of_scans(paths, (16, 16), Reading(units="dB", levels=(-60.0, 0.0)))
    held, trained = ({int(5 * v) for v in frames.unique()} for frames in (source.held_out, source.sample))
    assert len(held) == 1 and trained == set(range(5)) - held  # every scan has its fifth of the range


def test_a_scan_named_twice_or_copied_is_not_held_out_and_trained_on(tmp_path):
    path = scan(tmp_path / "a.h5")
    (tmp_path / "link.h5").symlink_to(path)
    source = frames_of_scans([path, tmp_path / "link.h5", scan(tmp_path / "copy.h5")], (16, 16))
    assert source.description == "1 scan of the user's own: 5 frames, 1 more held out (last frames of the scan)"
    once = scan(tmp_path / "still.h5", n_frames=1)
    with pytest.raises(InputError, match="1 frame; expected at least 2"):
        frames_of_scans([once, once], (16, 16))


def test_own_scans_give_prior_card_and_sheet_and_no_name_of_theirs(tmp_path):
    for i in range(3):
        scan(tmp_path / "Doe^Jane" / f"MRN12345-{i}.h5", seed=i)
    prior = tmp_path / "out" / "own.safetensors"
    done = run("tissue", tmp_path / "Doe^Jane", "-o", prior, *FEW)
    assert done.exit_code == 0, done.output
    card = json.loads(prior.with_suffix(".json").read_text())
    assert card["training_data"] == "3 scans of the user's own: 12 frames, 6 more held out (by scan)"
    assert card["training"]["frames"] == 8 and card["training"]["steps"] == 4
    assert (
        set(card["held_out"]) == {"0.03", "0.1", "0.3", "1", "3", "8"} and "never from patients" not in card["not_for"]
    )
    loaded = Prior.load(prior, "tissue")
    assert loaded.card["grid"] == [16, 16] and 0.4 < loaded.data_mean < 0.6
    written = b"".join(p.read_bytes() for p in prior.parent.rglob("*") if p.is_file())
    assert b"Doe^Jane" not in written and b"MRN12345" not in written
    sheet = np.asarray(Image.open(prior.with_suffix(".png")))
    real = sheet[20 + 128 + 2 + 20 :, :128][::8, ::8]  # second row, first frame, enlarged eight times
    trained = frames_of_scans(sorted((tmp_path / "Doe^Jane").iterdir()), (16, 16)).sample[0, 0]
    np.testing.assert_array_equal(real, np.rint(255 * trained.numpy()))
    names = {p.relative_to(prior.parent).as_posix() for p in prior.parent.rglob("*") if p.is_file()}
    log = {"own.run/checkpoint.safetensors", "own.run/log.txt"}
    assert names == {"own.safetensors", "own.json", "own.png", *log}


def test_without_scans_frames_are_simulated_and_quiet_says_nothing(simulated, tmp_path):
    named = tmp_path / "p.safetensors"
    done = run("haze", "simulated", "-o", named, *FEW, "--quiet")
    assert done.exit_code == 0 and done.output == "" and named.read_bytes() == simulated.read_bytes()
    for prior in (simulated, named):
        card = json.loads(prior.with_suffix(".json").read_text())
        assert card["name"] == "haze-simulated-fastunet" and "no patient data" in card["training_data"]
        words = card["training"]["command"].split()
        assert words[:6] == ["usdehaze", "train", "haze", "simulated", "-o", "PRIOR"] and "--steps 4" in " ".join(words)


def test_the_cards_command_makes_the_same_prior(tmp_path):
    assert run("haze", "-o", tmp_path / "a.safetensors", *FEW, "--seed", "3").exit_code == 0
    words = json.loads((tmp_path / "a.json").read_text())["training"]["command"].split()[2:]
    words[words.index("PRIOR")] = str(tmp_path / "b.safetensors")
    assert run(*words, "--device", "cpu").exit_code == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_prior_is_fine_tuned_in_its_own_form(tmp_path):
    parent, child = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert run("haze", "-o", parent, *FEW, "--parametrisation", "score").exit_code == 0
    done = run("haze", scan(tmp_path / "own.h5"), "-o", child, "--from-prior", parent, "--steps", 2, "--batch", 2)
    assert done.exit_code == 0, done.output
    card = json.loads(child.with_suffix(".json").read_text())
    assert card["parametrisation"] == "score" and card["grid"] == [16, 16]
    assert card["fine_tuned_from"] == Prior.load(parent, "haze").name
    for option, value in (("--network", "ncsnv2"), ("--parametrisation", "denoiser")):
        done = run("haze", "-o", tmp_path / "c.safetensors", *FEW, "--from-prior", parent, option, value)
        assert done.exit_code == 2 and f"leave out {option}" in done.output


def test_a_posterior_learns_from_unpaired_scans(tmp_path):
    hearts = [scan(tmp_path / "Doe^Jane" / f"{i}.h5", seed=i) for i in range(3)]
    hazes = [scan(tmp_path / "haze" / f"{i}.h5", n_frames=2, low=-50, high=-20, seed=9 + i) for i in range(2)]
    out = tmp_path / "out" / "own.safetensors"
    done = run("posterior", "--tissue", *hearts, "--haze", *hazes, "-o", out, *FEW)
    assert done.exit_code == 0, done.output
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["tissue_data"] == "3 scans of the user's own: 12 frames, 6 more held out (by scan)"
    assert card["haze_data"] == "2 scans of the user's own: 2 frames, 2 more held out (by scan)"
    assert set(card["held_out"]["100"]) == {"tissue", "haze", "inside"} and card["exposure"] == 0.8
    words = "usdehaze train posterior --tissue DATA... --haze DATA... -o PRIOR"
    assert card["training"]["command"].startswith(words) and card["training"]["frames"] == 8
    assert b"Jane" not in b"".join(p.read_bytes() for p in out.parent.rglob("*") if p.is_file())
    assert LearnedPosterior.load(out).card["grid"] == [16, 16]
    assert Image.open(out.with_suffix(".png")).size[1] == 5 * (20 + 128 + 2) - 2  # hazy, then both found and true
    child = tmp_path / "child.safetensors"
    assert run("posterior", "-o", child, "--from-prior", out, "--steps", 2, "--batch", 2, *FEW[-4:]).exit_code == 0
    assert json.loads(child.with_suffix(".json").read_text())["fine_tuned_from"].startswith("posterior-scans-fastunet")


@pytest.mark.parametrize("simulated", ["tissue", "haze"])
def test_a_posterior_learns_from_scans_of_one_side_and_the_simulators_other(tmp_path, simulated):
    own = "haze" if simulated == "tissue" else "tissue"
    out = tmp_path / "own.safetensors"
    scans = [scan(tmp_path / f"{i}.h5", seed=i) for i in range(2)]
    done = run("posterior", f"--{own}", *scans, f"--{simulated}", "simulated", "-o", out, *FEW, "--pool", 8)
    assert done.exit_code == 0, done.output
    card = json.loads(out.with_suffix(".json").read_text())
    assert "no patient data" in card[f"{simulated}_data"] and "2 scans" in card[f"{own}_data"]
    command = card["training"]["command"]
    assert f"--{own} DATA..." in command and f"--{simulated} simulated" in command and "--pool 8" in command


def test_scenes_of_simulated_pairs_are_on_the_card_and_part_of_the_run(tmp_path):
    out = tmp_path / "p.safetensors"
    assert run("posterior", "simulated", "-o", out, *FEW, "--scenes", "hearts").exit_code == 0
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["training_data"] == "usdehaze.simulate, hearts (no patient data)"
    assert "--scenes hearts" in card["training"]["command"] and card["exposure"] == 0.8
    done = run("posterior", "simulated", "-o", out, *FEW, "--steps", 5, "--scenes", "quiet-hearts", "--overwrite")
    assert done.exit_code == 1 and "other settings" in done.output


def test_a_posterior_needs_scans_of_both_or_of_none(tmp_path):
    out = ("-o", tmp_path / "p.safetensors", *FEW)
    one = scan(tmp_path / "one.h5")
    for words, code, found in (
        (("posterior", one, *out), 2, "needs scans of both"),
        (("posterior", "--tissue", one, *out), 2, "needs scans of both"),
        (("posterior", "simulated", "--haze", one, *out), 2, "either simulated or from scans"),
        (("posterior", "--tissue", one, "--haze", "simulated", one, *out), 2, "either simulated or from scans"),
        (("posterior", "--tissue", one, "--haze", "simulated", "--images", "grey", *out), 2, "--images needs DATA"),
        (("posterior", "--tissue", one, "--haze", one, *out, "--scenes", "hearts"), 2, "--scenes is for a posterior"),
        (("haze", "simulated", *out, "--scenes", "hearts"), 2, "--scenes is for a posterior of simulated frames"),
        (("haze", "--haze", one, *out), 2, "--tissue and --haze are for a posterior"),
        (("haze", "--tissue", "simulated", "--haze", "simulated", *out), 2, "are for a posterior"),
        (("posterior", *out, "--network", "ncsnv2"), 2, "a parametrisation of its own"),
        (("posterior", *out, "--from-prior", "tissue"), 1, "a tissue prior; expected a posterior"),
        (("posterior", "--tissue", one, "--haze", tmp_path / "none.h5", *out), 1, "no such file"),
    ):
        done = run(*words)
        assert done.exit_code == code and found in done.output, (words, done.output)
    assert {p.name for p in tmp_path.iterdir()} == {"one.h5"}


def test_the_paper_network_comes_with_the_papers_settings(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("usdehaze.training.train.train", lambda recipe, *_, **__: seen.append(recipe))
    run("haze", "-o", tmp_path / "p.safetensors", "--network", "ncsnv2", "--device", "cpu")
    run("haze", "-o", tmp_path / "p.safetensors", "--device", "cpu")
    paper, fast = seen
    assert (paper.network, paper.parametrisation, paper.grid, paper.lr) == ("NCSNv2", "score", (64, 64), 5e-4)
    assert (fast.network, fast.parametrisation, fast.grid, fast.lr) == ("FastUNet", "denoiser", (128, 128), 1e-3)


def test_what_cannot_be_is_refused_in_one_line(tmp_path):
    out = ("-o", tmp_path / "p.safetensors", *FEW)
    for words, code, found in (
        (("bone", *out), 2, "'bone' is not one of"),
        (("haze", "-o", tmp_path / "p.pt"), 2, "must end in .safetensors"),
        (("haze", tmp_path / "none.h5", *out), 1, "no such file"),
        (("haze", "simulated", tmp_path, *out), 2, "either simulated or from scans"),
        (("haze", *out, "--grid", "16"), 2, "not a grid"),
        (("haze", *out, "--grid", "20x16"), 1, "multiples of 16"),
        (("haze", *out, "--pool", "5"), 2, "multiple of --fresh"),
        (("haze", *out, "--from-prior", "none"), 1, "no such prior"),
        (("haze", *out, "--from-prior", "tissue"), 1, "a tissue prior; expected a haze prior"),
        (("haze", scan(tmp_path / "one.h5", n_frames=1), *out), 1, "at least 2"),
        (("haze", *out, "--device", "cuda:99"), 2, "CUDA devices found"),
    ):
        done = run(*words)
        assert done.exit_code == code and found in done.output, (words, done.output)
        assert len(done.output.strip().splitlines()) == 1 and "Traceback" not in done.output
    assert {p.name for p in tmp_path.iterdir()} == {"one.h5"}


def test_card_and_sheet_replace_nothing_unasked_and_never_what_is_learned_from(tmp_path):
    for name in ("a", "b"):
        Image.fromarray(np.random.default_rng(1).integers(0, 256, (16, 16), np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "c.json").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    images = ("tissue", tmp_path / "a.png", tmp_path / "b.png", "--images", "grey", *FEW)
    for words, found in (
        ((*images, "-o", tmp_path / "a.safetensors"), "a.png: would be written among what is learned from"),
        ((*images, "-o", tmp_path / "a.safetensors", "--overwrite"), "a.png: would be written among"),
        ((*images, "-o", tmp_path / "c.safetensors"), "c.json: exists already; replace it with --overwrite"),
        (("tissue", tmp_path, "--images", "grey", *FEW, "-o", tmp_path / "d.safetensors"), "d.json: would be written"),
        (("tissue", tmp_path, *FEW, "-o", tmp_path / "d.safetensors"), "d.json: would be written among"),  # a cine
    ):
        done = run(*words)
        assert done.exit_code == 1 and found in done.output, (words, done.output)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_scan_cannot_be_both_tissue_and_haze(tmp_path):
    one, two = scan(tmp_path / "one.h5"), scan(tmp_path / "two.h5", seed=1)
    shutil.copy(one, tmp_path / "copy.h5")
    out = ("-o", tmp_path / "p.safetensors", *FEW)
    done = run("posterior", "--tissue", one, two, "--haze", tmp_path / "copy.h5", *out)
    assert done.exit_code == 2 and "--tissue and --haze have 6 frames in common" in done.output
    assert run("posterior", "--tissue", one, "--haze", two, *out).exit_code == 0


def test_options_for_reading_need_scans_to_read(tmp_path):
    out = ("-o", tmp_path / "p.safetensors", *FEW)
    grey = np.random.default_rng(0).integers(0, 256, (2, 4, 16, 16), np.uint8)
    np.savez(tmp_path / "images.npz", a=grey[0], b=grey[1])
    images = ("tissue", tmp_path / "images.npz", "--images", "grey")
    for words in (
        ("haze", *out, "--dynamic-range", 40),
        ("posterior", "--tissue", "simulated", "--haze", "simulated", *out, "--units", "db"),
        (*images, *out, "--dataset", "a", "--levels", "0:255"),
    ):
        done = run(*words)
        assert done.exit_code == 2 and "options for reading, such as --units, are for scans" in done.output, words
    assert run(*images, *out, "--dataset", "b").exit_code == 0


def test_what_was_guessed_of_a_scan_is_told(tmp_path):
    guessed, known = tmp_path / "a.h5", scan(tmp_path / "b.h5")
    with h5py.File(guessed, "w") as file:
        file["frames"] = np.random.default_rng(0).integers(0, 256, (6, 16, 16), np.uint8)
    words = ("haze", guessed, known, *FEW, "--rectangle")
    done = run(*words, "-o", tmp_path / "p.safetensors")
    assert done.exit_code == 0, done.output
    assert f"{guessed}: Dynamic range assumed to be 60 dB. Decide with --dynamic-range." in done.output
    assert run(*words, "-o", tmp_path / "q.safetensors", "--quiet").output == ""


def test_a_broken_scan_is_named_and_nothing_is_written(tmp_path):
    scan(tmp_path / "in" / "good.h5")
    (tmp_path / "in" / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    done = run("haze", tmp_path / "in", "-o", tmp_path / "out" / "p.safetensors", *FEW)
    assert done.exit_code == 1 and "bad.h5" in done.output and len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_prior_that_exists_is_kept_and_a_checkpoint_of_other_settings_too(simulated, tmp_path):
    shutil.copytree(simulated.parent, tmp_path, dirs_exist_ok=True)
    prior = tmp_path / "p.safetensors"
    before = prior.read_bytes()
    done = run("haze", "-o", prior, *FEW)
    assert done.exit_code == 1 and "exists already; replace it with --overwrite" in done.output
    done = run("haze", "-o", prior, *FEW, "--overwrite", "--lr", "0.5")
    assert done.exit_code == 1 and "other settings (lr 0.001, now 0.5)" in done.output
    assert prior.read_bytes() == before
    assert run("haze", "-o", prior, *FEW, "--overwrite").exit_code == 0  # the same run is finished already
    assert prior.read_bytes() == before


def test_two_runs_cannot_write_one_prior(tmp_path):
    from usdehaze.io.atomic import PartFile

    lock = PartFile(tmp_path / "p.safetensors")
    done = run("haze", "-o", tmp_path / "p.safetensors", *FEW)
    lock.discard()
    assert done.exit_code == 1 and "is being written by another run" in done.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(tmp_path, number):
    prior, log = tmp_path / "p.safetensors", tmp_path / "p.run" / "log.txt"
    words = ("haze", "-o", prior, *FEW, "--steps", "100000", "--checkpoint-every", "3")

    def interrupt():
        until = time.monotonic() + 60
        while not log.exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    ours = signal.signal(number, signal.default_int_handler)  # whoever runs the tests may ignore it (nohup)
    try:
        before = signal.getsignal(number)
        presser = threading.Thread(target=interrupt)
        presser.start()
        done = run(*words)
        presser.join()
        assert signal.getsignal(number) is before and not prior.exists()
    finally:
        signal.signal(number, ours)
    assert done.exit_code == 130 and "the same command goes on from" in done.output
    stopped_at = int(log.read_text().splitlines()[-1].split()[2].split("/")[0])
    again = run(*words[:-4], "--steps", stopped_at + 2)
    assert again.exit_code == 0, again.output
    assert json.loads(prior.with_suffix(".json").read_text())["training"]["steps"] == stopped_at + 2
    assert f"step {stopped_at + 2}/{stopped_at + 2}" in log.read_text()


def test_a_run_that_is_stopped_before_its_first_step_names_no_checkpoint(tmp_path, monkeypatch):
    asked = threading.Event()
    asked.set()
    monkeypatch.setattr(sys.modules["usdehaze.cli.train"], "ending", lambda: nullcontext(asked))
    done = run("haze", "-o", tmp_path / "p.safetensors", *FEW)
    assert done.exit_code == 130 and done.output == "stopped before the first step\n"
    assert not list(tmp_path.iterdir())


def test_samples_of_a_prior_that_knows_its_data_have_its_mean_and_deviation():
    class Silent(torch.nn.Module):  # a denoiser about the mean: the exact one of independent Gaussian pixels
        config: ClassVar = {}

        def forward(self, seen, _):
            return torch.zeros_like(seen)

    card = {"name": "g", "kind": "haze", "data_mean": 0.5, "data_std": 0.1, "grid": [32, 32], "sigma_max": 10.0}
    samples = draw_samples(Prior(Silent(), card), 8)
    assert abs(float(samples.mean()) - 0.5) < 0.005 and abs(float(samples.std()) - 0.1) < 0.01
    assert torch.equal(samples[:2], draw_samples(Prior(Silent(), card), 2))  # each its own stream


def test_help_loads_nothing_heavy():
    code = "import sys; from usdehaze.cli import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'h5py', 'PIL', 'scipy', 'monai'} & set(sys.modules), sorted(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "--from-prior" in done.stdout, done.stderr


@pytest.mark.slow
def test_torchrun_trains_with_two_processes(simulated, tmp_path):
    prior = tmp_path / "p.safetensors"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "usdehaze",
        "train", "haze", "-o", str(prior), *FEW, "--checkpoint-every", "2",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("haze prior of") == 1 and done.stderr.count("step 4/4") == 1  # one of them speaks
    card = json.loads(prior.with_suffix(".json").read_text())
    assert card["training"]["frames"] == 2 * 4 * 2
    assert simulated.read_bytes() != prior.read_bytes()  # the second process did count
