import math

import pytest
import torch
from torch import nn

from usdehaze.errors import InputError
from usdehaze.priors.ncsnv2 import InstanceNormPlus, NCSNv2, RefineBlock, ResidualBlock
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet

CARD = {"name": "t", "kind": "haze", "data_mean": 0.3, "data_std": 0.25, "grid": [16, 16]}
NETWORKS = {"NCSNv2": lambda: NCSNv2((8, 12)), "FastUNet": lambda: FastUNet(channels=(8, 16))}


def random_prior(network="NCSNv2", parametrisation="score", **card):
    torch.manual_seed(0)
    net = NETWORKS[network]()
    for p in net.parameters():
        nn.init.normal_(p, std=0.1)
    return Prior(net, {**CARD, "parametrisation": parametrisation, **card})


def test_it_has_the_papers_number_of_parameters():
    count = sum(p.numel() for p in NCSNv2().parameters())
    assert count == 4_481_225  # the paper's two have 8.9 M together
    assert abs(2 * count / 8.9e6 - 1) < 0.01


@pytest.mark.parametrize("shape", [(16, 16), (17, 23), (9, 32), (5, 5)])
def test_frames_of_any_size_come_back_in_their_size(shape):
    prior = random_prior()
    x = torch.rand(2, 1, *shape)
    assert prior(x, 0.4).shape == x.shape and torch.isfinite(prior(x, 0.4)).all()


def reach_of(module, size):
    """How many pixels away a pixel is heard, norms left out: they look at the whole frame."""
    for part in module.modules():
        for name, child in part.named_children():
            if isinstance(child, InstanceNormPlus):
                setattr(part, name, nn.Identity())
    for p in module.parameters():
        nn.init.normal_(p, std=0.2)
    channels = next(module.parameters()).shape[1]
    x = torch.full((1, channels, size, size), 0.1, requires_grad=True)
    module(x)[0, 0, size // 2, size // 2].backward()
    return int((x.grad[0].abs().sum((0, 1)).nonzero().flatten() - size // 2).abs().max())


@pytest.mark.parametrize("dilation", [1, 2, 4])
def test_a_dilated_block_reaches_twice_its_dilation(dilation):
    assert reach_of(ResidualBlock(3, 3, dilation, project=dilation > 1), 33) == 2 * dilation


def test_every_pixel_of_a_64_x_64_frame_hears_of_every_other():
    net = NCSNv2((8, 12))
    net.forward = lambda x, forward=net.forward: forward(x, torch.zeros(1))
    assert reach_of(net, 160) >= 64


def test_instance_norm_plus_is_its_formula():
    torch.manual_seed(1)
    norm, h = InstanceNormPlus(5), 2 + 3 * torch.randn(2, 5, 8, 6)
    for p in (norm.alpha, norm.gamma, norm.beta):
        nn.init.normal_(p)
    mean, deviation = h.mean((2, 3)), h.var((2, 3), unbiased=False).add(1e-5).sqrt()
    among = (mean - mean.mean(1, keepdim=True)) / mean.var(1, keepdim=True, unbiased=False).add(1e-5).sqrt()
    plain = (h - mean[..., None, None]) / deviation[..., None, None]
    expected = norm.gamma[:, None, None] * (plain + (norm.alpha * among)[..., None, None]) + norm.beta[:, None, None]
    torch.testing.assert_close(norm(h), expected)


def test_a_halving_shortcut_is_the_mean_of_convolved_pixels():
    torch.manual_seed(2)
    block, h = ResidualBlock(4, 6, halve=True, project=True), torch.randn(1, 4, 8, 8)
    nn.init.zeros_(block.conv2.weight)
    nn.init.zeros_(block.conv2.bias)
    torch.testing.assert_close(block(h), nn.functional.avg_pool2d(block.shortcut(h), 2))


def test_fusion_adds_the_stages_at_the_finest_resolution():
    block = RefineBlock([3, 2], 2)
    for p in block.parameters():
        nn.init.zeros_(p)
    for i, conv in enumerate(block.fuse):
        nn.init.constant_(conv.bias, 1.0 + i)  # every stage becomes its own constant
    out = block(torch.randn(1, 3, 4, 4), torch.randn(1, 2, 8, 8))
    torch.testing.assert_close(out, torch.full((1, 2, 8, 8), 3.0))


def test_the_network_is_unconditional_and_its_prior_divides_by_sigma():
    prior = random_prior()
    x = torch.randn(3, 1, 16, 16)
    raw = prior.network(2 * x - 1, torch.zeros(3))
    for sigma in (0.01, 0.7, 9.0):
        torch.testing.assert_close(prior.score(x, sigma), raw / sigma)
        torch.testing.assert_close(prior(x, sigma), x + sigma * raw, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("parametrisation", ["score", "denoiser"])
def test_score_and_denoiser_are_two_views_of_one_prior(network, parametrisation):
    prior = random_prior(network, parametrisation).double()
    x, sigma = torch.randn(3, 1, 16, 16, dtype=torch.float64), torch.tensor([0.2, 1.0, 6.0])
    level = sigma.reshape(-1, 1, 1, 1)
    prior.network.forward = lambda seen, _, net=prior.network: type(net).forward(net, seen, torch.zeros(3).double())
    torch.testing.assert_close(prior(x, sigma), x + level**2 * prior.score(x, sigma), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("parametrisation", ["score", "denoiser"])
def test_network_target_makes_the_denoiser_exact(network, parametrisation):
    prior = random_prior(network, parametrisation)
    x0, sigma = torch.rand(3, 1, 16, 16), torch.tensor([0.05, 0.5, 5.0]).reshape(-1, 1, 1, 1)
    z = torch.randn(x0.shape)
    target = prior.network_target(x0, x0 + sigma * z, sigma)
    prior.network.forward = lambda *_: target
    torch.testing.assert_close(prior(x0 + sigma * z, sigma.flatten()), x0, rtol=1e-4, atol=1e-4)
    if parametrisation == "score":
        torch.testing.assert_close(target, -z, rtol=1e-3, atol=1e-3)


def test_every_parameter_gets_a_gradient_and_it_is_the_slope():
    prior = random_prior().double()
    x = torch.rand(2, 1, 6, 5, dtype=torch.float64)

    def loss():
        return prior.network(x, torch.zeros(2)).square().mean()

    loss().backward()
    for name, p in prior.network.named_parameters():
        assert p.grad.abs().max() > 0, name
        at = int(p.grad.abs().argmax())
        with torch.no_grad():
            value = float(p.view(-1)[at])
            p.view(-1)[at] = value + 1e-6
            above = float(loss())
            p.view(-1)[at] = value - 1e-6
            below = float(loss())
            p.view(-1)[at] = value
        assert math.isclose((above - below) / 2e-6, float(p.grad.view(-1)[at]), rel_tol=1e-3), name


def test_saved_score_prior_comes_back_as_one(tmp_path):
    prior = random_prior()
    prior.save(tmp_path / "p.safetensors")
    back = Prior.load(tmp_path / "p.safetensors", "haze")
    x = torch.rand(1, 1, 16, 16)
    assert back.parametrisation == "score" and back.network.config == {"channels": [8, 12]}
    torch.testing.assert_close(back(x, 0.3), prior(x, 0.3), rtol=1e-2, atol=1e-2)  # half precision on disk


def test_a_card_without_parametrisation_is_a_denoisers():
    assert Prior(FastUNet(channels=(8, 16)), dict(CARD)).parametrisation == "denoiser"


def test_a_card_with_another_parametrisation_is_refused(tmp_path):
    prior = random_prior()
    prior.card["parametrisation"] = "velocity"
    prior.save(tmp_path / "p.safetensors")
    with pytest.raises(InputError, match="not a usable prior"):
        Prior.load(tmp_path / "p.safetensors", "haze")
