"""Runs of frames cut into blocks."""

import pytest

from usdehaze.cine import blocks


@pytest.mark.parametrize("first", [0, 3, 8, 21])
@pytest.mark.parametrize("group", [1, 4, 8])
@pytest.mark.parametrize("most", [1, 4, 10, 100])
def test_blocks_are_the_whole_run_in_order_and_part_no_group(first, group, most):
    found = list(blocks(30, most, group, first))
    assert [i for block in found for i in range(30)[block]] == list(range(30))
    assert all((first + block.stop) % group == 0 for block in found[:-1])
    assert all(block.stop - block.start <= max(most, group) for block in found)


def test_without_groups_blocks_are_as_large_as_they_may_be():
    assert list(blocks(7, 3, first_frame=5)) == [slice(0, 3), slice(3, 6), slice(6, 7)]


def test_a_run_that_begins_within_a_group_begins_with_what_is_left_of_it():
    assert list(blocks(20, 16, 8, first_frame=6)) == [slice(0, 10), slice(10, 20)]
    assert list(blocks(20, 8, 8, first_frame=6)) == [slice(0, 2), slice(2, 10), slice(10, 18), slice(18, 20)]
