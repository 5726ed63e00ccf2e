"""``usdehaze train --images``: priors from plain pictures and arrays."""

import json
import zipfile

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from usdehaze.cli import main
from usdehaze.diffusion.learned import Learned
from usdehaze.errors import InputError
from usdehaze.priors.ncsnv2 import NCSNv2
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.training.images import BlendedImages, StoredImages, read_images

FEW = ("--grid", "16x16", "--steps", "2", "--batch", "2", "--device", "cpu")


def picture(seed=0, shape=(16, 16, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_folders_archives_and_arrays_hold_the_same_images(tmp_path):
    pixels = np.stack([picture(i) for i in range(3)])
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for i, image in enumerate(pixels):
            path = tmp_path / "folder" / f"{i}.png"
            Image.fromarray(image).save(path)
            archive.write(path, f"inside/{i}.png")
    np.savez(tmp_path / "8-bit.npz", images=pixels)
    np.save(tmp_path / "floats.npy", pixels / 255)
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 255).half()
    for name in ("folder", "all.zip", "8-bit.npz", "floats.npy"):
        torch.testing.assert_close(read_images([tmp_path / name], (16, 16), colour=True), expected, rtol=0, atol=5e-4)
    grey = read_images([tmp_path / "folder"], (16, 16))
    assert grey.shape == (3, 1, 16, 16)
    luma = (pixels * [0.299, 0.587, 0.114]).sum(-1) / 255
    torch.testing.assert_close(grey[:, 0].double(), torch.from_numpy(luma), rtol=0, atol=0.005)


def test_a_picture_named_twice_or_copied_is_not_held_out_and_trained_on(tmp_path):
    for name, seed in (("a.png", 0), ("copy.png", 0), ("b.png", 1), ("c.png", 2)):
        Image.fromarray(picture(seed)).save(tmp_path / name)
    words = ["train", "tissue", str(tmp_path / "a.png"), "--images", "grey", *FEW]
    done = CliRunner().invoke(main, [*words, str(tmp_path), "-o", str(tmp_path.parent / "p.safetensors")])
    assert done.exit_code == 0, done.output
    assert "images of the user's own: 2, 1 more held out" in done.output
    one = CliRunner().invoke(main, [*words, str(tmp_path / "copy.png"), "-o", str(tmp_path.parent / "q.safetensors")])
    assert one.exit_code == 1 and "a.png: 2 copies of one image; expected at least 2 images" in one.output


def test_other_shapes_are_cut_to_their_middle_and_resized(tmp_path):
    wide = np.zeros((2, 8, 24), np.uint8)
    wide[:, :, 8:16] = 200  # the middle square
    np.save(tmp_path / "wide.npy", wide)
    found = read_images([tmp_path / "wide.npy"], (16, 16))
    assert found.shape == (2, 1, 16, 16)
    torch.testing.assert_close(found[:, :, :, 2:14].float(), torch.full((2, 1, 16, 12), 200 / 255), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (lambda p: np.save(p, np.zeros((2, 4, 4), np.int16)), "int16 values from 0 to 0; expected 8-bit"),
        (lambda p: np.save(p, np.full((2, 4, 4), 3.0)), "float64 values from 3 to 3; expected 8-bit"),
        (lambda p: np.save(p, np.zeros((4, 4), np.uint8)), r"an array of shape \(4, 4\); expected \(N, H, W\)"),
        (lambda p: p.write_bytes(b"nothing"), "cannot be read"),
        (lambda p: np.save(p, np.zeros((1, 16, 16), np.uint8)), "1 image; expected at least 2"),
    ],
)
def test_what_is_no_images_gives_one_line(tmp_path, write, line):
    path = tmp_path / "a.npy"
    write(path)
    with pytest.raises(InputError, match=line):
        read_images([path], (16, 16))


def test_pictures_are_seen_as_viewers_show_them(tmp_path):
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    exif = Image.Exif()
    exif[0x112] = 6  # to be turned by 90 degrees
    Image.fromarray(pixels).save(tmp_path / "lying.png", exif=exif)
    hidden = np.stack([pixels, pixels, pixels, np.where(np.arange(16) < 8, 255, 0) + np.zeros_like(pixels)], -1)
    Image.fromarray(hidden.astype(np.uint8)).save(tmp_path / "opaque-on-the-left.png")
    turned, seen = read_images([tmp_path / "lying.png", tmp_path / "opaque-on-the-left.png"], (16, 16))
    torch.testing.assert_close(
        turned[0].float(), torch.from_numpy(np.rot90(pixels, -1) / np.float32(255)), rtol=0, atol=1e-3
    )
    assert seen[0, :, 8:].abs().max() == 0 and seen[0, -1, 0] > 0.9


@pytest.mark.parametrize(("name", "dtype"), [("a.png", np.uint16), ("a.tif", np.uint16), ("a.tif", np.float32)])
def test_deep_pictures_are_refused_for_they_would_turn_white_or_black(tmp_path, name, dtype):
    Image.fromarray(np.linspace(0, 1000, 256).reshape(16, 16).astype(dtype)).save(tmp_path / name)
    with pytest.raises(InputError, match="pixels of more than 8 bits; expected 8-bit images"):
        read_images([tmp_path / name], (16, 16))


def test_folders_without_images_and_unnamed_arrays_give_one_line(tmp_path):
    with pytest.raises(InputError, match="no images in this folder"):
        read_images([tmp_path], (16, 16))
    np.savez(tmp_path / "two.npz", a=picture(), b=picture())
    with pytest.raises(InputError, match="arrays a, b; expected one array, or the name of one as --dataset"):
        read_images([tmp_path / "two.npz"], (16, 16))
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"bad.png cannot be read as an image"):
        read_images([tmp_path / "bad.png"], (16, 16))


def test_digits_are_never_mirrored_unless_they_may_be():
    images = torch.zeros(4, 1, 8, 8)
    images[:, :, :, 0] = 1
    draw = {m: StoredImages(images, mirror=m).draw(32, 0, 0, 0, torch.device("cpu")) for m in (True, False)}
    assert draw[False][..., 0].min() == 1 and 0 < draw[True][..., 0].mean() < 1


def test_a_prior_in_colour_from_the_command_line(tmp_path):
    np.savez(tmp_path / "faces.npz", images=np.stack([picture(i) for i in range(6)]))
    out = tmp_path / "signal.safetensors"
    words = ["train", "tissue", tmp_path / "faces.npz", "--images", "colour", "--no-mirror", "-o", out, *FEW]
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == 0, done.output
    prior = Prior.load(out, "tissue")
    assert prior.shape == (3, 16, 16) and prior(torch.zeros(2, 3, 16, 16), 0.5).shape == (2, 3, 16, 16)
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["training_data"] == "images of the user's own: 5, 1 more held out"
    assert "--images colour --no-mirror" in card["training"]["command"]
    sheet = Image.open(out.with_suffix(".png"))
    shown = np.asarray(sheet)[20 + 128 + 2 + 20 :, :128][::8, ::8]
    held = StoredImages(read_images([tmp_path / "faces.npz"], (16, 16), colour=True), mirror=False)
    assert sheet.mode == "RGB"
    np.testing.assert_array_equal(shown, np.rint(255 * held.sample[0].permute(1, 2, 0).numpy()))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("posterior", "--tissue", "a.npy", "--haze", "b.npy", "--images", "grey"), "takes --blend SHARE"),
        (("tissue", "a.npy", "--images", "grey", "--blend", "0.5"), "nothing else does"),
        (("tissue", "--images", "grey"), "needs DATA"),
        (("tissue", "--no-mirror"), "--no-mirror is for --images"),
    ],
)
def test_options_that_do_not_belong_are_refused(tmp_path, words, line):
    done = CliRunner().invoke(main, ["train", *words, "-o", str(tmp_path / "p.safetensors")])
    assert done.exit_code == 2 and line in done.output


def test_the_papers_network_takes_colour():
    network = NCSNv2((8, 8), inputs=3, outputs=3)
    assert network(torch.zeros(1, 3, 12, 12), torch.zeros(1)).shape == (1, 3, 12, 12)
    assert NCSNv2(**network.config).config == network.config


def test_blends_are_of_signal_and_noise_drawn_apart():
    x, n = torch.rand(12, 3, 8, 8), torch.rand(7, 3, 8, 8)
    source = BlendedImages.of(x, n, 0.25, (False, False))
    drawn = source.draw(16, 0, 0, 0, torch.device("cpu"))
    signal, noise, both = drawn.chunk(3, dim=1)
    torch.testing.assert_close(both, 0.75 * signal + 0.25 * noise)
    assert torch.cdist(signal.flatten(1), x.half().float().flatten(1)).min(1).values.max() == 0
    assert torch.cdist(noise.flatten(1), n.half().float().flatten(1)).min(1).values.max() == 0
    assert source.held_out.shape == (1, 9, 8, 8)


def test_a_posterior_of_blended_colour_images(tmp_path):
    for first, name in enumerate(("signal", "noise")):
        np.save(tmp_path / f"{name}.npy", np.stack([picture(4 * first + i) for i in range(4)]))
    out = tmp_path / "both.safetensors"
    data = ["--tissue", tmp_path / "signal.npy", "--haze", tmp_path / "noise.npy"]
    done = CliRunner().invoke(
        main, list(map(str, ["train", "posterior", *data, "--images", "colour", "--blend", "0.5", "-o", out, *FEW]))
    )
    assert done.exit_code == 0, done.output
    posterior = LearnedPosterior.load(out)
    assert posterior.exposure == 0  # pictures are seen as they are
    y = torch.rand(2, 3, 16, 16)
    u = torch.randn(2, 6, 16, 16)
    means, gains = posterior(u, 0.5, y)
    assert means.shape == (2, 6, 16, 16) and gains.shape[1] == 0  # no quantiles in colour
    joint = Learned(y, posterior)
    torch.testing.assert_close(joint(u.flatten(1), 0.5), means.flatten(1))
    signal, noise = joint.parts(means.flatten(1))
    assert torch.equal(torch.cat([signal, noise], 1), means)
    _, spread_n = posterior.spreads
    a = posterior.target(means, u, torch.full((2, 1, 1, 1), 0.5), y)
    skip = spread_n**2 / (0.25 + spread_n**2)
    expected = ((means - torch.cat([y, y], 1)) - skip * (u - torch.cat([y, y], 1)))[:, 3:] / (
        0.5 * spread_n / (0.25 + spread_n**2) ** 0.5
    )
    torch.testing.assert_close(a[:, 3:], expected)
