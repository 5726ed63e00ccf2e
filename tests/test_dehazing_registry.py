"""Things of one's own beside those that ship: each a class or a function, and one line of the registry."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from _tiny_priors import write_tiny_priors

from usdehaze import Dehazer
from usdehaze.dehazing.registry import (
    OBSERVATIONS,
    RULES,
    SAMPLERS,
    ObservationEntry,
    RuleEntry,
    SamplerEntry,
)
from usdehaze.dehazing.settings import Settings
from usdehaze.diffusion.echo import LogPower
from usdehaze.diffusion.guidance import PiGDM, Proximal
from usdehaze.diffusion.observation import GaussianNoise, Observation
from usdehaze.errors import UsdehazeError
from usdehaze.simulate import simulate_cine


@dataclass(frozen=True)
class HalfWay:
    """A rule: half of what the frame asks for."""

    scale: tuple[float, float] = (0.5, 0.5)

    def __call__(self, problem, u, sigma, step=None):
        return Proximal(self.scale)(problem, u, sigma, step)


def plain_euler(guided, u, sigmas, noise=None, callback=None):
    """A sampler on noise levels."""
    for sigma, below in pairwise(sigmas):
        estimate = guided(u, sigma, 1 - below / sigma)
        u = estimate + below / sigma * (u - estimate)
    return u


def plain_flow(guided, u, sde, times, noise=None, callback=None):
    """A sampler by time; the paper's diffusion has no drift."""
    for t, below in pairwise(times):
        beta, step = sde.beta(t), 0.5 * sde.g(t) ** 2 * (t - below) / sde.beta(t) ** 2
        estimate = guided(u, beta, step if below > 0 else 1.0)
        u = u + step * (estimate - u) if below > 0 else estimate
    return u


class SoftMaximum(Observation):
    """The observation model of docs/method.md."""

    def __init__(self, sharpness=20.0, std=0.02):
        self.k, self.std = sharpness, std

    def predict(self, x, n):
        return torch.logaddexp(self.k * x, self.k * n) / self.k

    def derivatives(self, x, n):
        share = torch.sigmoid(self.k * (x - n))
        return share, 1 - share

    def variance(self, x, n):
        return torch.full_like(x, self.std**2)


@pytest.fixture(scope="module")
def cine():
    return simulate_cine(1, seed=3, n_depth=32, n_angle=32).cine


@pytest.fixture(scope="module")
def priors(tmp_path_factory):
    return write_tiny_priors(tmp_path_factory.mktemp("priors")) | {"samples": 1}


@pytest.fixture(scope="module")
def dehaze(cine, priors):
    return lambda **options: Dehazer.from_pretrained(**priors | options).dehaze(cine)


def same(a, b):
    return np.array_equal(a.tissue, b.tissue) and np.array_equal(a.haze, b.haze)


def test_a_rule_of_ones_own_by_name_as_entry_and_as_object(dehaze, monkeypatch):
    monkeypatch.setitem(RULES, "half-way", RuleEntry(HalfWay))
    expected = dehaze(guidance="proximal", scale=(0.5, 0.5))
    by_name = dehaze(guidance="half-way")
    assert same(by_name, expected) and by_name.settings["guidance"] == "half-way"
    assert same(dehaze(guidance="half-way", scale=(0.2, 0.3)), dehaze(guidance="proximal", scale=(0.2, 0.3)))
    for guidance, name in ((RuleEntry(HalfWay), "HalfWay"), (HalfWay(), "HalfWay(scale=(0.5, 0.5))")):
        result = dehaze(guidance=guidance)
        assert same(result, expected) and result.settings["guidance"] == name
    assert not same(expected, dehaze(guidance="proximal"))


def test_a_sampler_of_ones_own_by_name_as_entry_and_as_function(dehaze, monkeypatch):
    monkeypatch.setitem(SAMPLERS, "plain", SamplerEntry(plain_euler))
    expected = dehaze(sampler="euler")
    for sampler, name in (("plain", "plain"), (SamplerEntry(plain_euler), "plain_euler"), (plain_euler, "plain_euler")):
        result = dehaze(sampler=sampler)
        assert same(result, expected) and result.settings["sampler"] == name


def test_a_sampler_by_time_says_so_in_its_entry(dehaze):
    got, expected = dehaze(sampler=SamplerEntry(plain_flow, by_time=True)), dehaze(sampler="probability-flow")
    np.testing.assert_allclose(got.tissue, expected.tissue, atol=1e-3)


def test_an_observation_model_of_ones_own_by_name_as_entry_and_as_object(dehaze, monkeypatch):
    monkeypatch.setitem(OBSERVATIONS, "soft-maximum", ObservationEntry(SoftMaximum))
    expected = dehaze(observation="soft-maximum")
    assert expected.settings["observation"] == "soft-maximum" and not same(expected, dehaze())
    for observation in (ObservationEntry(SoftMaximum), SoftMaximum()):
        result = dehaze(observation=observation)
        assert same(result, expected) and result.settings["observation"] == "SoftMaximum"


def test_an_observation_model_in_decibels_is_told_the_cines_dynamic_range(cine, priors):
    wide = replace(cine, frames=cine.frames * np.float32(1.5), dynamic_range_db=90.0)
    made = Dehazer.from_pretrained(**priors, observation=ObservationEntry(LogPower, in_db=True)).dehaze(wide)
    given = Dehazer.from_pretrained(**priors, observation=LogPower(90.0)).dehaze(wide)
    assert same(made, given) and same(given, Dehazer.from_pretrained(**priors).dehaze(wide))
    assert not same(given, Dehazer.from_pretrained(**priors, observation=LogPower(60.0)).dehaze(wide))
    assert given.settings["observation"] == "LogPower(dynamic_range_db=90.0, std_db=1.0, interference=0.3)"


def test_without_a_haze_prior_a_model_of_ones_own_replaces_the_gaussian_noise(dehaze):
    alone = dehaze(use_haze_prior=False)
    assert same(alone, dehaze(use_haze_prior=False, observation=GaussianNoise()))
    assert not same(alone, dehaze(use_haze_prior=False, observation=GaussianNoise(0.5)))
    with pytest.raises(UsdehazeError, match="LogPower needs a haze prior"):
        dehaze(use_haze_prior=False, observation=LogPower(60.0))


def test_settings_of_ones_own_take_the_place_of_a_preset_and_every_field_can_be_overridden(dehaze, priors):
    own = Settings("mine", "pigdm", steps=3, sigma_max=0.7, sigma_min=0.05, from_guess=True, samples=2, strength=0.5)
    made = Dehazer.from_pretrained(own, **{k: v for k, v in priors.items() if "prior" in k or k == "device"})
    assert made.settings == own
    assert Dehazer.from_pretrained(own, **priors).settings == replace(own, steps=2, samples=1)
    fields = {"sigma_max": 0.9, "sigma_min": 0.02, "from_guess": False, "strength": 0.3, "seed": 8, "caution": 0.4}
    result = dehaze(**fields)
    assert fields.items() <= result.settings.items() and not same(result, dehaze(strength=0.3, seed=8, caution=0.4))


def test_things_that_do_not_go_together_are_refused():
    with pytest.raises(UsdehazeError, match="projection needs the additive observation model, found log-power"):
        Settings(guidance="projection")
    with pytest.raises(UsdehazeError, match="dps corrects once a step, and this sampler's steps have no fixed length"):
        Settings(guidance="dps", sampler="adaptive-flow")
    with pytest.raises(UsdehazeError, match=r"guidance PiGDM\(scale=\(1.0, 1.0\)\) has a scale of its own"):
        Settings(guidance=PiGDM(), scale=(1.0, 1.0))
