"""Where the images are in frames whose file does not say: fans, areas of echoes, or all of it; and how they lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from usdehaze.cine import Sector
from usdehaze.geometry.screen import UNUSUAL, echo_boxes, look_around, rectangle, sectors_beside, upside_down
from usdehaze.geometry.sector import Fit, block_mean, find_fan, largest_component, mostly_seen
from usdehaze.notes import Guess

MIRRORED_PX = 128  # of the mask that is compared with its mirror images
MIRRORED_LEVEL = 0.06  # of the range above the background: how bright a pixel must be to count as image
ON_ITS_SIDE = 0.05  # see `_turned_symmetry`; -0.6 to 0.04 in real images
BORDER = 0.02  # of the height and width of a frame
WHITE = 0.98  # of full scale: lossy compression leaves no purer white
BLANK_PX = 512  # sides of what is searched of frames that are blank
FEWEST_GRAPHICS = 3  # around an image: a vendor's mark or two do not make a screen
LARGE_GRAPHICS = 0.005  # of the frame
QUIET_SHARE = 0.95  # around the images of a screen, 0.99 in real ones; 0.72 to 0.88 in dark tissue
MOST_LABELS = 7  # values of a label map; real images have 20 or more
MOSTLY = 0.8  # of what is no background has a neighbour of its own value in a label map
MOST_OF_BORDER, MUCH_OF_FRAME, SOME_OF_FRAME = 0.8, 0.15, 0.03  # share that is white where echoes are dark on white


@dataclass(frozen=True)
class Screen:
    """What some frames show.

    Attributes:
        sectors: of the images, the largest first, rectangles as very narrow ones; none where all of the frame is one
            image, or where nothing looks like one.
        fans: whether they are fans.
        empty: nothing looks like B-mode.
        on_its_side: the fan lies on its side; ``sectors`` are those of the frames turned, rows for columns.
        inverted: echoes are dark on white; the rest is of the frames as they should be.
        white_around: the frames are white around, but inverting them shows no fan either.
    """

    sectors: tuple[Sector, ...] = ()
    fans: bool = False
    empty: bool = False
    on_its_side: bool = False
    inverted: bool = False
    white_around: bool = False

    def notes(self, known: str, square: bool) -> tuple[str, ...]:
        """What to tell about the images.

        Args:
            known: what the file says of its geometry, to begin the sentence with.
            square: pixels had to be taken as square.
        """
        several = len(self.sectors) > 1
        if not self.sectors:
            return (Guess(f"{known} and no sector found: the frames are taken as a rectangle.", "--rectangle"),)
        if not self.fans:
            areas = f"the {len(self.sectors)} largest areas of echoes are" if several else "the largest area is"
            return (Guess(f"{known} and no sector found: {areas} taken as B-mode, all else is left.", "--rectangle"),)
        found = (
            f"{len(self.sectors)} sectors were found in the image" if several else "the sector was found in the image"
        )
        each = ", each dehazed by itself" if several else ""
        return (f"{known}: {found}{', pixels taken as square' if square else ''}{each}.", *note_on_probe(self.sectors))


def look_at(
    frames_db: np.ndarray,
    floor_db: float,
    aspect: float,
    *,
    can_turn: bool = False,
    may_be_inverted: bool = False,
    framed: bool = False,
) -> Screen:
    """Finds the images on a screen.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``, some frames to look at.
        floor_db: the value of black, negative dB.
        aspect: row pitch over column pitch.
        can_turn: rows and columns are a guess: a fan on its side that is seen better goes before one that is upright.
        may_be_inverted: nobody has said which end of the grey levels is black.
        framed: the frames are a screen for sure: a single area of echoes is an image even where no text or scale is
            around it. (In bare frames, deep tissue may be too dark to be seen.)
    """
    if frames_db.min() == frames_db.max():  # blank: a corner tells as much
        frames_db = frames_db[:1, :BLANK_PX, :BLANK_PX]
    seen = _look_at(frames_db, floor_db, aspect, can_turn, framed)
    around = is_dark_on_white(frames_db, floor_db)
    if seen.fans or not may_be_inverted or not (around or _has_white(frames_db, floor_db)):
        return seen
    inverted_db = floor_db - frames_db
    if not around and ((fit := find_fan(inverted_db, floor_db, aspect)) is None or fit.evidence < UNUSUAL):
        return seen
    inverted = _look_at(inverted_db, floor_db, aspect, can_turn, framed)
    return replace(inverted, inverted=True) if inverted.fans else replace(seen, white_around=True)


def _look_at(frames_db: np.ndarray, floor_db: float, aspect: float, can_turn: bool, framed: bool) -> Screen:
    fit = find_fan(frames_db, floor_db, aspect)
    if fit is None or (can_turn and not fit.certain):
        lying = fan_on_its_side(frames_db, floor_db, aspect, 0.0 if can_turn and fit is None else UNUSUAL)
        if lying is not None and (fit is None or lying.score > fit.score):
            return Screen((lying.sector,), True, on_its_side=True)
    if sectors := sectors_beside(fit, frames_db, floor_db, aspect, cluttered=True):
        return Screen(tuple(sectors), True)
    height, width = frames_db.shape[1:]
    boxes = echo_boxes(frames_db, floor_db)
    if boxes == [(0, 0, height - 1, width - 1)]:
        return Screen()
    if not framed:
        around = look_around(frames_db, floor_db, boxes)
        graphics = around.count >= (FEWEST_GRAPHICS if boxes else 1) or around.share >= LARGE_GRAPHICS
        if (boxes and around.quiet < QUIET_SHARE) or (len(boxes) < 2 and not graphics):
            return Screen()
    return Screen(tuple(rectangle(box, aspect) for box in boxes), empty=not boxes)


def fan_on_its_side(frames_db: np.ndarray, floor_db: float, aspect: float, evidence: float = UNUSUAL) -> Fit | None:
    """The fan in frames turned, rows for columns; None where none is seen, or the image is upright by its symmetry.

    ``evidence`` is the least for one with its apex at the left; at the right it takes `UNUSUAL`.
    """
    if _turned_symmetry(frames_db, floor_db) < ON_ITS_SIDE:
        return None
    turned = frames_db.swapaxes(1, 2)
    if (fit := find_fan(turned, floor_db, 1 / aspect)) is not None and fit.evidence >= evidence:
        return fit
    fit = find_fan(turned[:, ::-1], floor_db, 1 / aspect)
    if fit is None or fit.evidence < UNUSUAL:
        return None
    return replace(fit, sector=upside_down(fit.sector, turned.shape[1]))


def note_on_probe(sectors: tuple[Sector, ...]) -> tuple[str, ...]:
    """What to tell where the probe is at the bottom."""
    if not any(sector.aspect < 0 for sector in sectors):
        return ()
    note = "The fan stands upside down, the probe at the bottom: taken so, and left so in the result."
    return (Guess(note, "--rectangle, or frames with the probe at the top"),)


def _has_white(frames_db: np.ndarray, floor_db: float) -> bool:
    """Whether more of a frame is white than black, as where a fan fills an inverted frame but for its corners."""
    frame = frames_db[len(frames_db) // 2]
    white, black = (frame >= (1 - WHITE) * floor_db).mean(), (frame <= WHITE * floor_db).mean()
    return bool(white > max(black, SOME_OF_FRAME))


def is_dark_on_white(frames_db: np.ndarray, floor_db: float) -> bool:
    """Whether the frames ``(T, H, W)`` dB are white all around, as of a print, or of grey levels that are inverted."""
    frame = frames_db[len(frames_db) // 2]
    white = frame >= (1 - WHITE) * floor_db
    border = np.ones_like(white)
    rows, columns = (max(1, round(BORDER * side)) for side in frame.shape)
    border[rows:-rows, columns:-columns] = False
    return bool(white[border].mean() >= MOST_OF_BORDER and MUCH_OF_FRAME <= white.mean() < 1)


def labels_in(frames: np.ndarray) -> int:
    """How many values frames ``(T, H, W)`` have where they are label maps, few values in flat areas; else 0."""
    values = np.zeros(0, frames.dtype)
    for frame in frames:
        values = np.union1d(values, frame)
        if len(values) > MOST_LABELS:
            return 0
    background = values[np.argmax([np.count_nonzero(frames == value) for value in values])]
    others = frames[:, :, :-1] != background
    flat = (frames[:, :, 1:] == frames[:, :, :-1])[others]
    return len(values) if flat.size and flat.mean() > MOSTLY else 0


def _turned_symmetry(frames_db: np.ndarray, floor_db: float) -> float:
    """How much more alike the image's top and bottom are than its left and right, in [-1, 1].

    Above 0 for a fan that lies on its side, below 0 for an upright one, about 0 for a rectangle.

    Args:
        frames_db: ``(T, H, W)`` dB in ``[floor_db, 0]``.
        floor_db: the value of black, negative dB.
    """
    image = mostly_seen(frames_db)
    bright = image > float(np.quantile(image, 0.05)) + MIRRORED_LEVEL * abs(floor_db)
    mask = largest_component(block_mean(bright, max(1, max(bright.shape) // MIRRORED_PX)) > 0.5)
    if not mask.any():
        return 0.0
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    image = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return _alike(image, image[::-1]) - _alike(image, image[:, ::-1])


def _alike(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union."""
    return float((one & other).sum() / (one | other).sum())
