import json

import pytest
import torch

from usdehaze.errors import InputError
from usdehaze.priors import train as training
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import training_frames

CARD = {"name": "t", "kind": "tissue", "data_mean": 0.3, "data_std": 0.25, "grid": [16, 16]}


def tiny() -> Prior:
    torch.manual_seed(0)
    net = FastUNet(channels=(8, 16))
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return Prior(net, dict(CARD))


def test_an_untrained_network_denoises_like_a_gaussian():
    # The head starts at zero, so D = mean + v / (v + sigma^2) (x - mean), the best linear guess.
    prior = Prior(FastUNet(channels=(8, 16)), dict(CARD))
    x = torch.randn(2, 1, 16, 16)
    expected = 0.3 + 0.0625 / (0.0625 + 0.5**2) * (x - 0.3)
    torch.testing.assert_close(prior(x, 0.5), expected)


def test_network_target_makes_the_denoiser_exact():
    prior = tiny()
    x0, sigma = torch.rand(3, 1, 16, 16), torch.tensor([0.05, 0.5, 5.0]).reshape(-1, 1, 1, 1)
    x = x0 + sigma * torch.randn(x0.shape)
    skip, out = prior._scales(sigma)
    rebuilt = 0.3 + skip * (x - 0.3) + out * prior.network_target(x0, x, sigma)
    torch.testing.assert_close(rebuilt, x0, rtol=1e-4, atol=1e-4)


def test_each_frame_has_its_own_noise_level():
    prior = tiny()
    x = torch.randn(2, 1, 16, 16)
    both = prior(x, torch.tensor([0.1, 2.0]))
    torch.testing.assert_close(both[:1], prior(x[:1], 0.1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(both[1:], prior(x[1:], 2.0), rtol=1e-4, atol=1e-5)


def test_saved_prior_comes_back_and_knows_its_hash(tmp_path):
    prior = tiny()
    prior.save(tmp_path / "p.safetensors")
    back = Prior.load(tmp_path / "p.safetensors", "tissue")
    x = torch.rand(1, 1, 16, 16)
    torch.testing.assert_close(back(x, 0.3), prior(x, 0.3), rtol=5e-3, atol=5e-3)  # half precision on disk
    assert back.name == f"t sha256:{prior.sha256}" and back.card["grid"] == [16, 16]


def test_wrong_files_are_refused_in_one_line(tmp_path):
    path = tmp_path / "p.safetensors"
    tiny().save(path)
    with pytest.raises(InputError, match="a tissue prior; expected a haze prior"):
        Prior.load(path, "haze")
    with pytest.raises(InputError, match="no such prior"):
        Prior.load(tmp_path / "none.safetensors", "tissue")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a usable prior"):
        Prior.load(path, "tissue")
    path.with_suffix(".json").write_text("{")
    with pytest.raises(InputError, match="not a usable prior"):
        Prior.load(path, "tissue")


def test_pool_reuses_frames_and_renews_them():
    pool = training.FramePool("haze", 8, 2, torch.Generator().manual_seed(0), (32, 32))
    before = pool.frames.clone()
    pool.draw(4)
    changed = (pool.frames != before).flatten(1).any(1)
    assert changed[2:].sum() == 0 and pool.next == 2  # only the two oldest are new


def test_training_learns_resumes_and_leaves_a_card(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FastUNet", lambda: FastUNet(channels=(8, 16)))
    said: list[str] = []
    common = {"batch": 4, "pool": 8, "refresh": 1, "shape": (32, 32), "cooldown": 10, "log": said.append}
    training.train("haze", tmp_path, steps=30, every=15, **common)
    path = training.train("haze", tmp_path, steps=60, every=15, **common)
    assert "going on from step 30" in said
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["training"]["steps"] == 60 and card["training"]["frames"] == 240 and "not_for" in card
    prior = Prior.load(path, "haze")
    frames = training_frames("haze", 8, torch.Generator().manual_seed(2_000_000_000), 32, 32)
    linear = Prior(FastUNet(channels=(8, 16)), prior.card)  # the best guess without learning
    learned = training.held_out_loss(prior, frames, (0.3,))[0]
    assert learned < 0.95 * training.held_out_loss(linear, frames, (0.3,))[0]
