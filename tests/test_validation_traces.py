"""Burned-in lines are found where they stand still, and nothing else is."""

from __future__ import annotations

import numpy as np

from validation.traces import burned_in


def clip(n_frames: int = 12) -> np.ndarray:
    """``(T, 100, 100)`` dB: moving speckle on the left, black on the right."""
    frames = np.random.default_rng(0).uniform(-55, -25, (n_frames, 100, 100)).astype(np.float32)
    frames[:, :, 50:] = -60
    return frames


def test_a_line_with_a_spike_is_found_in_the_lowest_fifth() -> None:
    line = np.zeros((100, 100), bool)
    line[90, 5:95], line[87:91, 70] = True, True
    frames = np.where(line, np.float32(-22), clip())
    assert (burned_in(frames) == line).all()
    frames[3, 80:, 60:64] = -10  # a cursor that sweeps by
    assert (burned_in(frames) == line).all()


def test_tissue_text_above_and_specks_are_no_trace() -> None:
    frames = clip()
    frames[:, 40, 5:95] = -20  # above the lowest fifth
    frames[:, 85:95, 55:75] = -20  # broad
    frames[:, 98, 90:95] = -20  # too small
    assert not burned_in(frames).any()


def test_a_line_that_moves_is_not_found() -> None:
    frames = clip()
    for t, frame in enumerate(frames):
        frame[82 + t, 50:95] = -20
    assert not burned_in(frames).any()
