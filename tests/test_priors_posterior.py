"""The learned joint posterior: its form, its file, and that it learns what can be known in closed form."""

import json
import math

import pytest
import torch
from _gaussian_rows import GaussianRows

from usdehaze.errors import InputError, UsdehazeError
from usdehaze.priors.posterior import INPUTS, LEVELS, OUTPUTS, WEIGHTS, LearnedPosterior, lift_of, pinball, raised
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.training.objective import posterior_errors
from usdehaze.training.samples import split_samples
from usdehaze.training.train import Recipe, train
from validation.mean import mean_of

CARD = {
    "name": "p", "frame_mean": 0.4, "frame_std": 0.3, "tissue_std": 0.2, "haze_std": 0.5, "sigma_max": 100.0,
    "grid": [16, 16],
}  # fmt: skip


def tiny(random=True):
    torch.manual_seed(0)
    network = FastUNet(channels=(8, 16), inputs=INPUTS, outputs=OUTPUTS)
    for p in network.parameters() if random else ():
        torch.nn.init.normal_(p, std=0.1)
    return LearnedPosterior(network, dict(CARD))


def test_an_untrained_network_takes_the_frame_for_the_mean_of_both():
    # The head starts at zero: D = y + s^2 / (s^2 + sigma^2) (u - y) with each one's own deviation s from the frame.
    u, y = torch.randn(2, 2, 16, 16), torch.rand(2, 1, 16, 16)
    clean, gains = tiny(random=False)(u, 0.5, y)
    for i, v in enumerate((0.04, 0.25)):
        torch.testing.assert_close(clean[:, i : i + 1], y + v / (v + 0.25) * (u[:, i : i + 1] - y))
    assert gains.shape == (2, 9, 16, 16) and not gains.any()


def test_target_makes_the_denoiser_exact_at_every_level():
    posterior = tiny()
    clean, y = torch.rand(3, 2, 16, 16), torch.rand(3, 1, 16, 16)
    sigma = torch.tensor([0.05, 0.5, 50.0]).reshape(-1, 1, 1, 1)
    u = clean + sigma * torch.randn(clean.shape)
    skip, out = posterior._scales(u, sigma)
    rebuilt = y + skip * (u - y) + out * posterior.target(clean, u, sigma, y)
    torch.testing.assert_close(rebuilt, clean, rtol=1e-3, atol=1e-3)


def test_quantiles_rise_and_stay_in_range_and_weights_are_a_distribution():
    _, gains = tiny()(torch.randn(2, 2, 16, 16), 0.3, torch.rand(2, 1, 16, 16))
    assert bool((gains.diff(dim=1) >= 0).all()) and -1 <= float(gains.min()) <= float(gains.max()) <= 0
    assert math.isclose(sum(WEIGHTS), 1.0) and min(WEIGHTS) > 0 and len(WEIGHTS) == len(LEVELS)


def test_a_dark_frame_is_raised_until_its_brightest_fiftieth_is_exposed_and_black_stays_black():
    y = torch.rand(3, 1, 20, 50) * torch.tensor([0.6, 0.2, 1.0]).reshape(-1, 1, 1, 1)
    y[:, :, :5] = 0
    lift = lift_of(y, 0.7)
    out = raised(y, lift)
    bright = out.flatten(1).sort().values[:, -20]  # of 1,000 pixels
    assert float(bright[0]) == pytest.approx(0.7) and float(lift[1]) == 0.25 and float(lift[2]) == 0
    assert torch.equal(out[2], y[2]) and not out[:, :, :5].any() and float(out.max()) <= 1
    torch.testing.assert_close(out[:2, :, 5:], y[:2, :, 5:] + lift[:2])
    assert not lift_of(y, 0.0).any()  # a card without an exposure


def test_pinball_is_least_at_the_quantiles():
    values = torch.linspace(0, 1, 2001).reshape(1, 1, -1, 1)
    best = torch.tensor(LEVELS).reshape(1, -1, 1, 1)
    at_best = pinball(best.expand(1, -1, 2001, 1), values)
    for off in (-0.05, 0.05):
        assert pinball((best + off).expand(1, -1, 2001, 1), values) > at_best + 1e-4


def test_saved_posterior_comes_back_and_other_files_are_refused(tmp_path):
    posterior, path = tiny(), tmp_path / "p.safetensors"
    posterior.save(path)
    back = LearnedPosterior.load(path)
    u, y = torch.randn(1, 2, 16, 16), torch.rand(1, 1, 16, 16)
    torch.testing.assert_close(back(u, 0.3, y)[0], posterior(u, 0.3, y)[0], rtol=5e-3, atol=5e-3)
    assert back.name == f"p sha256:{posterior.sha256}"
    with pytest.raises(InputError, match="a posterior; expected a haze prior"):
        Prior.load(path, "haze")
    with pytest.raises(InputError, match="a tissue prior; expected a posterior"):
        LearnedPosterior.load("tissue")
    with pytest.raises(InputError, match=r"no such posterior; expected a \.safetensors file or one of: posterior$"):
        LearnedPosterior.load(tmp_path / "none.safetensors")
    card = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(card | {"sha256": "0" * 64}))
    with pytest.raises(InputError, match="card and weights do not belong together"):
        LearnedPosterior.load(path)


def test_the_mean_of_trainings_from_one_tells_of_all_of_them():
    told = {"tissue_data": "t", "haze_data": "h", "fine_tuned_from": "p"}
    parts = [tiny(), tiny()]
    for i, part in enumerate(parts):
        of_it = {"command": f"train {i}", "steps": 3 + i, "frames": 10, "hours": 0.1, "torch": "2"}
        part.card |= {**told, "training_data": f"scenes {i}", "training": of_it}
        for p in part.network.parameters():
            torch.nn.init.normal_(p, std=0.1)
    before = [{k: v.clone() for k, v in part.network.state_dict().items()} for part in parts]
    mean = mean_of(parts, GaussianPairs())
    for name, value in mean.network.state_dict().items():
        torch.testing.assert_close(value, (before[0][name] + before[1][name]) / 2)
        for part, was in zip(parts, before, strict=True):
            assert torch.equal(part.network.state_dict()[name], was[name])
    training = mean.card["training"]
    assert (training["command"], training["steps"], training["frames"]) == ("the mean of: train 0; train 1", 7, 20)
    assert (mean.card["training_data"], mean.card["tissue_data"]) == ("scenes 0; scenes 1", "t")
    assert set(mean.card["held_out"]) == {"0.1", "0.3", "1", "4", "100"} and "held_out" not in parts[0].card
    parts[1].card["fine_tuned_from"] = "another"
    for wrong in ([], parts[:1], parts):
        with pytest.raises(UsdehazeError, match="trained on from one"):
            mean_of(wrong, GaussianPairs())


MEAN_X, MEAN_N, STD_X, STD_N, NOISE = 0.5, 0.2, 0.15, 0.1, 0.05


class GaussianPairs(GaussianRows):
    """Rows of 8 equal pixels, ``y = x + n + noise``: everything that a posterior may tell is known."""

    def _frames(self, n, generator):
        z = torch.randn(n, 3, 8, 1, generator=generator).expand(n, 3, 8, 8)
        x, h = MEAN_X + STD_X * z[:, :1], MEAN_N + STD_N * z[:, 1:2]
        return torch.cat([x, h, x + h + NOISE * z[:, 2:]], dim=1)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("posterior")
    recipe = Recipe(
        "posterior", "FastUNet", {"channels": (16, 16)}, "posterior", grid=(8, 8), batch=32, steps=600, lr=5e-3
    )
    return train(recipe, GaussianPairs(), folder / "p.safetensors", folder / "run", every=1000)


def given(y):
    """Mean and deviation of x given y, in closed form."""
    total = STD_X**2 + STD_N**2 + NOISE**2
    return MEAN_X + STD_X**2 / total * (y - MEAN_X - MEAN_N), math.sqrt(STD_X**2 * (1 - STD_X**2 / total))


@pytest.mark.slow
def test_at_high_noise_it_tells_the_expected_tissue_given_the_frame_alone(learned):
    pairs = GaussianPairs().held_out
    y = pairs[:, 2:]
    noise = torch.randn(pairs[:, :2].shape, generator=torch.Generator().manual_seed(5))
    clean, _ = learned(pairs[:, :2] + 100 * noise, 100.0, y)
    mean, _ = given(y)
    assert float((clean[:, :1] - mean).square().mean().sqrt()) < 0.3 * STD_X
    assert float((y - mean).square().mean().sqrt()) > 1.0 * STD_X  # what doing nothing is off by


@pytest.mark.slow
def test_its_interval_holds_what_it_says(learned):
    errors = posterior_errors(learned, GaussianPairs().held_out, (0.1, 100.0))
    assert all(0.88 <= share <= 0.99 for share in errors["inside"])
    assert errors["tissue"][0] < 0.8 * errors["tissue"][1]  # at low noise it sees the tissue itself


@pytest.mark.slow
def test_samples_scatter_as_the_posterior_does(learned):
    y = GaussianPairs().held_out[:1, 2:].expand(64, -1, -1, -1)
    x = split_samples(learned, y)[:, :1].mean(-1)
    mean, std = given(y.mean(-1))
    assert float((x.mean(0) - mean[0]).square().mean().sqrt()) < 0.5 * std
    assert 0.5 * std < float(x.std(0).mean()) < 1.5 * std
