"""The answer that the last levels of a frame's chains elect."""

import pytest
import torch

from usdehaze.voting import BLACK_DB, BRIGHT_DB, ONSET_DB, VOTE, deepen, elect, quantile


@pytest.mark.parametrize("votes", [1, 2, 32])
def test_the_vote_that_counts_is_a_quantile(votes):
    values = torch.rand(votes, 3, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(quantile(values, VOTE), torch.quantile(values, VOTE, dim=0))


def one_pixel(*values: float) -> torch.Tensor:
    """One value for each chain of one frame."""
    return torch.tensor(values).reshape(-1, 1, 1, 1)


def test_tissue_lies_below_the_frame_by_what_haze_is_stronger():
    frame = one_pixel(0.6, 0.6)
    weaker = [(one_pixel(0.3, 0.3), one_pixel(0.5, 0.5))]
    gain, level = elect(frame, weaker, 2)
    assert gain.shape == (1, 1, 1) and gain.item() == pytest.approx(-0.2) and level.item() == pytest.approx(0.5)
    stronger = [(one_pixel(0.5, 0.5), one_pixel(0.3, 0.3))]
    assert elect(frame, stronger, 2)[0].item() == 0


def test_votes_of_a_frame_come_from_its_own_chains_and_every_level():
    # Two frames of two chains, three levels: gains -0.1 to -0.6 on the first, half of that on the second.
    frame = torch.full((4, 1, 1, 1), 0.9)
    estimates = [
        (one_pixel(0.5 - a, 0.5 - b, 0.5 - a / 2, 0.5 - b / 2), one_pixel(0.5, 0.5, 0.5, 0.5))
        for a, b in ((0.1, 0.4), (0.6, 0.2), (0.3, 0.5))
    ]
    gain, _ = elect(frame, estimates, 2)
    expected = torch.quantile(-torch.arange(1.0, 7.0) / 10, VOTE)
    torch.testing.assert_close(gain.flatten(), torch.stack([expected, expected / 2]))


def test_without_a_haze_prior_haze_is_what_is_not_tissue():
    gain, level = elect(one_pixel(0.6), [(one_pixel(0.4), one_pixel(0.0))], 1, joint=False)
    assert gain.item() == pytest.approx(-0.2) and level.item() == pytest.approx(0.2)


def test_values_that_add_are_subtracted():
    gain, _ = elect(one_pixel(0.6), [(one_pixel(0.5), one_pixel(0.3))], 1, additive=True)
    assert gain.item() == pytest.approx(-0.1)


@pytest.mark.parametrize("span_db", [50.0, 80.0])
@pytest.mark.parametrize(
    ("above_floor_db", "most_db"),
    [
        *((0.0, 6.0), (BLACK_DB[0], 6.0), (sum(BLACK_DB) / 2, 3.0), (BLACK_DB[1], 0.0)),
        *((BRIGHT_DB[0], 0.0), (sum(BRIGHT_DB) / 2, 3.0), (BRIGHT_DB[1], 6.0), (45.0, 6.0)),
    ],
)
def test_clear_votes_are_deepened_by_dB_that_depend_on_how_bright_the_frame_is(span_db, above_floor_db, most_db):
    frame = torch.full((1, 1, 9, 9), above_floor_db / span_db)
    for vote_db, share in ((0.0, 0.0), (-ONSET_DB, 0.632), (-20.0, 1.0)):
        gain = deepen(torch.full((1, 9, 9), vote_db / span_db), frame, span_db, most_db=6.0)
        assert (gain * span_db).numpy() == pytest.approx(vote_db - share * most_db, abs=0.01)


def test_more_votes_for_removal_never_remove_less():
    gain = torch.linspace(0, -1, 200).reshape(1, 1, 200)
    deeper = deepen(gain, torch.full((1, 1, 1, 200), 0.7), 60.0, 8.0)
    assert (
        bool((deeper.diff() <= 0).all()) and bool((deeper <= gain).all()) and deeper.min() == -1 and deeper.max() == 0
    )
