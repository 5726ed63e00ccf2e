"""The dehazer with the posterior and the priors that ship, on simulated cines."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from _gaussians import sde_sigmas
from _tiny_priors import write_tiny_priors

from usdehaze.cine import Cartesian, Cine, Sector, Source
from usdehaze.dehazing.dehazer import Dehazer
from usdehaze.dehazing.device import by_sixteen, run_jobs
from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Settings
from usdehaze.diffusion.sde import PaperVE
from usdehaze.errors import UsdehazeError
from usdehaze.geometry import sector_mask
from usdehaze.priors.ncsnv2 import NCSNv2
from usdehaze.priors.posterior import LearnedPosterior
from usdehaze.priors.prior import Prior
from usdehaze.priors.unet import FastUNet
from usdehaze.simulate import simulate_cine


@pytest.fixture(scope="module")
def cine() -> Cine:
    return simulate_cine(3, seed=1_100_000_000).cine


def dehazer(**options) -> Dehazer:
    return Dehazer.from_pretrained(**{"steps": 4, **options})


@pytest.fixture(scope="module")
def whole(cine):
    return dehazer().dehaze(cine)


def test_gain_turned_down_changes_nothing_of_what_is_taken_off(cine):
    """A dark frame is shown to the posterior as bright as those that it learned from; results are as bright as it."""
    clear = np.where(cine.frames > -45, cine.frames - 6, np.float32(-60))
    dark = np.where(clear > -60, clear - 6, clear)
    one, other = (dehazer(steps=1).dehaze(replace(cine, frames=frames)) for frames in (clear, dark))
    seen = (clear > -60) & (one.tissue > -53)
    removed, too = clear - one.tissue, dark - other.tissue
    assert removed[seen].mean() > 5 and np.abs(too - removed)[seen].mean() < 0.6  # edges of black are smeared
    level = one.haze > -50
    assert level.mean() > 0.1 and abs(np.median((one.haze - other.haze)[level]) - 6) < 0.3


def part(cine: Cine, start: int, stop: int) -> Cine:
    return replace(
        cine,
        frames=cine.frames[start:stop],
        frame_times_s=None,
        source=replace(cine.source, first_frame=cine.source.first_frame + start),
    )


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batch_size_never_changes_a_bit(cine, whole, batch_size):
    again = dehazer(batch_size=batch_size).dehaze(cine)
    assert np.array_equal(again.tissue, whole.tissue) and np.array_equal(again.haze, whole.haze)


def test_batch_size_never_changes_a_bit_with_a_rule_either(cine):
    by_rule, *others = (dehazer(guidance="proximal", batch_size=size).dehaze(cine) for size in ("auto", 1, 3))
    for again in others:
        assert np.array_equal(again.tissue, by_rule.tissue) and np.array_equal(again.haze, by_rule.haze)


@pytest.mark.parametrize(("options", "lengths"), [({"samples": 6}, [4, 2]), ({"samples": 4}, [4]), ({}, [2])])
def test_jobs_that_share_a_pass_on_a_gpu_have_equally_many_samples(cine, monkeypatch, options, lengths):
    """There, last bits depend on the rows of a pass, and so must these not on the frames that come along."""
    found = []

    def run_jobs(devices, run, jobs):
        if jobs and isinstance(jobs[0][-1], range):
            (length,) = {len(samples) for _, samples in jobs}
            found.append(length)
        return [each for job in jobs for each in run([job], devices[0])]

    monkeypatch.setattr("usdehaze.dehazing.dehazer.run_jobs", run_jobs)
    dehazer(steps=1, **options, device="cpu").dehaze(part(cine, 0, 2))
    assert found == lengths


@pytest.mark.parametrize("options", [{"samples": 6}, {"guidance": "proximal"}])
def test_several_gpus_take_turns_and_the_result_is_that_of_one(cine, monkeypatch, options):
    """CPUs stand for GPUs: passes of several frames, by networks that each device has for itself."""
    devices, used = [torch.device("cpu"), torch.device("cpu", 0)], set()

    def run_jobs(devices, run, jobs):
        def noted(some, device):
            if isinstance(jobs[0][-1], range):
                used.add((device, both.chains[device]))
            return run(some, device)

        return by_sixteen(devices, noted, jobs)

    monkeypatch.setattr("usdehaze.dehazing.device.CUDA_CHUNK", 2)
    monkeypatch.setattr("usdehaze.dehazing.dehazer.run_jobs", run_jobs)
    both = dehazer(**options)
    alone = both.dehaze(cine)
    monkeypatch.setattr("usdehaze.dehazing.dehazer.find_devices", lambda names: devices)
    both = dehazer(**options, device="cuda:0,cuda:1")
    shared = both.dehaze(cine)
    assert {device for device, _ in used} == set(devices) and len({chain for _, chain in used}) == 3
    assert both.with_settings(both.settings).devices == devices
    np.testing.assert_allclose(shared.tissue, alone.tissue, atol=0.01)  # a thread of a CPU may add up in another order
    np.testing.assert_allclose(shared.haze, alone.haze, atol=0.01)
    assert shared.settings["device"] == "cpu,cpu:0"


def test_number_of_cores_never_changes_a_bit(cine, whole):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 if threads != 3 else 2)
        assert np.array_equal(dehazer().dehaze(cine).tissue, whole.tissue)
        torch.set_num_threads(1)
        assert np.array_equal(dehazer().dehaze(cine).tissue, whole.tissue)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_threads_that_come_later_have_all_cores():
    threads, found = torch.get_num_threads(), []
    try:
        torch.set_num_threads(3 if threads != 3 else 2)
        there = torch.get_num_threads()

        def look(jobs, _):
            later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
            later.start()
            later.join()
            return [torch.get_num_threads() for _ in jobs]

        assert run_jobs([torch.device("cpu")], look, [0] * 8) == [1] * 8 and found == [there] * 8
    finally:
        torch.set_num_threads(threads)


def test_a_frame_is_the_same_whatever_frames_come_with_it(cine, whole):
    some = dehazer().dehaze(part(cine, 1, 3))
    assert np.array_equal(some.tissue, whole.tissue[1:]) and np.array_equal(some.haze, whole.haze[1:])


def test_a_still_heart_gives_still_tissue(cine):
    still = replace(cine, frames=np.repeat(cine.frames[:1], 3, axis=0), frame_times_s=None)
    result = dehazer().dehaze(still)
    assert np.array_equal(result.tissue[1], result.tissue[0]) and np.array_equal(result.haze[2], result.haze[0])


def test_another_seed_gives_another_sample(cine, whole):
    other = dehazer(seed=1).dehaze(part(cine, 0, 1))
    assert np.abs(other.tissue - whole.tissue[:1]).max() > 0.1


def test_haze_is_only_ever_removed(cine, whole):
    assert np.all(whole.tissue <= cine.frames) and whole.tissue.min() >= -cine.dynamic_range_db
    assert whole.haze.min() >= -cine.dynamic_range_db and whole.haze.max() <= 0
    assert (cine.frames - whole.tissue).mean() > 0.5  # and there is something to remove


def test_haze_and_deviation_come_in_steps_above_a_floor_that_is_none(cine):
    odd = replace(part(cine, 0, 1), dynamic_range_db=45.3, frames=np.maximum(cine.frames[:1], np.float32(-45.3)))
    result = dehazer(steps=1).dehaze(odd)
    floor = np.float32(-45.3)
    above = result.haze[result.haze != floor]
    assert (result.haze == floor).any() and above.size and above.min() > floor
    for values in (above, result.std):
        assert values.dtype == np.float32 and np.array_equal(values * 1024, np.rint(values * 1024)) and values.any()


def test_strength_scales_the_removal_in_db(cine, whole):
    first = part(cine, 0, 1)
    assert np.array_equal(dehazer(strength=0.0).dehaze(first).tissue, first.frames)
    half = dehazer(strength=0.5).dehaze(first).tissue
    floor = -cine.dynamic_range_db
    clear = (whole.tissue[:1] > floor) & (half > floor)
    expected = 0.5 * (whole.tissue[:1] + first.frames)
    np.testing.assert_allclose(half[clear], expected[clear], atol=1e-4)


def test_caution_is_the_quantile_of_the_gain_over_the_samples_of_a_rule(cine):
    y = torch.from_numpy(cine.frames[:2] / cine.dynamic_range_db + 1)
    seen = torch.ones(y.shape[1:])
    least, middle, most = (
        dehazer(guidance="proximal", samples=3, caution=caution).split(y, seen, 60.0) for caution in (1.0, 0.5, 0.0)
    )
    gains = torch.stack([least.gain, middle.gain, most.gain])  # of three samples they are the samples, sorted
    assert torch.equal(gains.sort(0, descending=True).values, gains) and float((gains[0] - gains[2]).max()) > 0.05
    torch.testing.assert_close(gains.std(0), least.deviation)
    # The first sample's stream is that of the single run, whatever comes after it.
    single = dehazer(guidance="proximal", samples=1).split(y, seen, 60.0)
    assert bool((single.gain == gains).any(0).all()) and not single.deviation.any() and single.ends is None
    assert not torch.equal(single.level, least.level)


def test_caution_leaves_more_haze_everywhere_and_the_interval_lies_around_it(cine):
    y = torch.from_numpy(cine.frames[:2] / cine.dynamic_range_db + 1)
    seen = torch.ones(y.shape[1:])
    bold, middle, cautious = (dehazer(caution=caution).split(y, seen, 60.0) for caution in (0.3, 0.5, 0.9))
    assert bool((bold.gain <= middle.gain).all()) and bool((middle.gain <= cautious.gain).all())
    assert float((cautious.gain - bold.gain).mean()) > 1 / 60
    low, high = middle.ends
    assert bool((low <= bold.gain).all()) and bool((cautious.gain <= high).all())
    assert torch.equal(low, cautious.ends[0]) and torch.equal(middle.deviation, bold.deviation)


def test_the_interval_comes_on_request_on_the_native_grid(cine, whole):
    first = part(cine, 0, 1)
    result = dehazer().dehaze(first, interval=True)
    assert whole.interval is None and result.interval.shape == (2, *first.frames.shape)
    low, high = result.interval
    assert np.all(low <= result.tissue + 1e-4) and np.all(result.tissue <= high + 1e-4) and np.all(high <= first.frames)
    assert dehazer(guidance="proximal").dehaze(first, interval=True).interval is None


def test_several_samples_report_their_deviation_and_what_they_cost(cine):
    first = part(cine, 0, 1)
    single, several = dehazer(samples=1).dehaze(first), dehazer(samples=5).dehaze(first)
    assert single.std is None and several.std is not None
    assert several.std.shape == first.frames.shape and several.std.max() > 0.1
    assert (single.settings["evaluations"], several.settings["evaluations"]) == (4, 4 * 5)
    both = dehazer(guidance="proximal", samples=3).dehaze(first)  # two networks
    assert both.settings["evaluations"] == 2 * 4 * 3


def test_a_preview_takes_one_pass(cine):
    result = Dehazer.from_pretrained("preview").dehaze(part(cine, 0, 1))
    assert result.settings["evaluations"] == 1 and np.all(result.tissue <= cine.frames[:1])


def test_a_learned_result_names_its_posterior_and_what_it_learned_from(whole):
    s = whole.settings
    assert s["guidance"] == "learned" and len(s["posterior"].split("sha256:")[1]) == 64
    assert s["tissue_prior"] == s["haze_prior"] == "usdehaze.simulate (no patient data)"
    assert "observation" not in s and "scale" not in s


@pytest.mark.parametrize(
    "options",
    [
        {"guidance": "proximal"},
        {"guidance": "pigdm"},
        {"guidance": "dps"},
        {"sampler": "heun"},
        {"use_haze_prior": False},
        {"preset": "paper"},
        {"tissue_prior": "tissue"},
    ],
)
def test_every_way_of_working_gives_a_result_of_its_own(cine, whole, options):
    first = part(cine, 0, 1)
    result = dehazer(**options).dehaze(first)
    assert np.all(result.tissue <= first.frames)
    assert not np.array_equal(result.tissue, whole.tissue[:1])
    assert result.settings["steps"] == 4
    network = result.settings["posterior" if result.settings["guidance"] == "learned" else "tissue_prior"]
    assert len(network.split("sha256:")[1]) == 64


def test_other_dynamic_ranges_see_the_same_model_frames(cine, whole):
    # Twice the dB on twice the range is the same picture; LogPower alone knows the difference.
    wide = Cine((cine.frames[:1] * 1.5).astype(np.float32), cine.geometry, 90.0)
    result = dehazer(guidance="dps", use_haze_prior=False).dehaze(wide)
    same = dehazer(guidance="dps", use_haze_prior=False).dehaze(part(cine, 0, 1))
    np.testing.assert_allclose(result.tissue / 1.5, same.tissue, atol=2e-3)


def test_a_rectangle_of_odd_size_comes_back_in_its_own_size():
    rng = np.random.default_rng(0)
    frames = (rng.random((2, 77, 201)) * -60).astype(np.float32)
    result = dehazer().dehaze(Cine(frames, Cartesian(), 60.0, None, Source()))
    assert result.tissue.shape == frames.shape and np.all(result.tissue <= frames)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "slow"}, "no preset 'slow'; there are fast, quality, preview, paper"),
        ({"guidance": "magic"}, "no guidance 'magic'"),
        ({"steps": 0}, "steps and samples must be at least 1"),
        ({"strength": 1.5}, "strength must lie in"),
        ({"caution": -0.1}, "caution must lie in"),
        ({"samples": 0}, "steps and samples must be at least 1"),
        ({"seed": 2**63}, r"seed at least 0 and below 2\*\*63"),
        ({"device": "abacus"}, "no device 'abacus'"),
        ({"device": "cpu,cpu"}, "several have to be CUDA devices, each once, such as cuda:0,cuda:1"),
        ({"engine": None}, "no engine None; there are auto, torch"),
        ({"batch_size": 0}, "batch size must be at least 1"),
        ({"tissue_prior": "nowhere"}, "no such prior"),
        ({"posterior": "nowhere"}, "no such posterior"),
        ({"guidance": "learned", "haze_prior": "haze"}, "takes no priors"),
        ({"observation": "additive"}, "takes no observation model"),
        ({"scale": (1.0, 1.0)}, "takes no lambda and kappa"),
        ({"guidance": "dps", "posterior": "posterior"}, "takes no posterior"),
    ],
)
def test_nonsense_is_refused_in_one_line(options, said):
    with pytest.raises(UsdehazeError, match=said) as caught:
        dehazer(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"guidance": "proximal"}, {"guidance": "pigdm"}])
def test_the_callers_random_stream_goes_on_and_its_default_type_and_device_decide_nothing(cine, options):
    expected = dehazer(**options).dehaze(part(cine, 0, 1))
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            made = dehazer(**options).dehaze(part(cine, 0, 1))
    finally:
        torch.set_default_dtype(torch.float32)
    assert np.array_equal(made.tissue, expected.tissue) and np.array_equal(made.haze, expected.haze)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("guidance", ["learned", "pigdm"])
def test_it_works_in_the_callers_inference_mode_as_out_of_it(cine, guidance):
    one = part(cine, 0, 1)
    expected = dehazer(guidance=guidance, steps=2).dehaze(one)
    with torch.inference_mode():
        made = dehazer(guidance=guidance, steps=2)
        within = made.dehaze(one)
    for result in (within, made.dehaze(one)):
        assert np.array_equal(result.tissue, expected.tissue) and np.array_equal(result.haze, expected.haze)


def test_whole_numbers_of_numpy_are_as_good(cine):
    one = part(cine, 0, 1)
    numbers = {"seed": 5, "samples": 2, "steps": 1}
    made = dehazer(**{name: np.int64(number) for name, number in numbers.items()}).dehaze(one)
    assert np.array_equal(made.tissue, dehazer(**numbers).dehaze(one).tissue)
    assert {type(made.settings[name]) for name in numbers} == {int}


def test_what_is_no_cine_is_refused_with_the_way_to_make_one(cine):
    for other in (cine.frames, "scan.h5", None):
        with pytest.raises(TypeError, match=r"a Cine is dehazed, found .*; make one with open_cine"):
            dehazer().dehaze(other)


def test_progress_counts_frames(cine):
    seen = []
    five = replace(cine, frames=cine.frames[[0, 1, 2, 0, 1]], frame_times_s=None)
    dehazer(batch_size=2, steps=1, samples=1).dehaze(five, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_default_settings_are_the_fast_preset():
    made = Dehazer.from_pretrained(device="cpu")
    assert Settings() == PRESETS["fast"] == made.settings == Dehazer(made.model, device="cpu").settings
    by_rule = Dehazer.from_pretrained(guidance="proximal", device="cpu")
    assert by_rule.settings == WITH_RULES["fast"] == Dehazer(by_rule.model, by_rule.haze, device="cpu").settings
    assert by_rule.with_settings(WITH_RULES["quality"]).settings.preset == "quality"


def test_networks_and_guidance_must_fit():
    made = Dehazer.from_pretrained(device="cpu")
    with pytest.raises(UsdehazeError, match="guidance proximal does not work with the learned posterior"):
        made.with_settings(WITH_RULES["fast"])


def test_the_paper_preset_is_the_papers():
    dehazer = Dehazer.from_pretrained("paper", device="cpu")
    s = dehazer.settings
    assert (s.guidance, s.observation, s.sampler, s.steps, s.own_scale) == (
        "pigdm", "additive", "euler-maruyama", 600, (0.93, 0.88),
    )  # fmt: skip
    levels = sde_sigmas(PaperVE(), s.steps)[:-1]
    for prior in (dehazer.tissue, dehazer.haze):  # the shipped ones know all of its noise levels
        assert prior.card["sigma_min"] < levels[-1] < levels[0] < prior.card["sigma_max"]


def test_the_paper_preset_takes_the_papers_networks(cine, tmp_path):
    paths = {}
    for kind in ("tissue", "haze"):
        torch.manual_seed(0)
        network = NCSNv2((8, 12))
        torch.nn.init.normal_(network.end.weight, std=0.01)  # zero as made: it would say nothing
        card = {"name": "own", "kind": kind, "data_mean": 0.4, "data_std": 0.25, "grid": [32, 32]}
        paths[f"{kind}_prior"] = tmp_path / f"{kind}.safetensors"
        Prior(network, {**card, "parametrisation": "score"}).save(paths[f"{kind}_prior"])
    first = part(cine, 0, 1)
    result = dehazer(preset="paper", device="cpu", **paths).dehaze(first)
    assert result.settings["haze_prior"].startswith("own sha256:")
    assert np.isfinite(result.haze).all() and np.all(result.tissue <= first.frames)


def test_priors_on_different_grids_are_refused(tmp_path):
    other = write_tiny_priors(tmp_path)["haze_prior"]
    with pytest.raises(UsdehazeError, match=r"different grids: \[128, 128\] and \[32, 32\]"):
        Dehazer.from_pretrained(haze_prior=other, device="cpu")


def test_networks_of_colour_images_are_refused():
    numbers = {"frame_mean": 0.3, "frame_std": 0.3, "tissue_std": 0.2, "haze_std": 0.3, "sigma_max": 100.0}
    card = {"name": "faces", "grid": [32, 32], "channels": 3, **numbers}
    posterior = LearnedPosterior(FastUNet((8, 16), inputs=9, outputs=6), card)
    prior = Prior(FastUNet((8, 16), inputs=3, outputs=3), {"name": "faces", "grid": [32, 32]})
    for model, settings in ((posterior, PRESETS["fast"]), (prior, WITH_RULES["fast"])):
        with pytest.raises(UsdehazeError, match="faces is of colour images; expected a network of scans"):
            Dehazer(model, settings=settings, device="cpu")


def test_a_mirrored_frame_comes_out_mirrored_when_both_ways_are_sampled(cine, monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda shape, **_: torch.zeros(shape))  # the draws aside
    y = torch.from_numpy(cine.frames[:1] / cine.dynamic_range_db + 1)
    seen = torch.ones(y.shape[1:])
    for samples, same in ((2, True), (1, False)):
        made = Dehazer.from_pretrained("preview", samples=samples)
        off = (made.split(y, seen, 60.0).gain - made.split(y.flip(-1), seen, 60.0).gain.flip(-1)).abs()
        # Rounding: where two quantiles are all but equal it also decides which counts first, in a pixel of a hundred.
        assert (float(off.mean()) < 1e-4 and float((off > 1e-3).float().mean()) < 0.01) == same


def test_images_on_one_screen_are_dehazed_each_by_itself():
    """Two fans side by side come out as each alone does, bit for bit, and the screen between them stays."""
    rng = np.random.default_rng(3)
    fans = [Sector(60.0 + left, -5.0, 8.0, 110.0, -0.6, 0.6) for left in (0, 130)]
    frames = np.clip(rng.normal(-25, 8, (2, 110, 260)), -60, 0).astype(np.float32)
    both = Cine(frames, Cartesian(sector=fans[0], others=(fans[1],)))
    told = []
    fast = dehazer(preset="preview", steps=1)
    result = fast.dehaze(both, progress=lambda *done: told.append(done))
    masks = [sector_mask(fan, (110, 260)) for fan in fans]
    for fan, mask in zip(fans, masks, strict=True):
        alone = fast.dehaze(replace(both, geometry=Cartesian(sector=fan)))
        assert np.array_equal(result.tissue[:, mask], alone.tissue[:, mask])
        assert np.array_equal(result.haze[:, mask], alone.haze[:, mask])
    around = ~(masks[0] | masks[1])
    assert np.array_equal(result.tissue[:, around], frames[:, around]) and (result.haze[:, around] == -60).all()
    assert told[-1] == (2, 2) and result.cine is both
