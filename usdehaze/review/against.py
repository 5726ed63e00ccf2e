"""A second result of the same frames, to be looked at beside the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from usdehaze.errors import InputError
from usdehaze.io.result import OpenResult, open_result
from usdehaze.provenance import describe
from usdehaze.review.frames import planes_of

PREFIX = "other_"  # of its planes, beside those of the first result


@dataclass(frozen=True)
class Against:
    """The second result, open, and how many frames later it begins than the first."""

    other: OpenResult
    first: OpenResult
    offset: int

    def planes(self, index: int, input_db: np.ndarray) -> dict[str, np.ndarray]:
        """``other_removed`` and, where there is one, ``other_std`` of what the first result calls frame ``index``.

        Args:
            index: of the frame in the first result.
            input_db: ``(H, W)`` dB, its input there.

        Raises:
            InputError: the second result has another input.
        """
        at = index - self.offset
        if not np.array_equal(self.other.input[at], input_db):
            raise InputError(
                self.other.path,
                f"the input of frame {at + 1} is not that of {os.path.basename(self.first.path)}",
                "two results of the same source, read in the same way",
            )
        std_db = None if self.other.std is None else self.other.std[at]
        planes = planes_of(input_db, self.other.tissue[at], None, std_db, self.first.cine.dynamic_range_db)
        return {PREFIX + name: plane for name, plane in planes.items() if name != "input"}

    def differences(self) -> list[list[str]]:
        """``[label, first, second]`` of whatever the two say of how they were made, where they do not say the same."""
        told = [
            {field.label: words for field, words in describe(each.attrs) if not field.may_name_patient}
            for each in (self.first, self.other)
        ]
        labels = dict.fromkeys([*told[0], *told[1]])
        rows = [[label, *(side.get(label, "–") for side in told)] for label in labels if label != "result made"]
        return [row for row in rows if row[1] != row[2]]


@contextmanager
def open_against(path: str | os.PathLike[str], first: OpenResult, frames: range) -> Iterator[Against]:
    """Opens the result that a page shows beside ``first``, whose ``frames`` are shown.

    Raises:
        InputError: it is no result, of another source, or lacks some of the frames.
    """
    with open_result(path) as other:
        mine, theirs = first.cine.source, other.cine.source
        name = os.path.basename(first.path)
        if mine.sha256 != theirs.sha256:
            raise InputError(
                path,
                f"of another source (SHA-256 {theirs.sha256[:12] or 'unknown'})",
                f"a result of the source of {name} ({mine.sha256[:12] or 'unknown'})",
            )
        if first.cine.shape != other.cine.shape:
            sizes = [" x ".join(map(str, each.cine.shape)) for each in (other, first)]
            raise InputError(path, f"frames of {sizes[0]} pixels", f"{sizes[1]}, those of {name}")
        offset = theirs.first_frame - mine.first_frame
        held = range(offset, offset + other.cine.n_frames)
        if frames[0] not in held or frames[-1] not in held:
            asked, has = ([each[0] + mine.first_frame + 1, each[-1] + mine.first_frame + 1] for each in (frames, held))
            raise InputError(
                path,
                f"frames {has[0]} to {has[1]} of the source",
                f"{asked[0]} to {asked[1]}, those of {name}",
                advice="show the frames that both have, with --frames",
            )
        yield Against(other, first, offset)
