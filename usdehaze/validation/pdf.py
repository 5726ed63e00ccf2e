"""A report for print: a PDF with one A4 page for each cine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from usdehaze.validation.regions import AUTOMATIC, FAINT, Regions
from usdehaze.validation.report import TITLES, regions_in_words, summary_rows, tile

DPI = 150
PAGE_PX = (1240, 1754)  # A4
MARGIN_PX = 90
INNER_PX = PAGE_PX[0] - 2 * MARGIN_PX
GAP_PX = 12
LEAST_PICTURE_PX = 240  # height; estimators are cut before pictures get lower
TITLE, TEXT, SMALL = 30, 18, 15  # heights of the type in pixels: 14, 9 and 7 points
LEADING = 1.35
BLACK, GREY, RULE = (0, 0, 0), (90, 90, 90), (190, 190, 190)
HASH_LETTERS = 12
NAME_RIGHT, ESTIMATOR_LEFT = 215, 650  # of the columns of the table, from the margin
NUMBERS = (("input", 290), ("tissue", 370), ("change", 450), ("95 % interval", 625))  # and their right ends
VALUE_LEFT = 130  # of the pairs below it
CAPTIONS = {"input": "input", "tissue": "tissue estimate", "haze": "haze estimate"}
# What a result says about how it was made. Nothing else is printed: other attributes can name a patient.
SETTINGS = ("preset", "guidance", "observation", "sampler", "steps", "samples", "caution", "strength", "seed")
CLUSTERS = {"frame": "frames of this cine", "block of pixels": "blocks of pixels of this frame"}
ADVICE = (
    "Look at the haze estimate first: a wall that shows up there was taken from the tissue. gCNR rises when a chamber "
    "is merely blackened: read it with KS and shift of the tissue region. What the brightest haze hides is not known."
)
PURPOSE = "For research use, not for diagnosis."

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def cine_page(
    name: str,
    images_db: dict[str, np.ndarray],
    dynamic_range_db: float,
    regions: Regions | None,
    first_frame: int,
    document: dict[str, Any],
    attrs: dict[str, Any],
    row_per_column: float = 1.0,
    beams: bool = False,
) -> Image.Image:
    """The page of one cine: pictures of the middle one of the frames measured, figures, provenance, warnings.

    Args:
        name: what the cine is called in the other files of the report.
        images_db: "input", "tissue" and "haze", ``(T, H, W)`` in dB.
        dynamic_range_db: dB from black to white.
        regions: outlined, or None.
        first_frame: index in the source of frame 0.
        document: Metrics JSON of this cine alone.
        attrs: root attributes of the result; printed are `SETTINGS`, the version and the priors, nothing else.
        row_per_column: how much further apart rows are than columns.
        beams: columns are beams, which are shown side by side and not as a fan: the page says so.

    Returns:
        RGB image of `PAGE_PX`.
    """
    frames = list(range(len(images_db["input"])))
    if regions is not None:
        frames = regions.frames() or regions.frames((FAINT,))
    t = frames[len(frames) // 2]
    page = _Sheet()
    page.line(name, TITLE)
    shown = f"frame {first_frame + t} (the first is 0), {dynamic_range_db:g} dB from black to white"
    page.line(f"{shown}, beams side by side" if beams else shown, TEXT, GREY)
    if regions is not None:
        page.line(_outlines(regions), TEXT, GREY)
    for most_lines in (9, 3, 2, 1):  # of an estimator
        below = _Sheet()
        below.table(document, most_lines)
        below.pairs(provenance(attrs, document["settings"]))
        for warning in document["settings"]["warnings"]:
            below.paragraph(f"Note: {warning}.")
        below.paragraph(ADVICE)
        below.line(PURPOSE, TEXT)
        room = PAGE_PX[1] - 2 * MARGIN_PX - page.y - below.y
        if room >= LEAST_PICTURE_PX:
            break
    tiles = {CAPTIONS[key]: tile(cine[t], dynamic_range_db, regions, t) for key, cine in images_db.items()}
    page.pictures(tiles, room, row_per_column)
    full = Image.new("RGB", PAGE_PX, "white")
    for sheet, top in ((page, MARGIN_PX), (below, MARGIN_PX + page.y)):
        full.paste(sheet.image.crop((0, 0, INNER_PX, sheet.y)), (MARGIN_PX, top))
    return full


def append_page(path: Path, page: Image.Image, first: bool) -> None:
    """Adds a page to a PDF, or begins it. Holds no date: the same pages give the same bytes.

    Args:
        path: the file, written in place.
        page: RGB image of `PAGE_PX`.
        first: begin the file with this page.
    """
    begin: dict[str, Any] = {"title": "usdehaze report", "creationDate": None, "modDate": None} if first else {}
    page.save(path, format="PDF", append=not first, resolution=DPI, quality=92, subsampling=0, **begin)


def provenance(attrs: dict[str, Any], settings: dict[str, Any]) -> list[tuple[str, str]]:
    """How a result and its figures were made, in pairs of words; hashes are cut to 12 letters.

    Args:
        attrs: root attributes of the result.
        settings: of its Metrics JSON.
    """
    pairs = [("usdehaze", str(attrs.get("usdehaze_version", "unknown")))]
    networks = ("posterior", "tissue_prior", "haze_prior") if "posterior" in attrs else ("tissue_prior", "haze_prior")
    for key in networks:
        name, _, digest = str(attrs.get(key, "unknown")).partition(" sha256:")
        pairs.append((key.replace("_", " "), f"{name} sha256:{digest[:HASH_LETTERS]}" if digest else name))
    pairs.append(("settings", ", ".join(f"{key} {attrs[key]}" for key in SETTINGS if key in attrs)))
    counted = [f"mean over {settings['n_frames']} frames" if settings["n_frames"] > 1 else "of one frame"]
    for role, (low, high) in settings["n_pixels_range"].items():
        counted.append(f"{low if low == high else f'{low} to {high}'} pixels of {role}")
    pairs.append(("figures", ", ".join(counted)))
    cluster = CLUSTERS[settings["ci95_cluster"]]
    pairs.append(("intervals", f"95 %, resampled {cluster}; they say nothing of other patients"))
    if "regions" in settings:
        pairs.append(("regions", regions_in_words(settings["regions"]).removeprefix("regions: ")))
    return pairs


def shorten(text: str, font: Font, width_px: float) -> str:
    """The text, or its beginning and end with dots between them where it is wider than that."""
    if font.getlength(text) <= width_px:
        return text
    for kept in range(len(text) - 1, 0, -1):
        short = f"{text[: (kept + 1) // 2]}...{text[len(text) - kept // 2 :]}"
        if font.getlength(short) <= width_px:
            return short
    return "..."


def wrap(text: str, font: Font, width_px: float, most_lines: int = 99) -> list[str]:
    """The text in lines no wider than that, broken at blanks; the last one ends in dots where there would be more."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width_px:
            lines[-1] = longer
        elif len(lines) == most_lines:
            lines[-1] = _ending_in_dots(lines[-1], font, width_px)
            break
        else:
            lines.append(shorten(word, font, width_px))
    return lines


def _ending_in_dots(line: str, font: Font, width_px: float) -> str:
    while line and font.getlength(line + " ...") > width_px:
        line = line[:-1].rstrip()
    return line + " ..."


def _outlines(regions: Regions) -> str:
    automatic = f" ({AUTOMATIC} regions)" if regions.origin == AUTOMATIC else ""
    faint = ", blue: faint region" if any(region.role == FAINT for region in regions.regions) else ""
    return f"green: tissue region, orange: haze region{faint}{automatic}"


class _Sheet:
    """What lies between the margins of a page, filled from the top.

    Attributes:
        image: RGB, as wide as the page without its margins.
        y: where the next thing goes, pixels.
    """

    def __init__(self) -> None:
        self.image = Image.new("RGB", (INNER_PX, 2 * PAGE_PX[1]), "white")
        self.draw = ImageDraw.Draw(self.image)
        self.y = 0

    def line(self, text: str, size: int, colour: tuple[int, int, int] = BLACK) -> None:
        """One line, shortened in the middle where it is too long."""
        font = _font(size)
        self.draw.text((0, self.y), shorten(text, font, INNER_PX), fill=colour, font=font)
        self.y += round(LEADING * size)

    def paragraph(self, text: str) -> None:
        """As many small lines as it takes."""
        for line in wrap(text, _font(SMALL), INNER_PX):
            self.line(line, SMALL)
        self.y += GAP_PX // 2

    def pictures(self, tiles: dict[str, np.ndarray], room_px: int, row_per_column: float) -> None:
        """Pictures of one size side by side under their captions, as large as width and ``room_px`` allow."""
        room_px -= round(LEADING * TEXT) + 2 * GAP_PX
        height, width = next(iter(tiles.values())).shape[:2]
        across = (INNER_PX - (len(tiles) - 1) * GAP_PX) // len(tiles)
        height *= row_per_column
        scale = min(across / width, room_px / height)
        size = max(1, round(scale * width)), max(1, round(scale * height))
        self.y += GAP_PX
        for i, (caption, pixels) in enumerate(tiles.items()):
            left = i * (across + GAP_PX)
            self.draw.text((left, self.y), caption, fill=BLACK, font=_font(TEXT))
            picture = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)
            self.image.paste(picture, (left, self.y + round(LEADING * TEXT)))
        self.y += round(LEADING * TEXT) + size[1] + GAP_PX

    def table(self, document: dict[str, Any], most_lines: int) -> None:
        """Metrics with intervals and estimators; an estimator takes at most ``most_lines``."""
        text, small = _font(TEXT), _font(SMALL)
        for head, right in NUMBERS:
            self._right(head, right, GREY)
        self.draw.text((ESTIMATOR_LEFT, self.y), "estimator", fill=GREY, font=text)
        self.y += round(LEADING * TEXT)
        for row in summary_rows(document):
            self.draw.line((0, self.y, INNER_PX, self.y), fill=RULE)
            self.y += 4
            self.draw.text(
                (0, self.y), shorten(TITLES.get(row.name, row.name), text, NAME_RIGHT), fill=BLACK, font=text
            )
            values = (row.input, row.tissue, row.delta, row.interval)
            for (_, right), value in zip(NUMBERS, values, strict=True):
                self._right("" if value == "-" else value, right)
            lines = wrap(row.estimator, small, INNER_PX - ESTIMATOR_LEFT, most_lines)
            for i, line in enumerate(lines):
                at = ESTIMATOR_LEFT, self.y + 1 + i * round(1.2 * SMALL)
                self.draw.text(at, line, fill=GREY, font=small)
            self.y += max(round(LEADING * TEXT), len(lines) * round(1.2 * SMALL) + 4)
        self.draw.line((0, self.y, INNER_PX, self.y), fill=RULE)
        self.y += GAP_PX

    def pairs(self, pairs: list[tuple[str, str]]) -> None:
        """Names and values, two lines each at most."""
        small = _font(SMALL)
        for name, value in pairs:
            self.draw.text((0, self.y), name, fill=GREY, font=small)
            for line in wrap(value, small, INNER_PX - VALUE_LEFT, 2):
                self.draw.text((VALUE_LEFT, self.y), line, fill=BLACK, font=small)
                self.y += round(LEADING * SMALL)
        self.y += GAP_PX

    def _right(self, text: str, right: int, colour: tuple[int, int, int] = BLACK) -> None:
        font = _font(TEXT)
        self.draw.text((right - font.getlength(text), self.y), text, fill=colour, font=font)


def _font(size: int) -> Font:
    """The typeface that comes with Pillow."""
    return ImageFont.load_default(size)
