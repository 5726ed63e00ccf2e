"""The study of reader studies: simulated readers have the preference that they were given."""

import numpy as np
import pytest

from validation.readers import Setting, draw, figures, held, true_values


def test_true_values_are_those_that_many_readers_come_to():
    assert true_values(Setting(3, 20, 0.0, 0.4, 0.4, 0.8)) == (0.5, 0.0)
    setting = Setting(300, 300, 0.5, 0.1, 0.1, 1.0)
    share, difference = true_values(setting)
    judged = draw(setting, np.random.default_rng(0))
    before, after = judged.ratings["chamber"]
    assert judged.choice.mean() == pytest.approx(share, abs=0.01)
    assert (after - before).mean() == pytest.approx(difference, abs=0.03)


def test_readers_without_spread_all_choose_alike():
    judged = draw(Setting(3, 5, 1.0, 0.0, 0.0, 0.0), np.random.default_rng(0))
    assert (judged.choice == 1).all() and not held(None, 1.0) and held((0.0, 1.0), 0.5)


def test_intervals_hold_and_tests_of_cases_keep_their_size_where_readers_are_alike():
    share, rating, *tests = figures(Setting(4, 30, 0.0, 0.0, 0.5, 1.0), 60)
    assert min(share, rating) >= 0.9 and max(tests) <= 0.15  # 3 standard errors of 60 studies above 0.05
    *_, reader_wilcoxon, _ = figures(Setting(8, 30, 3.0, 0.1, 0.1, 0.5), 5)
    assert reader_wilcoxon == 1  # a large effect is found
