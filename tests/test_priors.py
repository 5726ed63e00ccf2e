import errno
import json
import os
import time
from pathlib import Path

import pytest
import torch

from usdehaze.errors import InputError
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet

resource = pytest.importorskip("resource")
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
    with pytest.raises(InputError, match=r"no such prior; expected a \.safetensors file or one of: haze, tissue$"):
        Prior.load(tmp_path / "none.safetensors", "tissue")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="card and weights do not belong together"):
        Prior.load(path, "tissue")
    path.with_suffix(".json").write_text("{")
    with pytest.raises(InputError, match="not a usable prior"):
        Prior.load(path, "tissue")
    path.with_suffix(".json").unlink()
    with pytest.raises(InputError, match=r"^p\.safetensors: its card, p\.json, is not there; expected both"):
        Prior.load(path, "tissue")


def test_a_disk_that_gets_full_leaves_the_prior_that_was_there(tmp_path, monkeypatch):
    path, write = tmp_path / "p.safetensors", Path.write_bytes
    tiny().save(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(self, data):
        write(self, data[:10])
        if ".json" in self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    other = tiny()
    torch.nn.init.ones_(next(other.network.parameters()))
    with pytest.raises(InputError, match=r"p\.safetensors: cannot be written \(No space left on device\)"):
        other.save(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "network",
    [
        {"kind": "FastUNet", "channels": [8, 16], "blocks": 4000},
        {"kind": "FastUNet", "channels": [8, 16], "blocks": [1, 4000]},
        {"kind": "FastUNet", "channels": [8, 16], "blocks": 10**30},
        {"kind": "FastUNet", "channels": [4096] * 30, "blocks": 1},
        {"kind": "FastUNet", "channels": [8] * 5000, "blocks": 1},
        {"kind": "FastUNet", "channels": [4096, 4096], "blocks": 60},
        {"kind": "FastUNet", "channels": [8, 16], "blocks": 1, "patch": 4096},
        {"kind": "FastUNet", "channels": [8, 16], "blocks": -1},
        {"kind": "FastUNet", "channels": [8, 16.5], "blocks": True},
        {"kind": "FastUNet", "channels": 10**9},
        {"kind": "FastUNet", "channels": [[[]]]},
        {"kind": "FastUNet", "layers": 3},
        {"kind": "NCSNv2", "channels": [4096, 4096]},
        {"kind": []},
        {"kind": "Linear", "in_features": 10**6, "out_features": 10**6},
        [],
        "FastUNet",
    ],
)
def test_a_network_that_is_not_that_of_the_weights_is_not_built(tmp_path, network, monkeypatch):
    path = tmp_path / "p.safetensors"
    tiny().save(path)
    card = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(card | {"network": network}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with pytest.raises(InputError, match="not a usable prior"):
        Prior.load(path, "tissue")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", ["[" * 10**5, "9" * 10**6, "null", "[]", '"a"', " " * 2 * 10**6, "{" * 1000])
def test_a_card_of_anything_else_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "p.safetensors"
    tiny().save(path)
    path.with_suffix(".json").write_text(text)
    with pytest.raises(InputError, match=r"not a usable prior|is 2 MB of text; expected at most 1\.05 MB"):
        Prior.load(path, "tissue")


def changed_card(path, **changes):
    """Another card beside the same weights."""
    side = path.with_suffix(".json")
    side.write_text(json.dumps(json.loads(side.read_text()) | changes))


def test_the_identity_covers_the_card_as_well_as_the_weights(tmp_path):
    path = tmp_path / "p.safetensors"
    prior = tiny()
    prior.card |= {"training": {"steps": 3, "hours": 1.5, "date": "2026-01-01"}, "training_data": "none"}
    prior.save(path)
    written = path.with_suffix(".json").read_text()
    first = Prior.load(path, "tissue")
    assert first.sha256 == prior.sha256 and len(first.sha256) == 64 and first.weights_sha256 in written
    names = {first.name}
    for change in ({"data_std": 0.26}, {"data_mean": 0.31}, {"grid": [16, 32]}, {"training_data": "all"}, {"extra": 1}):
        path.with_suffix(".json").write_text(written)
        changed_card(path, **change)
        names.add(Prior.load(path, "tissue").name)
    assert len(names) == 6
    path.with_suffix(".json").write_text(json.dumps(json.loads(written)))  # laid out anew
    assert Prior.load(path, "tissue").name == first.name
    for later in ({"bench": {"psnr": 3}}, {"training": {"steps": 3, "hours": 9.0, "date": "2027-01-01"}}):
        changed_card(path, **later)  # neither decides anything
        assert Prior.load(path, "tissue").name == first.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data_std": 0}, "data_std 0; expected a number from 1e-06 to 1"),
        ({"data_std": 40.0}, "data_std 40"),
        ({"data_std": float("nan")}, "data_std nan"),
        ({"data_mean": float("inf")}, "data_mean inf"),
        ({"data_mean": "0.3"}, "data_mean '0.3'"),
        ({"data_mean": True}, "data_mean True"),
        ({"data_mean": 10**400}, "data_mean 1000"),
        ({"sigma_min": -1}, "sigma_min -1"),
        ({"sigma_min": 5, "sigma_max": 1}, "sigma_min above sigma_max"),
        ({"grid": [16]}, r"grid \[16\]; expected depth and angle"),
        ({"grid": [16, 10**9]}, "grid"),
        ({"grid": "16x16"}, "grid"),
        ({"name": ""}, "name ''"),
        ({"name": "a\x1b[2J"}, "name"),
        ({"name": "x" * 5000}, "expected a line of at most 200 characters"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_values_of_a_card_that_cannot_be_are_refused_by_name(tmp_path, change, said):
    path = tmp_path / "p.safetensors"
    tiny().save(path)
    changed_card(path, **change)
    with pytest.raises(InputError, match=said) as caught:
        Prior.load(path, "tissue")
    assert str(caught.value).startswith("p.json: ") and len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ["data_mean", "data_std", "grid", "name"])
def test_a_card_that_misses_a_value_says_which(tmp_path, key):
    path = tmp_path / "p.safetensors"
    tiny().save(path)
    card = json.loads(path.with_suffix(".json").read_text())
    del card[key]
    path.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(InputError, match=f"a card without {key}"):
        Prior.load(path, "tissue")


def test_the_error_of_an_estimate_is_that_of_gaussian_data_of_the_priors_own_variance():
    # sigma^2 v / (sigma^2 + v) for v = 0.25^2; never the paper's minus, nor its v = 1.
    prior = Prior(FastUNet(channels=(8, 16)), dict(CARD))
    assert prior.spread(0.5) == pytest.approx(0.25 * 0.0625 / 0.3125)
    assert prior.spread(0.01) == pytest.approx(1e-4 * 0.0625 / 0.0626)
    assert prior.spread(1e6) == pytest.approx(0.0625)
