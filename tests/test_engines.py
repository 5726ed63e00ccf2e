"""Engines: what PyTorch computes, at any batch size, and one clear line where an engine cannot do it."""

import json
import multiprocessing
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import torch
from _tiny_priors import write_tiny_posterior, write_tiny_priors
from click.testing import CliRunner

from usdehaze.choices import ENGINES
from usdehaze.cine import Cartesian, Cine
from usdehaze.cli import main
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.engines import export, graph
from usdehaze.engines.onnxruntime import OnnxRuntimeEngine
from usdehaze.engines.openvino import OpenVinoEngine
from usdehaze.errors import UsdehazeError
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.simulate import simulate_cine
from usdehaze.validation.metrics import psnr_db

PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino"}
TOLERANCE_DB, MEAN_DB = 0.2, 0.001  # of a pixel, where two samples may change places, and on average


@pytest.fixture(scope="module")
def posterior_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("posterior") / "posterior.safetensors"
    write_tiny_posterior(path)
    return path


@pytest.fixture(scope="module")
def cine():
    levels = torch.rand((3, 40, 36), generator=torch.Generator().manual_seed(5))
    return Cine(-60 * levels.numpy(), Cartesian())


def dehazer(posterior_file, engine, **options):
    return Dehazer.from_pretrained(posterior=posterior_file, engine=engine, samples=5, caution=0.1, **options)


def use(engine):
    for package in ("onnx", PACKAGES[engine]):
        pytest.importorskip(package)


@pytest.mark.parametrize("engine", PACKAGES)
def test_engines_give_what_torch_gives_and_results_say_which_it_was(posterior_file, cine, engine):
    use(engine)
    torch_result = dehazer(posterior_file, "torch", device="cpu").dehaze(cine, interval=True)
    result = dehazer(posterior_file, engine).dehaze(cine, interval=True)
    assert (torch_result.settings["engine"], result.settings["engine"]) == ("torch", engine)
    for name in ("tissue", "haze", "std", "interval"):
        off = np.abs(getattr(result, name) - getattr(torch_result, name))
        assert off.max() < TOLERANCE_DB and off.mean() < MEAN_DB, name
    assert np.abs(result.tissue - cine.frames).mean() > 1  # something was done


@pytest.mark.parametrize("engine", PACKAGES)
def test_neither_batch_nor_threads_nor_pickling_change_a_bit(posterior_file, cine, engine):
    use(engine)
    once = dehazer(posterior_file, engine, batch_size=3)
    first = once.dehaze(cine)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        alone = dehazer(posterior_file, engine, batch_size=1)
        again = pickle.loads(pickle.dumps(alone)).with_settings(alone.settings)
        for other in (alone, again):
            np.testing.assert_array_equal(other.dehaze(cine).tissue, first.tissue)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("engine", PACKAGES)
def test_what_the_host_program_sets_decides_nothing(posterior_file, cine, engine):
    use(engine)
    expected, threads = dehazer(posterior_file, engine).dehaze(cine).tissue, torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
            made = dehazer(posterior_file, engine)
        assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float64, threads)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(made.dehaze(cine).tissue, expected)


@pytest.mark.parametrize("engine", PACKAGES)
def test_several_threads_make_one_each_at_once(posterior_file, cine, engine):
    use(engine)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: dehazer(posterior_file, engine), range(4)))
    assert len({each.dehaze(cine).tissue.tobytes() for each in made}) == 1


@pytest.mark.parametrize("engine", PACKAGES)
def test_a_forked_process_works_where_its_parent_has_worked(posterior_file, cine, engine):
    use(engine)
    made = dehazer(posterior_file, engine)
    expected = made.dehaze(cine).tissue
    heard, told = multiprocessing.Pipe(duplex=False)

    def work():
        torch.set_num_threads(1)  # as workers of a DataLoader do
        told.send_bytes(made.dehaze(cine).tissue.tobytes())

    forked = multiprocessing.get_context("fork").Process(target=work)
    forked.start()
    try:
        assert heard.poll(60) and heard.recv_bytes() == expected.tobytes()
    finally:
        forked.kill()
        forked.join()


@pytest.mark.parametrize("make", [OnnxRuntimeEngine, OpenVinoEngine])
def test_a_pass_is_that_of_the_posterior_at_other_sizes_too(posterior_file, make):
    use(make.name)
    posterior = LearnedPosterior.load(posterior_file)
    engine, generator = make(posterior), torch.Generator().manual_seed(1)
    for shape, sigma in (((1, 2, 32, 32), 0.1), ((4, 2, 48, 20), 100.0)):
        y = torch.rand((shape[0], 1, *shape[2:]), generator=generator)
        u = y + sigma * torch.randn(shape, generator=generator)
        for got, expected in zip(engine(u, sigma, y), posterior(u, sigma, y), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("count", range(1, 10))
def test_comparisons_sort_all_rows_of_zeros_and_ones(count):
    """And so whatever there is (Knuth, TAOCP 5.3.4, the 0-1 principle)."""
    rows = torch.cartesian_prod(*[torch.arange(2)] * count).reshape(-1, count)
    expected, rows = rows.sort(dim=1).values, list(rows.unbind(1))
    for low, high in graph.comparisons(count):
        rows[low], rows[high] = torch.minimum(rows[low], rows[high]), torch.maximum(rows[low], rows[high])
    assert all(torch.equal(row, expected[:, i]) for i, row in enumerate(rows))


def test_auto_is_torch_to_the_bit(posterior_file, cine):
    auto, torch_ = (dehazer(posterior_file, name, device="cpu").dehaze(cine) for name in ("auto", "torch"))
    assert auto.settings["engine"] == "torch"
    np.testing.assert_array_equal(auto.tissue, torch_.tissue)


def test_what_an_engine_cannot_do_is_refused(tmp_path, posterior_file):
    with pytest.raises(UsdehazeError, match="no engine 'tensorrt'; there are auto, torch, onnxruntime, openvino"):
        dehazer(posterior_file, "tensorrt")
    with pytest.raises(UsdehazeError, match="onnxruntime computes in fp32 or int8, found bf16; use --engine openvino"):
        dehazer(posterior_file, "onnxruntime", precision="bf16")
    with pytest.raises(UsdehazeError, match="engine openvino runs the learned posterior alone; use --engine torch"):
        Dehazer.from_pretrained(**write_tiny_priors(tmp_path), engine="openvino")


@pytest.fixture(scope="module")
def int8():
    use("onnxruntime")
    return Dehazer.from_pretrained(engine="onnxruntime", precision="int8")


def test_int8_stays_near_float32_on_hearts_it_was_not_calibrated_on(int8):
    exact, off = Dehazer.from_pretrained(engine="onnxruntime"), []
    for seed in range(1_400_000_000, 1_400_000_003):
        scene = simulate_cine(1, seed)
        ours, wanted = (made.dehaze(scene.cine) for made in (int8, exact))
        assert 0.01 < np.abs(ours.tissue - wanted.tissue).mean() < 0.3
        off.append([psnr_db(r.tissue, scene.tissue, 60.0) for r in (ours, wanted)])
    assert np.abs(np.diff(np.mean(off, axis=0))).max() < 0.1
    assert (ours.settings["engine"], ours.settings["precision"]) == ("onnxruntime", "int8")


def test_int8_is_the_same_every_time_it_is_made_and_once_it_travelled(int8, cine):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 if threads != 3 else 2)
        torch.set_default_dtype(torch.float64)
        again = Dehazer.from_pretrained(engine="onnxruntime", precision="int8", batch_size=1)
        assert again.engine.model == int8.engine.model
        travelled = pickle.loads(pickle.dumps(again))
        np.testing.assert_array_equal(travelled.dehaze(cine).tissue, int8.dehaze(cine).tissue)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


def test_int8_is_refused_where_it_is_not_calibrated_and_where_it_strays(posterior_file, monkeypatch):
    use("onnxruntime")
    with pytest.raises(UsdehazeError, match="int8 is of the engine onnxruntime, found auto; use --engine onnxruntime"):
        dehazer(posterior_file, "auto", precision="int8")
    for changed in ({"steps": 4}, {"sigma_max": 8.0}):
        with pytest.raises(UsdehazeError, match=r"one step at noise level 100, found .*; use --precision fp32"):
            dehazer(posterior_file, "onnxruntime", precision="int8", **changed)
    monkeypatch.setattr("usdehaze.engines.int8.MOST_OFF", 0.0)
    with pytest.raises(UsdehazeError, match=r"int8 strays from fp32 by \d\.\d\d dB .* on this CPU; use fp32"):
        Dehazer.from_pretrained(engine="onnxruntime", precision="int8")


@pytest.mark.parametrize(("engine", "package"), [("onnxruntime", "onnxruntime"), ("openvino", "openvino")])
def test_a_package_that_is_missing_is_named_with_its_extra(posterior_file, monkeypatch, engine, package):
    pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, package, None)
    extra = "onnx" if engine == "onnxruntime" else "openvino"
    with pytest.raises(UsdehazeError, match=rf'^{package} is not installed; .*pip install "usdehaze\[{extra}'):
        dehazer(posterior_file, engine)


def test_process_takes_an_engine_and_the_file_says_so(tmp_path, posterior_file, cine):
    use("onnxruntime")
    assert CliRunner().invoke(main, ["simulate", str(tmp_path / "a.h5"), "--frames", "1"]).exit_code == 0
    options = ["--posterior", str(posterior_file), "--engine", "onnxruntime", "--samples", "1"]
    done = CliRunner().invoke(main, ["process", str(tmp_path / "a.h5"), *options])
    assert done.exit_code == 0, done.output
    with h5py.File(tmp_path / "a.dehazed.h5") as file:
        assert file.attrs["engine"] == "onnxruntime"
    assert set(ENGINES) == {"torch", *PACKAGES}


def test_an_exported_model_runs_elsewhere_and_its_card_says_how(tmp_path, posterior_file):
    use("onnxruntime")
    import onnxruntime

    out = tmp_path / "model.onnx"
    done = CliRunner().invoke(main, ["export", str(posterior_file), "-o", str(out)])
    assert done.exit_code == 0, done.output
    card, posterior = json.loads((tmp_path / "model.onnx.json").read_text()), LearnedPosterior.load(posterior_file)
    assert card["posterior"] == posterior.name and card["multiple"] == 4
    assert 0 < card["difference_to_torch"]["clean"] <= card["tolerance"] == export.TOLERANCE
    session = onnxruntime.InferenceSession(out)
    shapes = {i.name: [n if isinstance(n, int) else str(n) for n in i.shape] for i in session.get_inputs()}
    assert shapes == card["inputs"]
    y, sigma = torch.rand((5, 1, 36, 64), generator=torch.Generator().manual_seed(2)), torch.linspace(0.1, 9, 5)
    u = torch.cat([y, y], dim=1) + sigma[:, None, None, None]
    found = session.run(None, {"u": u.numpy(), "sigma": sigma.numpy(), "y": y.numpy()})
    for got, expected in zip(found, posterior(u, sigma, y), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=export.TOLERANCE)


def test_a_model_that_is_not_the_posterior_is_not_exported(tmp_path, posterior_file, monkeypatch):
    use("onnxruntime")
    other = LearnedPosterior.load(posterior_file)
    other.card["haze_std"] *= 1.01
    monkeypatch.setattr(export, "onnx_of", lambda posterior: graph.onnx_of(other))
    done = CliRunner().invoke(main, ["export", str(posterior_file), "-o", str(tmp_path / "model.onnx")])
    assert done.exit_code == 1 and "the exported model's clean is" in done.stderr and "off PyTorch's" in done.stderr
    assert not list(tmp_path.iterdir())


def test_export_replaces_nothing_unasked_and_wants_an_onnx_name(tmp_path, posterior_file):
    (tmp_path / "model.onnx.json").write_text("mine")
    done = CliRunner().invoke(main, ["export", str(posterior_file), "-o", str(tmp_path / "model.onnx")])
    assert done.exit_code == 1 and "model.onnx.json: exists already" in done.stderr
    assert (tmp_path / "model.onnx.json").read_text() == "mine" and not (tmp_path / "model.onnx").exists()
    assert CliRunner().invoke(main, ["export", "posterior", "-o", str(tmp_path / "model.pt")]).exit_code == 2
