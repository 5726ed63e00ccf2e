"""Training: what is learned, that it goes on exactly after any end, and that processes together equal one."""

import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from _gaussian_rows import GaussianRows
from click.testing import CliRunner
from safetensors.torch import load_file

from usdehaze.cli import main
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import training_frames
from usdehaze.training import data, objective
from usdehaze.training import train as training
from usdehaze.training.checkpoint import State, save_checkpoint
from usdehaze.training.train import Recipe, train

CPU = torch.device("cpu")
TINY = {"FastUNet": {"channels": (8, 16)}, "NCSNv2": {"channels": (8, 12)}}
MEAN, STD = 0.4, 0.3


class GaussianFrames(GaussianRows):
    """Rows of 8 equal pixels, each row's value Gaussian: the best denoiser is that of the mean of each row."""

    def _frames(self, n, generator):
        return MEAN + STD * torch.randn(n, 1, 8, 1, generator=generator).expand(n, 1, 8, 8)


def tiny(network="FastUNet", **settings):
    defaults = {"parametrisation": "denoiser", "grid": (8, 8), "batch": 4, "steps": 12}
    return Recipe("haze", network, TINY[network], **{**defaults, **settings})


def weights(prior):
    return torch.cat([p.flatten() for p in prior.network.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("network", TINY)
@pytest.mark.parametrize("parametrisation", ["denoiser", "score"])
def test_every_kind_of_prior_comes_near_the_best_denoiser_of_gaussian_data(network, parametrisation, tmp_path):
    steps = {"FastUNet": 300, "NCSNv2": 80}[network]
    recipe = tiny(network, parametrisation=parametrisation, steps=steps, batch=16, lr=1e-2)
    prior = train(recipe, GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run", every=1000)
    x0, v = GaussianFrames().held_out, STD**2
    for sigma in (0.1, 0.3):
        x = x0 + sigma * torch.randn(x0.shape, generator=torch.Generator().manual_seed(3))
        best = MEAN + 8 * v / (8 * v + sigma**2) * (x.mean(-1, keepdim=True) - MEAN)
        assert math.isclose((best - x0).square().mean(), v * sigma**2 / (8 * v + sigma**2), rel_tol=0.1)
        by_pixel = MEAN + v / (v + sigma**2) * (x - MEAN)  # what mean and variance alone give
        assert (prior(x, sigma) - best).square().mean() < 0.5 * (by_pixel - best).square().mean(), sigma


def test_the_score_objective_is_the_papers():
    class Halves(torch.nn.Module):
        def forward(self, seen, _):
            return 0.5 * seen

    prior = Prior(
        Halves(), {"name": "h", "kind": "haze", "data_mean": 0.4, "data_std": 0.2, "parametrisation": "score"}
    )
    x0, z, beta = torch.rand(3, 1, 4, 4), torch.randn(3, 1, 4, 4), torch.tensor([0.1, 1.0, 9.0]).reshape(3, 1, 1, 1)
    x_t = x0 + beta * z
    score = 0.5 * (2 * x_t - 1) / beta
    torch.testing.assert_close(objective.Objective(prior)(x0, beta, z), (beta * score + z).square().mean())


def test_paper_levels_follow_evenly_drawn_times():
    sigmas = objective.draw_sigmas("score", 4000, torch.Generator().manual_seed(0)).flatten().double()
    t = torch.log1p(sigmas.square() * 2 * math.log(25.0)) / (2 * math.log(25.0))
    quantiles = torch.quantile(t, torch.linspace(0.1, 0.9, 9, dtype=torch.float64))
    torch.testing.assert_close(quantiles, torch.linspace(0.1, 0.9, 9, dtype=torch.float64), rtol=0, atol=0.03)
    assert 1e-5 <= float(t.min()) and float(sigmas.max()) <= 9.85


def test_learning_rate_rises_stays_and_falls_to_zero():
    recipe = tiny(steps=10_000, lr=0.5)
    assert recipe.rate(0) == 0.5 / 200 and recipe.rate(199) == recipe.rate(7000) == 0.5
    assert math.isclose(recipe.rate(8500), 0.25) and math.isclose(recipe.rate(9999), 0.5 / 3000)
    assert tiny(steps=100, lr=0.5).rate(9) == 0.5 and tiny(steps=1, lr=0.5).rate(0) == 0.5


def test_an_interrupted_run_ends_bit_for_bit_as_one_that_was_not(tmp_path):
    source = data.SimulatedFrames("haze", (16, 16), pool=6, refresh=2)
    recipe = tiny(grid=(16, 16))
    whole = train(recipe, source, tmp_path / "a.safetensors", tmp_path / "a")
    asked = []
    stopped = train(
        recipe, source, tmp_path / "b.safetensors", tmp_path / "b", stop=lambda: asked.append(1) or len(asked) > 5
    )
    assert stopped is None and not (tmp_path / "b.safetensors").exists()
    fresh = data.SimulatedFrames("haze", (16, 16), pool=6, refresh=2)  # as a new process has it
    steps = []
    resumed = train(
        recipe, fresh, tmp_path / "b.safetensors", tmp_path / "b", tell=lambda told: steps.append(told.step)
    )
    assert steps == list(range(6, 13))
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.sha256 == resumed.sha256 and whole.card["held_out"] == resumed.card["held_out"]


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path):
    steps = []
    for n in (4, 6):
        train(
            tiny(steps=n), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run",
            tell=lambda told: steps.append(told.step),
        )  # fmt: skip
    assert steps == [1, 2, 3, 4, 5, 6]
    assert json.loads((tmp_path / "p.json").read_text())["training"]["frames"] == 24


@pytest.mark.parametrize("other", [{"lr": 2e-3}, {"batch": 5}, {"seed": 1}, {"parametrisation": "score"}])
def test_a_checkpoint_of_other_settings_is_refused_by_name(other, tmp_path):
    train(tiny(steps=1), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run")
    with pytest.raises(InputError, match=rf"other settings.*{next(iter(other))}.*now"):
        train(replace(tiny(), **other), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run")


def test_a_checkpoint_of_more_steps_than_asked_for_is_refused(tmp_path):
    train(tiny(steps=3), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run")
    with pytest.raises(InputError, match="is of 3 steps already; expected at most the 2 asked for"):
        train(tiny(steps=2), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run")


def test_a_checkpoint_of_other_frames_is_refused(tmp_path):
    a, b = (data.StoredFrames([torch.rand(6, 8, 8)]) for _ in range(2))
    train(tiny(steps=1), a, tmp_path / "p.safetensors", tmp_path / "run")
    with pytest.raises(InputError, match="other settings"):
        train(tiny(), b, tmp_path / "p.safetensors", tmp_path / "run")


def test_a_broken_checkpoint_is_refused(tmp_path):
    (tmp_path / "run").write_bytes(b"half a file")
    with pytest.raises(InputError, match="not a usable checkpoint"):
        train(tiny(), GaussianFrames(), tmp_path / "p.safetensors", tmp_path / "run")


def test_a_write_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    net = FastUNet(**TINY["FastUNet"])
    state = State(net, {}, torch.optim.Adam(net.parameters()), torch.amp.GradScaler("cpu", enabled=False))
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, state, {})
    before = path.read_bytes()
    monkeypatch.setattr("usdehaze.training.checkpoint.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    state.step = 5
    with pytest.raises(InputError, match="cannot be written"):
        save_checkpoint(path, state, {})
    assert path.read_bytes() == before


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    class Broken(GaussianFrames):
        def draw(self, *args):
            return super().draw(*args) * math.inf

    with pytest.raises(UsdehazeError, match=r"loss is (nan|inf) at step 1; try a smaller --lr"):
        train(tiny(), Broken(), tmp_path / "p.safetensors", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fine_tuning_starts_from_the_priors_weights(tmp_path):
    parent = train(tiny(steps=8), GaussianFrames(), tmp_path / "a.safetensors", tmp_path / "a")
    seen = []
    child = train(
        tiny(steps=1, lr=1e-8), GaussianFrames(), tmp_path / "b.safetensors", tmp_path / "b", begin_with=parent,
        tell=lambda told: seen.append(told),
    )  # fmt: skip
    torch.testing.assert_close(weights(child), weights(parent), rtol=0, atol=1e-6)
    assert child.card["fine_tuned_from"] == parent.name and child.data_mean == parent.data_mean
    assert math.isclose(seen[0].held_out, objective.objective_on(parent, GaussianFrames().held_out), rel_tol=1e-4)


def test_half_precision_trains_about_alike(tmp_path):
    losses = {}
    for precision in ("fp32", "bf16", "fp16"):
        recipe = tiny(steps=30, batch=16, precision=precision)
        prior = train(recipe, GaussianFrames(), tmp_path / f"{precision}.safetensors", tmp_path / precision)
        losses[precision] = objective.objective_on(prior, GaussianFrames().held_out)
    assert math.isclose(losses["bf16"], losses["fp32"], rel_tol=0.02)
    assert math.isclose(losses["fp16"], losses["fp32"], rel_tol=0.02)


def test_scans_are_held_out_whole():
    scans = [torch.full((5, 8, 8), i / 16) for i in range(12)]
    source = data.StoredFrames(scans, share=0.25)
    out = set(source._held_out.unique().tolist())
    assert len(out) == 3 and len(source._held_out) == 15
    assert out.isdisjoint(source._train.unique().tolist()) and len(source._train) == 45
    assert source.description == "12 scans of the user's own: 45 frames, 15 more held out (by scan)"


def test_of_a_single_scan_the_last_frames_are_held_out():
    source = data.StoredFrames([torch.arange(20)[:, None, None].expand(20, 8, 8) / 32])
    assert (source._held_out[:, 0, 0, 0] * 32).tolist() == [18, 19] and len(source._train) == 18


def test_pairs_are_unpaired_frames_put_together_by_power_with_a_random_phase():
    generator = torch.Generator().manual_seed(4)
    tissue, haze = torch.full((64, 1, 16, 16), 0.5), torch.full((64, 1, 16, 16), 0.5)
    haze[:, :, 8:] = 0.0  # the floor sends nothing back
    x, n, y = data.put_together(tissue, haze, generator).split(1, dim=1)
    assert torch.equal(x, tissue) and torch.equal(n, haze)
    torch.testing.assert_close(y[:, :, 8:], tissue[:, :, 8:], rtol=0, atol=1e-6)
    both = (10 ** ((y[:, :, :8] - 1) * 6.0)).mean()  # two equal echoes: twice the power in the mean, at most four times
    assert float(both) == pytest.approx(2 * 10**-3.0, rel=0.05)
    assert float(y.max()) <= 0.5 + 20 * math.log10(2) / 60 + 1e-5


def test_pairs_are_drawn_alike_for_the_same_step_and_differ_between_tissue_and_haze():
    frames = [torch.rand(40, 8, 8, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    tissue, haze = data.StoredFrames(frames[:2]), data.StoredFrames(frames[2:], purpose=data.HAZE_PICKS)
    pairs = data.Pairs(tissue, haze)
    first, again, next_one = (pairs.draw(6, 0, 0, step, CPU) for step in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, next_one) and first.shape == (6, 3, 8, 8)
    same = data.Pairs(tissue, data.StoredFrames(frames[:2], purpose=data.HAZE_PICKS)).draw(6, 0, 0, 3, CPU)
    assert not torch.equal(same[:, 0], same[:, 1])  # who meets whom is left to chance
    assert pairs.held_out.shape[1:] == (3, 8, 8) and pairs.fingerprint.count(" and ") == 1


def test_dark_pairs_are_raised_as_dark_frames_are_when_they_are_dehazed():
    frames = [torch.rand(9, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    dark, bright = (
        data.Pairs(
            *(data.StoredFrames([scale * f for f in two], purpose=p) for p, two in enumerate((frames[:2], frames[2:])))
        )
        for scale in (0.6, 1.0)
    )
    for of in (lambda pairs: pairs.draw(4, 0, 0, 0, CPU), lambda pairs: pairs.held_out, lambda pairs: pairs.sample):
        raised, _, hazy = of(dark).split(1, dim=1)
        assert float(hazy.flatten(1).topk(5).values[:, -1].min()) == pytest.approx(data.EXPOSURE)
        assert float(of(bright)[:, :2].amax()) <= 1 and 0.6 < float(raised.amax()) < 0.85


def test_a_single_frame_cannot_be_trained_on():
    with pytest.raises(ValueError, match="at least 2 frames"):
        data.StoredFrames([torch.rand(1, 8, 8)])


def test_pool_reuses_frames_renews_the_oldest_and_can_be_entered_anywhere():
    pool = data.SimulatedFrames("tissue", (16, 16), pool=6, refresh=2)
    pool.draw(4, 0, 0, 0, CPU)
    before = pool._frames.clone()
    drawn = pool.draw(4, 0, 0, 1, CPU)
    changed = (pool._frames != before).flatten(1).any(1)
    assert changed.tolist() == [False, False, True, True, False, False]  # places 0 and 1 went the step before
    other = data.SimulatedFrames("tissue", (16, 16), pool=6, refresh=2)
    assert torch.equal(other.draw(4, 0, 0, 1, CPU), drawn)
    assert not torch.equal(other.draw(4, 0, 1, 1, CPU), drawn)  # another process, other frames


def test_training_on_simulated_frames_beats_the_best_linear_guess_and_leaves_a_card(tmp_path):
    source = data.SimulatedFrames("tissue", (32, 32), pool=8, refresh=1)
    recipe = replace(tiny(grid=(32, 32), steps=60), kind="tissue")
    path = tmp_path / "p.safetensors"
    train(recipe, source, path, tmp_path / "run", command="usdehaze train tissue")
    prior = Prior.load(path, "tissue")
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["training"]["steps"] == 60 and card["training"]["frames"] == 240
    assert card["training"]["command"] == "usdehaze train tissue" and "never from patients" in card["not_for"]
    frames = training_frames("tissue", 8, torch.Generator().manual_seed(2_000_000_000), 32, 32)
    linear = Prior(FastUNet(channels=(8, 16)), prior.card)  # its head is zero: the best guess without learning
    learned = objective.held_out_loss(prior, frames, (0.3,))[0]
    assert learned < 0.95 * objective.held_out_loss(linear, frames, (0.3,))[0]


MEETINGS = {"always": {}, "once": {"sync": 5}}  # of five steps: at every one; at the end


def _together(rank, folder):
    """One of two processes; each takes its own stream."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": (folder / "port").read_text()}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    for name, settings in MEETINGS.items():
        train(tiny(steps=5, **settings), GaussianFrames(), folder / f"{name}.safetensors", folder / name)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Folder with what two processes learned together, by how often they met: starting them takes longest."""
    folder = tmp_path_factory.mktemp("together")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (folder / "port").write_text(str(free.getsockname()[1]))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_together, args=(rank, folder)) for rank in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join(400)
    assert [p.exitcode for p in processes] == [0, 0]
    return folder


def test_processes_that_meet_now_and_then_end_with_the_mean_of_their_weights(together, tmp_path):
    alone = []
    for rank in range(2):

        class Own(GaussianFrames):
            def draw(self, batch, seed, stream, step, device, rank=rank):
                return super().draw(batch, seed, rank, step, device)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "noise_generator", lambda seed, _, *a, r=rank: data.noise_generator(seed, r, *a))
            train(tiny(steps=5), Own(), tmp_path / f"{rank}.safetensors", tmp_path / f"run{rank}")
        alone.append(load_file(tmp_path / f"run{rank}"))
    met = load_file(together / "once")
    for name in (name for name in met if name.startswith(("net.", "ema.")) and name.endswith("weight")):
        torch.testing.assert_close(met[name], (alone[0][name] + alone[1][name]) / 2, rtol=1e-4, atol=1e-5)


def test_two_processes_equal_one_with_twice_the_batch(together, tmp_path, monkeypatch):
    class Both(GaussianFrames):
        def draw(self, batch, seed, stream, step, device):
            half = [super(Both, self).draw(batch // 2, seed, rank, step, device) for rank in range(2)]
            return torch.cat(half)

    def both(model, frames, generator):  # levels and noise of each process in turn
        generators = [data.noise_generator(0, rank, step[0], CPU) for rank in range(2)]
        drawn = [objective.draw_batch(model, half, g) for half, g in zip(frames.chunk(2), generators, strict=True)]
        step[0] += 1
        return [torch.cat(parts) for parts in zip(*drawn, strict=True)]

    step = [0]
    monkeypatch.setattr(training, "draw_batch", both)
    train(tiny(steps=5, batch=8), Both(), tmp_path / "one.safetensors", tmp_path / "one")
    monkeypatch.undo()
    train(tiny(steps=5, batch=8), GaussianFrames(), tmp_path / "other.safetensors", tmp_path / "other")
    one, other = (load_file(tmp_path / name) for name in ("one", "other"))
    two = load_file(together / "always")
    # Biases before a norm have no gradient but rounding, which Adam blows up: their moments tell, not their values.
    names = [name for name in one if name.startswith("adam") or name.endswith("weight")]
    for name in names:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)
    assert max(float((other[name] - one[name]).abs().max()) for name in names) > 1e-3  # other frames do show
    card = json.loads((together / "always.json").read_text())
    assert card["training"]["frames"] == 40 and card["training"]["hardware"].startswith("2 of ")


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    def command(prior):
        few = "--grid 16x16 --steps 25 --batch 2 --pool 4 --fresh 2 --checkpoint-every 5 --device cpu"
        return ["train", "haze", "-o", str(prior), *few.split()]

    def to_the_end(prior):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as the process below has
        done = CliRunner().invoke(main, command(prior))
        torch.set_num_threads(threads)
        assert done.exit_code == 0, done.output
        return done.stderr

    prior, log = tmp_path / "own.safetensors", tmp_path / "own.run" / "log.txt"
    run = subprocess.Popen(
        [sys.executable, "-m", "usdehaze", *command(prior)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[1],
    )
    until = time.monotonic() + 400
    while not (log.exists() and "step 10/" in log.read_text()) and time.monotonic() < until and run.poll() is None:
        time.sleep(0.02)
    run.kill()
    run.wait()
    killed_at = int(log.read_text().splitlines()[-1].split()[2].split("/")[0])
    assert killed_at < 25 and not prior.exists()
    first = int(to_the_end(prior).split()[2].split("/")[0])  # haze step N/25: the first checkpoint of the second run
    assert killed_at < first <= killed_at + 2 * 5  # it had written at killed_at, or once more before it died
    to_the_end(tmp_path / "whole.safetensors")
    assert prior.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()  # to the last bit
