"""A scan in a file: its stored values as dB, and what had to be found out about them."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from usdehaze.budget import spending
from usdehaze.cine import Cartesian, Cine, Geometry, Source
from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.geometry import image_mask
from usdehaze.geometry.screen import images_of
from usdehaze.geometry.sector import frames_used
from usdehaze.io.detect import sha256_of
from usdehaze.io.levels import BY_LEVELS
from usdehaze.io.limits import check_frames
from usdehaze.io.picture import Colours, Picture, find_colours
from usdehaze.io.reading import Reading
from usdehaze.io.scan import Scan
from usdehaze.io.stored_cine import TIMES_UNUSED, TIMES_WITHOUT_UNIT, StoredCine, in_metres, turned
from usdehaze.io.survey import gaps_outside, note_on_gaps
from usdehaze.io.unchanged import Fingerprint
from usdehaze.io.units import find_decibel_scale
from usdehaze.io.whole_screen import Screen, labels_in, look_at
from usdehaze.notes import Guess, refuse_guesses
from usdehaze.plain_text import readable

OF_ONE_VALUE = "Frames of one value throughout, black ones say, come out as they went in."
SECTOR_FRAMES = 64  # spread over the scan, of which the sector finder takes those that it uses
SECTOR_BYTES = 2**28  # that these frames may fill


class OpenFile(Protocol):
    """What is held open between frames."""

    def close(self) -> None:
        """Closes it."""


class StoredScan(Scan):
    """Frames in a file with what had to be found out about them: units, full scale, and geometry.

    The geometry is the file's own, else that of the sectors or areas of echoes on the screen, else a rectangle. The
    cines have a ``tissue_mask`` where there is colour, False at its pixels. Scans can be pickled, and used after a
    fork: the file is then opened again.

    Args:
        path: the file or folder.
        reading: which frames to read, and what the file leaves unsaid.

    Raises:
        InputError: anything in the file that stands in the way, in one line.
    """

    _file: OpenFile | None = None
    _stored: StoredCine | None = None
    _opened_by = 0
    _colours = Colours()

    def __init__(self, path: str | os.PathLike[str], reading: Reading) -> None:
        self.path, self.reading, self._lies_on_its_side = Path(path), reading, False
        self._constant = set[int]()  # frames of one value, of those asked for, as far as they have been read
        self._fingerprint, sha256 = Fingerprint.of(self.path), ""
        try:
            stored = self._opened()
            first, stop = reading.frame_range(stored.shape[0], path)
            self.n_frames, self.shape = stop - first, stored.shape[1:]
            with self._errors():
                self._scale = find_decibel_scale(stored, reading, path)
                self.dynamic_range_db = self._scale.dynamic_range_db
                self.geometry, notes = self._find_geometry(stored)
            notes = self._scale.assumptions + notes
            told = TIMES_UNUSED in notes or TIMES_WITHOUT_UNIT in notes
            if stored.frame_times_s is None and stored.shape[0] > 1 and not told:
                notes += ("No frame times in the file.",)
            if reading.strict:
                refuse_guesses(notes, path)
            sha256 = self._hash()
        except BaseException as error:
            self.close()
            if isinstance(error, InputError):
                self._fingerprint.check()
            raise
        self.frame_times_s = None if stored.frame_times_s is None else stored.frame_times_s[first:stop]
        self.source = Source(
            name=readable(self.path.name),
            sha256=sha256,
            dataset=stored.dataset,
            layout=stored.layout,
            units=self._scale.units,
            assumptions=notes,
            first_frame=first,
            frames=stored.shape[0],
            options=reading.said,
        )

    def _hash(self) -> str:
        """SHA-256 of the file, once it is sure that it is the one that was looked at."""
        sha256 = sha256_of(self.path)
        self._fingerprint.check()
        return sha256

    @abstractmethod
    def _open(self) -> StoredCine:
        """Opens the file, kept in ``_file`` where it stays open, and finds the frames in it."""

    def _errors(self) -> AbstractContextManager[None]:
        """Turns what the library that reads the file stumbles over into an `InputError`."""
        return nullcontext()

    def _find_geometry(self, stored: StoredCine) -> tuple[Geometry, tuple[str, ...]]:
        """Geometry of the frames, and what had to be assumed, one sentence each."""
        first, stop = self.reading.frame_range(stored.shape[0], self.path)
        chosen = sector_frames(stored.shape, SECTOR_FRAMES) if stored.geometry is None else [first]
        pictures = [self._picture(index) for index in chosen]
        notes, geometry = note_on_gaps([picture.levels for picture in pictures]), stored.geometry
        if geometry is None:
            frames_db = np.stack([self._whole_db(picture.levels) for picture in pictures])
            written = np.ptp(frames_db, axis=(1, 2)) > 0  # black frames would hide the fan of the others
            geometry, told = self._seek(stored, frames_db[written] if 0 < written.mean() < 1 else frames_db)
            notes += told
            if self._lies_on_its_side:
                pictures = [self._picture(index) for index in chosen]
        for index, picture in zip(chosen, pictures, strict=True):
            if first <= index < stop and picture.levels.min() == picture.levels.max():
                self._constant.add(index)
                self._check_images(first, self._whole_db(picture.levels))
        self.shape = self._opened().shape[1:]
        images = [image_mask(part, self.shape) for part in images_of(geometry)]
        return geometry, notes + self._look_at_colours(pictures, images)

    def _whole_db(self, values: np.ndarray) -> np.ndarray:
        """Stored values as dB, the floor where they are none."""
        return self._scale.to_db(np.where(np.isfinite(values), values, self._scale.floor))

    def _seek(self, stored: StoredCine, frames_db: np.ndarray) -> tuple[Geometry, tuple[str, ...]]:
        """Geometry of frames whose file does not give it, as some of them show it, and what had to be assumed."""
        row_m, column_m = stored.spacing_m or (stored.aspect, 1.0)
        order, notes, screen = stored.guessed_axes, tuple[str, ...](), None
        if not self.reading.rectangle:
            if count := labels_in(frames_db):
                notes += (f"{count} values alone, in flat areas, as of a label map: no image to dehaze?",)
            may_be_inverted, turns = self._may_be_inverted, bool(order)
            how = {"can_turn": turns, "may_be_inverted": may_be_inverted}
            screen = look_at(frames_db, -self.dynamic_range_db, row_m / column_m, **how)
            if screen.on_its_side and self.reading.axes:  # which are as the user says
                screen = replace(screen, sectors=(), fans=False, on_its_side=False)
            notes += self._check_screen(screen, turns)
            if screen.on_its_side:
                self._lies_on_its_side, self._stored = True, turned(stored)
                stored, order = self._stored, order.translate(str.maketrans("HW", "WH"))
        if self._lies_on_its_side:
            notes += (Guess(f"The fan lies on its side in the file: axes taken as {order}.", "--axes"),)
        elif order and (order not in ("HW", "THW") or stored.axes_because):
            notes += (Guess(f"Axes taken as {order}{stored.axes_because}.", "--axes"),)
        if screen is None:
            return Cartesian(stored.spacing_m, stored.origin_m), notes
        known = "No geometry in the file" if stored.spacing_m is None else "The file gives the pixel grid alone"
        notes += screen.notes(known, stored.spacing_m is None and stored.aspect == 1)
        if not screen.sectors:
            return Cartesian(stored.spacing_m, stored.origin_m), notes
        first, *others = screen.sectors
        return Cartesian(stored.spacing_m, stored.origin_m, first, "sector finder", (*others,)), notes

    @property
    def _may_be_inverted(self) -> bool:
        """Whether nobody has said which end of the grey levels is black."""
        return self.reading.levels is None and self._scale.units in ("8-bit", "grey", "dB")

    def _check_screen(self, screen: Screen, can_turn: bool) -> tuple[str, ...]:
        """Refuses what cannot be read, and takes grey levels the other way round where they are; what to tell of it."""
        if (screen.white_around or screen.inverted) and self._scale.units == "dB":
            found, expected = "is white around the image: decibels that grow as echoes fade", "0 dB for the brightest"
            raise InputError(self.path, found, expected, "take their negative, or say what they are with --units")
        if screen.white_around:
            black, white = self._scale.black, self._scale.full_scale
            raise InputError(
                self.path,
                "is white all around, and shows no sector as it is nor inverted",
                "black where there is no echo",
                f"say --levels {black:g}:{white:g}, or --levels {white:g}:{black:g} if echoes are dark on white",
            )
        if screen.on_its_side and not can_turn:
            advice = "turn it by 90 degrees, or go on with --rectangle"
            raise InputError(self.path, "its fan lies on its side", "the probe above or below the image", advice)
        if screen.empty and not self.reading.force:
            raise self._no_b_mode("no area that looks like it")
        if not screen.inverted:
            return ()
        self._scale = self._scale.inverted
        return (Guess("Echoes are dark on white: grey levels taken as inverted.", BY_LEVELS),)

    def _no_b_mode(self, found: str) -> InputError:
        advice = "leave it out, or go on with --force"
        return InputError(self.path, f"shows no grey-scale B-mode ({found})", "an image to dehaze", advice)

    def _picture(self, index: int) -> Picture:
        """Frame ``index`` of the file in stored values, with its colours where it may have some."""
        return self._opened().picture_of(index)

    def _in_bytes(self, picture: Picture) -> Picture:
        """A picture as its colours are judged."""
        if picture.rgb is None or picture.rgb.dtype == picture.levels.dtype == np.uint8:
            return picture
        levels, rgb = (db_to_grey(self._whole_db(v), self.dynamic_range_db) for v in (picture.levels, picture.rgb))
        return Picture(levels, rgb)

    def _check_images(self, first: int, frames_db: np.ndarray) -> None:
        """Refuses a scan all of whose frames are known to be of one value, as the last ones of these are.

        Raises:
            InputError: it is one.
        """
        if len(self._constant) == self.n_frames:
            where = self._name_of(first) if self.n_frames == 1 else f"every frame from {self._name_of(first)} on"
            found = f"{where} is constant ({frames_db.flat[-1]:g} dB everywhere)"
            raise InputError(self.path, found, "frames with an image in them")

    def _look_at_colours(
        self, pictures: list[Picture], images: list[np.ndarray], seek_tints: bool = True
    ) -> tuple[str, ...]:
        """Finds out what the colours of some frames mean in each of the images ``(H, W)`` bool; what to tell of it.

        Raises:
            InputError: they are all over.
        """
        pictures = [self._in_bytes(picture) for picture in pictures]
        if all(picture.grey() is None for picture in pictures):
            return ()
        image, notes = np.logical_or.reduce(images), tuple[str, ...]()
        self._colours = find_colours(pictures, images) if seek_tints else Colours()
        if self._colours.tints:
            notes += ("The B-mode is tinted: its luma is dehazed, its tint is kept.",)
        if (share := self._colours.share_left(pictures, image)) > 0:
            notes += (f"Colour is left as it is: {100 * share:.2g} % of the pixels in the image.",)
        if self._colours.all_over(pictures, image):
            if not self.reading.force:
                raise self._no_b_mode("colour all over the image")
            notes += ("Not grey-scale B-mode (colour all over the image), dehazed all the same.",)
        return notes

    def _read_with_mask(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        frames_db, masks = self._frames_with_masks(start, stop)
        constant = [row for row, frame_db in enumerate(frames_db) if frame_db.min() == frame_db.max()]
        if constant:
            self.check_unchanged()  # what is missing of a file is black to the HDF5 library
        for row in constant:
            masks[row] = np.zeros(self.shape, bool)
        self._constant.update(self.source.first_frame + start + row for row in constant)
        self._check_images(self.source.first_frame, frames_db)
        if constant and OF_ONE_VALUE not in self.source.assumptions:
            self.source = replace(self.source, assumptions=(*self.source.assumptions, OF_ONE_VALUE))
        if all(mask is None for mask in masks):
            return frames_db, None
        everywhere = np.ones(self.shape, bool)
        return frames_db, np.stack([everywhere if mask is None else mask for mask in masks])

    def _frames_with_masks(self, start: int, stop: int) -> tuple[np.ndarray, list[np.ndarray | None]]:
        """Frames in dB, and which pixels of each are B-mode; None where that is all of them."""
        if self._opened().picture is None:
            return self.read_db(start, stop), [None] * (stop - start)
        frames_db = np.empty((stop - start, *self.shape), np.float32)
        masks, first = list[np.ndarray | None](), self.source.first_frame
        with self._errors():
            for row, index in enumerate(range(first + start, first + stop)):
                picture = self._picture(index)
                frames_db[row] = self._to_db(picture.levels, index)
                masks.append(self._colours.b_mode(self._in_bytes(picture)))
        return frames_db, masks

    def _opened(self) -> StoredCine:
        """The frames, in a file that this very process has opened: handles do not survive a fork."""
        if self._stored is None or self._opened_by != os.getpid():
            self._opened_by = os.getpid()
            with spending(self.path), self._errors():
                stored = in_metres(self._open())
                self._stored = turned(stored) if self._lies_on_its_side else stored
                check_frames(self._stored.shape, self.path)
        return self._stored

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_file", "_stored")}

    def read(self, start: int = 0, stop: int | None = None) -> Cine:
        try:
            return super().read(start, stop)
        except InputError:
            self.check_unchanged()
            raise

    def check_unchanged(self) -> None:
        try:
            self._fingerprint.check()
        except InputError:
            if not self.path.exists() or sha256_of(self.path) != self.source.sha256:
                raise

    def read_db(self, start: int, stop: int) -> np.ndarray:
        stored, first = self._opened(), self.source.first_frame
        frames_db = np.empty((stop - start, *self.shape), dtype=np.float32)
        with self._errors():
            for row, index in enumerate(range(first + start, first + stop)):
                frames_db[row] = self._to_db(stored.read(index), index)
        return frames_db

    def _to_db(self, values: np.ndarray, index: int) -> np.ndarray:
        """``(H, W)`` stored values of frame ``index`` of the file as float32 dB, checked."""
        return self._numbers_to_db(values, self._name_of(index))

    def _numbers_to_db(self, values: np.ndarray, where: str) -> np.ndarray:
        """The same, of a frame that messages call ``where``."""
        usable = np.isfinite(values)
        if not usable.all():
            outside = gaps_outside(values)
            values, usable = np.where(outside, self._scale.floor, values), usable | outside
        if self._scale.units == "dB":
            usable |= np.isneginf(values)  # log of a zero echo: the floor
        if not usable.all():
            bad = values.size - int(np.count_nonzero(usable))
            raise InputError(
                self.path,
                f"{where} has {bad} values that are not numbers (NaN or infinite)",
                advice=self._advice,
            )
        return self._scale.to_db(values)

    @property
    def _advice(self) -> str:
        """On a frame that cannot be used."""
        several = self._opened().shape[0] > 1
        return "take the frames before it, or those after it, with --frames" if several else ""

    def _name_of(self, index: int) -> str:
        """What messages call frame ``index`` of the file."""
        dataset = self._opened().dataset
        return f"frame {index} of dataset {dataset!r}" if dataset else f"frame {index}"

    def close(self) -> None:
        if self._file is not None and self._opened_by == os.getpid():
            self._file.close()
        self._file = self._stored = None


def sector_frames(shape: tuple[int, int, int], most: int) -> list[int]:
    """Which frames of a scan the sector finder is shown: from all over it, whichever are read afterwards.

    Args:
        shape: ``(T, H, W)`` of the scan.
        most: frames to choose among, evenly spread; fewer where they would fill more than `SECTOR_BYTES` as float32.
    """
    n_frames, height, width = shape
    most = min(most, n_frames, max(1, SECTOR_BYTES // (4 * height * width)))
    spread = np.linspace(0, n_frames - 1, most).round().astype(int)
    return [int(index) for index in spread[frames_used(most)]]
