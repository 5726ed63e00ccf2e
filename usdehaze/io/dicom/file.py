"""DicomFile: an opened DICOM file, its frames decoded one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset
from pydicom.uid import UID, JPEGBaseline8Bit, RLELossless
from scipy import ndimage

from usdehaze.errors import InputError
from usdehaze.io.dicom.codecs import PixelFormat, make_decoder, read_pixel_format
from usdehaze.io.dicom.colour import is_colour, make_picture
from usdehaze.io.dicom.evidence import (
    is_full_range,
    stored_plane,
    stream_layout,
    true_bits,
    true_colours,
    true_planes,
    true_shape,
)
from usdehaze.io.dicom.frames import frame_reader, frames_held
from usdehaze.io.dicom.header import (
    NATIVE_SYNTAXES,
    Header,
    items,
    misfit,
    numbers,
    open_header,
    sop_class,
    sop_instance,
    whole_number,
    word,
)
from usdehaze.io.dicom.native import BY_FILE, Layout, count_note, native_layout
from usdehaze.io.dicom.timing import find_frame_times
from usdehaze.io.dicom.video import VIDEO_SYNTAXES, VideoFrames
from usdehaze.io.picture import Picture
from usdehaze.io.run_marks import MARK
from usdehaze.io.stored_cine import StoredCine
from usdehaze.notes import Guess

Decode = Callable[[int], tuple[np.ndarray, str]]  # index in the file -> samples and their Photometric Interpretation


@dataclass(frozen=True)
class Levels:
    """How the stored values of grey frames become levels from 0 up.

    Attributes:
        low, high: stored values at black and white; the other way round for MONOCHROME1.
        full_scale: level of white.
        note: what was assumed, or "".
    """

    low: float
    high: float
    full_scale: float
    note: str = ""

    @property
    def as_stored(self) -> bool:
        """True where stored values are levels already."""
        return self.low == 0 and self.high > 0

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """``(H, W)`` stored values to levels; the very array where nothing changes, else float32."""
        if self.as_stored:
            return samples
        return np.clip((samples.astype(np.float32) - self.low) * np.sign(self.high - self.low), 0, None)


SURVEYED = Levels(0, 2**16 - 1, 2**16 - 1)  # of 16 bits only the largest value can tell


class DicomFile:
    """An opened ultrasound image, multi-frame image or secondary capture.

    Args:
        path: the file.
        all_levels: somebody has said which levels are black and white: they are of all stored values, not of a window.

    Attributes:
        header: everything in the file but the pixel data.
        pixel_format: size, colours and bits of the frames.
        n_frames: frames in the file.
        levels: of its grey frames.
        notes: where the bytes are not what the attributes say, one sentence each.

    Raises:
        InputError: anything in the file that stands in the way, in one line without a word from its attributes.
    """

    notes: tuple[str, ...] = ()
    _colours: str | None = None

    def __init__(self, path: Path, all_levels: bool = False) -> None:
        self.header = open_header(path)
        self._video: VideoFrames | None = None
        try:
            declared = read_pixel_format(self.header, path)
            said = whole_number(self.header.attributes, "NumberOfFrames", path, 0)
            if said < 0:
                raise InputError(path, f"{said} frames", "at least one")
            self.layout, self._decode = self._frames(declared, said or None, path)
            self.pixel_format, self.n_frames = self.layout.pixel_format, self.layout.n_frames
            self.levels = find_levels(self.header, self.pixel_format, path, all_levels)
            self._leave_out_padding()
            self._picture = make_picture(self.header.attributes, self.pixel_format, path)
            self.notes += self.layout.notes + notes_on_origin(self.header)
            self._check_colours()
            if not all_levels:
                self._check_white()
        except BaseException:
            self.close()
            raise

    def _frames(self, declared: PixelFormat, said: int | None, path: Path) -> tuple[Layout, Decode]:
        """Layout of the frames, and a function from a frame's index in the file to its samples and their colours."""
        header = self.header
        if not header.encapsulated:
            layout = true_planes(header, native_layout(header, declared, said, path))
            layout = true_shape(layout, partial(stored_plane, header, layout))
            labelled = header.attributes.file_meta.TransferSyntaxUID
            if labelled != header.transfer_syntax:
                note = f"The transfer syntax says {labelled.name}, but the file is {header.transfer_syntax.name}."
                layout = replace(layout, notes=(*layout.notes, note))
            return _from_bytes(header, layout, header.transfer_syntax, path)
        if header.transfer_syntax in VIDEO_SYNTAXES:
            video = self._video = VideoFrames(header, said or 1, declared, path)
            n_frames = video.count()
            if n_frames < (said or 1):
                advice = "the file may be cut off"
                raise InputError(path, f"video of {n_frames} frames", f"{said} as Number of Frames says", advice)
            notes = () if n_frames == said else (count_note(said, n_frames),)
            return Layout(declared, n_frames, notes), lambda index: video.read(index)
        held, notes = frames_held(header, path), ()
        n_frames = max(said or 1, held)
        if n_frames > (said or 1):
            notes = (count_note(said, n_frames),)
        first = frame_reader(header, n_frames, declared.frame_bytes, path)(0)
        pixel_format, syntax, told = stream_layout(first, declared, header.transfer_syntax)
        if syntax in NATIVE_SYNTAXES:
            raise misfit("encapsulated", syntax, path)
        if syntax == JPEGBaseline8Bit:  # with loss, whatever the label says
            self.header = replace(header, transfer_syntax=syntax)
        return _from_bytes(header, Layout(pixel_format, n_frames, (*notes, *told)), syntax, path)

    def _leave_out_padding(self) -> None:
        """Takes what pads grey frames out to a rectangle as black, where it is not."""
        padding = _padding_values(self.header.attributes, self.pixel_format)
        black, decode = max(int(self.levels.low), 0), self._decode
        if padding is None or self.levels(np.array(padding)).max() <= 0:
            return

        def without_padding(index: int) -> tuple[np.ndarray, str]:
            samples, photometric = decode(index)
            return np.where(_at_edges((samples >= padding[0]) & (samples <= padding[1])), black, samples), photometric

        self._decode = without_padding
        self.notes += ("Pixels around the image that have Pixel Padding Value are taken as black.",)

    def _check_colours(self) -> None:
        """Whether the first frame is a grey picture under its label, or under another one alone."""
        if self.pixel_format.samples != 3 or self.pixel_format.bits_allocated != 8 or self._video is not None:
            return
        try:
            samples, label = self._decode(0)
        except InputError:  # told where it is asked for
            return
        self._colours = true_colours(samples, label)
        if self._colours is None and label.startswith("YBR_PARTIAL") and is_full_range(samples[..., 0]):
            self._colours = "YBR_FULL"
            note = "The luma is labelled as one of 16 to 235, but has darker pixels: taken over its full range."
            self.notes += (Guess(note, BY_FILE),)
        elif self._colours is not None:
            was, now = ("YBR", "RGB") if self._colours == "RGB" else ("RGB", "YBR")
            note = f"The colours are labelled {was}, but read as {now} they make a grey picture."
            self.notes += (Guess(note, BY_FILE),)

    def _check_white(self) -> None:
        """Whether values are those of 8 or 12 bits under a label of at least two more, where no window says better."""
        levels, largest = self.levels, 2**self.pixel_format.bits_stored - 1
        whites = [white for white in (255, 4095) if white < largest // 2]
        if is_colour(self.pixel_format) or levels.note or levels == SURVEYED or not whites:
            return
        peak = 0
        for index in range(self.n_frames):
            with suppress(InputError):  # told where it is asked for
                peak = max(peak, int(self._decode(index)[0].max()))
            if peak > whites[-1]:
                return
        white = next(white for white in whites if peak <= white)
        low, high = (white, 0) if levels.low else (0, white)
        self.levels = Levels(low, high, white)
        note = f"Bits Stored says {self.pixel_format.bits_stored}, but no value is above {white}, taken as 0 dB."
        self.notes += (Guess(note, BY_FILE),)

    def picture(self, index: int) -> Picture:
        """Frame ``index`` of the file, decoded.

        Raises:
            InputError: it cannot be.
        """
        samples, photometric = self._decode(index)
        return self._picture(samples, self._colours or photometric)

    def levels_of(self, picture: Picture) -> np.ndarray:
        """``(H, W)`` levels of a frame: luma of a colour one."""
        return picture.levels if picture.rgb is not None else self.levels(picture.levels)

    def stored(self) -> StoredCine:
        """The frames as levels."""
        attributes, levels, colour = self.header.attributes, self.levels, is_colour(self.pixel_format)
        units, full_scale = "grey", levels.full_scale if levels != SURVEYED else None
        if colour or levels.full_scale == 255:
            units, full_scale = "8-bit", None
        times = find_frame_times(attributes, self.n_frames)
        stored_type = np.uint8 if colour or self.pixel_format.bits_allocated == 8 else np.uint16
        return StoredCine(
            layout=f"DICOM {sop_class(attributes).name}, {self.header.transfer_syntax.name}",
            dataset="PixelData",
            shape=(self.n_frames, self.pixel_format.rows, self.pixel_format.columns),
            dtype=np.dtype(stored_type if colour or levels.as_stored else np.float32),
            read=lambda index: self.levels_of(self.picture(index)),
            picture=(lambda index: self.picture(index)) if colour else None,
            units=units,
            full_scale=full_scale,
            frame_times_s=times.times_s,
            assumptions=self.notes + times.notes,
        )

    def close(self) -> None:
        """Closes the file."""
        self.header.file.close()
        if self._video is not None:
            self._video.close()


def _from_bytes(header: Header, layout: Layout, syntax: UID, path: Path) -> tuple[Layout, Decode]:
    """The decoder of frames that lie in the file one by one, and the layout as a frame in the middle has it."""
    stored = frame_reader(header, layout.n_frames, layout.pixel_format.frame_bytes, path, layout.gap)
    middle = layout.n_frames // 2
    if syntax == RLELossless:
        said = layout.pixel_format

        def plane() -> np.ndarray:
            samples, _ = make_decoder(syntax, said, path)(stored(middle), middle)
            return (samples[..., 0] if samples.ndim == 3 else samples).ravel()

        with suppress(InputError):  # told where it is asked for
            layout = true_shape(layout, plane)
    if layout.pixel_format.shift:
        words, _ = make_decoder(syntax, layout.pixel_format.whole_words, path)(stored(middle), middle)
        layout = true_bits(layout, words)
    decode = make_decoder(syntax, layout.pixel_format, path)
    return layout, lambda index: decode(stored(index), index)


def notes_on_origin(header: Header) -> tuple[str, ...]:
    """What to tell of where the image comes from, one sentence each."""
    notes, made = [], items(header.attributes, "ContributingEquipmentSequence")
    if any(MARK in word(item, "ContributionDescription") for item in made):
        notes.append("The image was made by usdehaze: it is dehazed already, or the haze.")
    if not sop_instance(header.attributes):
        notes.append("No SOP Instance UID in the file: a derived image does not say what it was made from.")
    if not word(header.attributes, "StudyInstanceUID"):
        notes.append("No Study Instance UID in the file: a derived image is of a study of its own.")
    return tuple(notes)


def find_levels(header: Header, pixel_format: PixelFormat, path: object, all_levels: bool = False) -> Levels:
    """How the stored values of grey frames become levels, by Photometric Interpretation, bits, rescale and window.

    With ``all_levels`` the window does not matter.

    Raises:
        InputError: a table of values (Modality LUT) goes before the window, or another stands in its place.
    """
    largest = 2**pixel_format.bits_stored - 1
    slope, intercept = rescale(header.attributes)
    low, high, note = (0.0, float(largest), "") if slope > 0 else (float(largest), 0.0, "")
    if pixel_format.photometric.startswith("MONOCHROME") and items(header.attributes, "ModalityLUTSequence"):
        raise InputError(path, "grey levels by a table (Modality LUT)", "Rescale Slope and Intercept, or neither")
    centre, width = (numbers(header.attributes, f"Window{name}")[:1] for name in ("Center", "Width"))
    if pixel_format.bits_stored <= 8 or all_levels:
        centre = width = []
    elif not (centre and width) and items(header.attributes, "VOILUTSequence"):
        advice = "say --levels BLACK:WHITE to go without"
        raise InputError(path, "grey levels by a table (VOI LUT)", "a window, or neither", advice)
    if centre and width and 1 < width[0] < 2**17 and abs(centre[0]) < 2**17:
        ends = (centre[0] - 0.5 + side * (width[0] - 1) / 2 for side in (-1, 1))  # PS3.3 C.11.2.1.2.1
        low, high = ((end - intercept) / slope for end in ends)  # the window is of rescaled values (C.11.1)
        note = "The window in the file spans the dynamic range."
    if pixel_format.photometric == "MONOCHROME1":
        low, high = high, low
    return Levels(low, high, abs(high - low), note)


def rescale(attributes: Dataset) -> tuple[float, float]:
    """Rescale Slope (0028,1053) and Intercept (0028,1052): 1 and 0 where there are none, or none that can be used."""
    slope, intercept = (numbers(attributes, f"Rescale{name}") for name in ("Slope", "Intercept"))
    usable = len(slope) == 1 and math.isfinite(slope[0]) and slope[0] != 0
    shifted = len(intercept) == 1 and math.isfinite(intercept[0])
    return slope[0] if usable else 1.0, intercept[0] if shifted else 0.0


def _padding_values(attributes: Dataset, pixel_format: PixelFormat) -> tuple[int, int] | None:
    """Lowest and highest stored value of pixels that are no image (0028,0120 and 0121); None of colours or of none."""
    ends = numbers(attributes, "PixelPaddingValue")[:1] + numbers(attributes, "PixelPaddingRangeLimit")[:1]
    usable = ends and all(0 <= end < 2**pixel_format.bits_stored for end in ends)
    return (int(min(ends)), int(max(ends))) if usable and not is_colour(pixel_format) else None


def _at_edges(mask: np.ndarray) -> np.ndarray:
    """The parts ``(H, W)`` bool of a mask that reach the edges of the frame: those inside are image."""
    parts, _ = ndimage.label(mask)
    edges = np.concatenate([parts[0], parts[-1], parts[:, 0], parts[:, -1]])
    return np.isin(parts, np.unique(edges[edges > 0]))
