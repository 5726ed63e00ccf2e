"""The quantile over samples that is applied."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from usdehaze.dehazing.decision import _of_two_rising, _weighted, quantiles, spread


def quantile(values, place, weights=None):
    """At one place."""
    return quantiles(values, (place,), weights)[0]


PLACES = (0.0, 0.1, 0.375, 0.5, 0.83, 1.0)


def values_of(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def weights_of(n, seed=1):
    weights = 0.05 + values_of(n, seed=seed)
    return weights / weights.sum()


@pytest.mark.parametrize("n", [1, 2, 7, 32])
@pytest.mark.parametrize("place", PLACES)
def test_without_weights_it_is_the_usual_quantile(n, place):
    values = values_of(n, 3, 5)
    torch.testing.assert_close(quantile(values, place), torch.quantile(values, place, dim=0))


@pytest.mark.parametrize("n", [1, 2, 9, 36])
@pytest.mark.parametrize("place", PLACES)
def test_weighted_values_lie_at_the_middle_of_their_weight(n, place):
    values, weights = values_of(n, 4, 3), weights_of(n)
    found = quantile(values, place, weights)
    for i, j in np.ndindex(4, 3):
        column = values[:, i, j].double().numpy()
        order = np.argsort(column)
        share = weights.double().numpy()[order]
        expected = np.interp(place, np.cumsum(share) - share / 2, column[order])  # clamps at the ends as well
        assert float(found[i, j]) == pytest.approx(expected, abs=1e-6)


def test_three_weighted_values_in_closed_form():
    values, weights = torch.tensor([[0.6], [0.0], [0.2]]), torch.tensor([0.2, 0.5, 0.3])
    # 0 lies at 0.25, 0.2 at 0.65 and 0.6 at 0.9.
    for place, expected in ((0.1, 0.0), (0.25, 0.0), (0.45, 0.1), (0.65, 0.2), (0.775, 0.4), (0.9, 0.6), (1.0, 0.6)):
        assert float(quantile(values, place, weights)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_equal_weights_are_the_midpoint_convention(place):
    values = values_of(8, 50)
    expected = torch.from_numpy(np.quantile(values.numpy(), place, axis=0, method="hazen"))
    torch.testing.assert_close(quantile(values, place, torch.full((8,), 1 / 8)), expected.float())


def test_the_median_of_symmetric_weights_needs_no_weights():
    values = torch.tensor([0.1, 0.3, 0.7, 0.9])[:, None]
    found = quantile(values, 0.5, torch.tensor([0.1, 0.4, 0.4, 0.1]))
    torch.testing.assert_close(found, quantile(values, 0.5))


def test_values_that_rise_everywhere_come_out_as_any_others_to_the_bit():
    values, weights = values_of(9, 5, 7).sort(0).values, weights_of(9)
    mixed = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    places = (*PLACES, 0.025, 0.85, 0.975)
    assert torch.equal(quantiles(values, places, weights), quantiles(values[mixed], places, weights[mixed]))


@pytest.mark.parametrize("n", [1, 4, 9])
def test_two_samples_that_rise_come_out_as_any_others_to_the_bit(n, monkeypatch):
    """They are counted, not sorted; with ties within a sample and between the two, zeros of either sign, and apart."""
    values = -values_of(2, n, 3000, seed=n)
    values[:, :, :1000] = values[:, :, :1000].mul(4).round().div(4)
    values[0, :, 1000:1300] -= 2.0
    values, weights = values.sort(dim=1).values.flatten(0, 1), weights_of(n).repeat(2) / 2
    assert bool((values == 0).any()) and bool(values[0].lt(values[n]).any()) and bool(values[0].gt(values[n]).any())
    counted = Mock(wraps=_of_two_rising)
    monkeypatch.setattr("usdehaze.dehazing.decision._of_two_rising", counted)
    assert torch.equal(quantiles(values, PLACES, weights), _weighted(values, PLACES, weights))
    assert counted.call_count == 1


@pytest.mark.parametrize("weights", [None, weights_of(6)], ids=["plain", "weighted"])
def test_ties_and_single_values_come_back_as_they_are(weights):
    equal = torch.full((6, 4), -0.3)
    assert all(torch.equal(quantile(equal, place, weights), equal[0]) for place in PLACES)
    one, whole = values_of(1, 4), None if weights is None else torch.ones(1)
    assert all(torch.equal(quantile(one, place, whole), one[0]) for place in PLACES)
    mostly = torch.cat([equal[:5], torch.zeros(1, 4)])  # five of six say -0.3: so does everything up to the middle
    assert torch.equal(quantile(mostly, 0.5, weights), equal[0])


@pytest.mark.parametrize("weights", [None, weights_of(9)], ids=["plain", "weighted"])
def test_it_rises_with_the_place_and_stays_among_the_values(weights):
    values = values_of(9, 40, seed=3) - 1
    found = torch.stack([quantile(values, place, weights) for place in np.linspace(0, 1, 101)])
    assert bool((found.diff(dim=0) >= 0).all())
    torch.testing.assert_close(found[[0, -1]], torch.stack([values.amin(0), values.amax(0)]))


@pytest.mark.parametrize("weighted", [False, True])
def test_order_of_the_samples_does_not_matter(weighted):
    values, weights = values_of(9, 40), weights_of(9)
    order = torch.tensor([4, 0, 8, 2, 5, 1, 3, 7, 6])
    one, other = (quantile(values[o], 0.6, weights[o] if weighted else None) for o in (slice(None), order))
    torch.testing.assert_close(one, other)


def test_several_places_are_each_as_alone_and_a_spread_is_that_of_its_distribution():
    values = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    weights = torch.tensor([0.1, 0.2, 0.1, 0.1, 0.2, 0.1, 0.2])
    for given in (None, weights):
        both = quantiles(values, (0.3, 0.9), given)
        assert torch.equal(both, torch.stack([quantile(values, place, given) for place in (0.3, 0.9)]))
    torch.testing.assert_close(spread(values), values.std(0))
    drawn = values.repeat_interleave((10 * weights).round().int(), 0)
    torch.testing.assert_close(spread(values, weights), drawn.std(0, unbiased=False))
    assert not spread(values[:1]).any()


@pytest.mark.parametrize("n", [1, 2, 9, 36])
def test_the_way_of_cpus_and_that_of_other_devices_give_the_same_bits(n):
    values = values_of(n, 6, 8) - 0.5
    values[:, 1] = (values[:, 1] * 4).round() / 4  # ties
    values[:, 2], values[n // 2, 2] = 0.0, -0.0
    assert torch.equal(quantiles(values, PLACES, weights_of(n)), _weighted(values, PLACES, weights_of(n)))
