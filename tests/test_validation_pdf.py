"""The report for print: page count and size, nothing that names a patient, text that stays within its bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont, PdfParser

from usdehaze.cine import Cartesian, Cine, Source
from usdehaze.result import Result
from usdehaze.validation.command import run
from usdehaze.validation.evaluate import evaluate_cine, metrics_document
from usdehaze.validation.pdf import INNER_PX, MARGIN_PX, PAGE_PX, append_page, cine_page, provenance, shorten, wrap
from usdehaze.validation.regions import AUTOMATIC, Region, Regions

ATTRS = {
    "usdehaze_version": "9.8.7",
    "tissue_prior": "mine sha256:" + "ab" * 32,
    "haze_prior": "none (Gaussian noise)",
    "preset": "fast",
    "steps": 32,
    "seed": 5,
    "source_name": "Doe^Jane.dcm",
    "assumptions": "PatientID 4711",
    "PatientName": "Doe^Jane",
}


def measured(
    shape: tuple[int, int, int], origin: str = "given", truth: bool = False
) -> tuple[dict[str, np.ndarray], Regions, dict[str, Any]]:
    """Frames, regions and figures of a cine whose right half was darkened."""
    n_frames, height, width = shape
    frames = np.random.default_rng(1).uniform(-40, -5, shape).astype(np.float32)
    tissue = frames.copy()
    tissue[:, :, width // 2 :] -= 10
    masks = np.zeros((2, 1, height, width), dtype=bool)
    masks[0, 0, 4:-4, 4 : width // 2 - 4], masks[1, 0, 4:-4, width // 2 + 4 : -4] = True, True
    everywhere = frozenset(range(n_frames))
    both = (Region(role, role, mask, everywhere) for role, mask in zip(("tissue", "haze"), masks, strict=True))
    regions = Regions(tuple(both), shape, "rois.json", origin)
    records = evaluate_cine("a", frames, tissue, regions, truth_db=frames if truth else None)
    where = {"origin": origin, "source": "rois.json", "margin_px": 0.0}
    return (
        {"input": frames, "tissue": tissue, "haze": frames - 6},
        regions,
        metrics_document(records, None, regions=where),
    )


def ink(page: Image.Image) -> np.ndarray:
    """Where a page is not white."""
    return (np.asarray(page) < 200).any(axis=2)


def test_a_report_has_one_a4_page_for_each_result_and_the_same_bytes_again(tmp_path: Path) -> None:
    from usdehaze.io.result import write_result

    results = []
    for name in ("a", "b", "c"):
        images, _, _ = measured((2, 40, 60))
        cine = Cine(images["input"], Cartesian(), 60.0, None, Source(name="Doe^Jane.h5"))
        made = Result(cine, images["tissue"], images["haze"], None, {"seed": 3})
        results.append(tmp_path / f"{name}.dehazed.h5")
        write_result(results[-1], made)
    labels = np.zeros((40, 60), dtype=np.uint8)
    labels[:, :28], labels[:, 32:] = 255, 128
    Image.fromarray(labels).save(tmp_path / "r.png")
    arguments = (results, True, None, tmp_path / "r.png", None)
    for folder in ("one", "two"):
        assert run(*arguments, tmp_path / folder, True, pytest.fail) == 0
    first, second = ((tmp_path / folder / "report.pdf").read_bytes() for folder in ("one", "two"))
    assert first == second
    with PdfParser.PdfParser(tmp_path / "one" / "report.pdf") as pdf:
        assert len(pdf.pages) == 3
        for reference in pdf.pages:
            box = pdf.read_indirect(reference)[b"MediaBox"]
            assert box == pytest.approx([0, 0, 210 / 25.4 * 72, 297 / 25.4 * 72], abs=0.5)
        assert [key.name_as_str() for key in pdf.info] == ["Title"] and pdf.info.Title == "usdehaze report"
    assert not re.search(rb"Doe|Jane|D:20\d\d", first)  # no name, no date, in what is not compressed


def test_a_report_of_results_that_cannot_be_read_leaves_no_pdf(tmp_path: Path) -> None:
    bad = [tmp_path / f"{name}.dehazed.h5" for name in "ab"]
    for path in bad:
        path.write_bytes(b"no result")
    with pytest.raises(Exception, match="none of 2 results"):
        run(bad, True, None, Path("auto"), None, tmp_path / "report", True, pytest.fail)
    assert not (tmp_path / "report").exists()


def test_provenance_says_how_it_was_made_and_nothing_of_the_patient() -> None:
    _, _, document = measured((2, 40, 60))
    pairs = dict(provenance(ATTRS, document["settings"]))
    assert pairs["usdehaze"] == "9.8.7" and pairs["tissue prior"] == "mine sha256:abababababab"
    assert pairs["haze prior"] == "none (Gaussian noise)" and pairs["settings"] == "preset fast, steps 32, seed 5"
    assert pairs["figures"] == "mean over 2 frames, 704 pixels of tissue, 704 pixels of haze"
    assert "frames of this cine" in pairs["intervals"] and pairs["regions"] == "rois.json"
    assert not re.search("Jane|4711", str(pairs))


def test_a_page_does_not_depend_on_attributes_that_may_name_a_patient() -> None:
    images, regions, document = measured((1, 40, 60))
    pages = [
        cine_page("a", images, 60.0, regions, 0, document, {key: ATTRS[key] for key in keys})
        for keys in (list(ATTRS), list(ATTRS)[:6])
    ]
    assert pages[0].tobytes() == pages[1].tobytes()


@pytest.mark.parametrize("shape", [(1, 300, 40), (1, 40, 400), (2, 60, 60)])
def test_a_page_keeps_its_margins_whatever_the_names_lengths_and_shapes(shape: tuple[int, int, int]) -> None:
    images, regions, document = measured(shape, AUTOMATIC, truth=True)
    document["settings"]["warnings"] *= 4
    long = {**ATTRS, "tissue_prior": "p" * 400, "preset": "words " * 100}
    page = cine_page("n" * 300 + ".h5", images, 60.0, regions, 0, document, long)
    assert page.size == PAGE_PX
    dark = ink(page)
    inside = np.s_[MARGIN_PX:-MARGIN_PX, MARGIN_PX:-MARGIN_PX]
    assert dark[inside].sum() == dark.sum() > 10_000
    assert dark[:, -MARGIN_PX - 40 : -MARGIN_PX].any()  # the right column is used


def test_pictures_show_the_middle_frame_with_its_regions() -> None:
    images, regions, document = measured((3, 60, 60))
    marked = {name: cine.copy() for name, cine in images.items()}
    marked["input"][1] = 0  # white, but for the outlines
    page = np.asarray(cine_page("a", marked, 60.0, regions, 0, document, ATTRS))
    third = page[: PAGE_PX[1] // 2, MARGIN_PX : MARGIN_PX + INNER_PX // 3]
    green = (third[..., 1] > 200) & (third[..., 0] < 120) & (third[..., 2] < 140)
    orange = (third[..., 0] > 200) & (third[..., 2] < 90)
    assert green.sum() > 300 and orange.sum() > 300
    other = {name: cine.copy() for name, cine in images.items()}
    for cine in other.values():
        cine[[0, 2]] = -60  # frames that are not shown
    again = [np.asarray(cine_page("a", i, 60.0, regions, 0, document, ATTRS)) for i in (images, other)]
    assert (again[0] == again[1]).all()


def test_text_is_shortened_in_the_middle_and_wrapped_at_blanks() -> None:
    font = ImageFont.load_default(20)
    width = font.getlength("abcdef...uvwxyz")
    short = shorten("abcdefghijklmnopqrstuvwxyz", font, width)
    assert short.startswith("abcde") and short.endswith("wxyz") and "..." in short and font.getlength(short) <= width
    assert shorten("short", font, 500) == "short"
    words = "one two three four five six seven eight nine ten"
    lines = wrap(words, font, 110)
    assert " ".join(lines) == words and all(font.getlength(line) <= 110 for line in lines)
    cut = wrap(words, font, 110, 2)
    assert len(cut) == 2 and cut[1].endswith(" ...") and font.getlength(cut[1]) <= 110


def test_a_page_is_stored_as_one_picture_of_its_pixels(tmp_path: Path) -> None:
    images, regions, document = measured((1, 40, 60))
    page = cine_page("a", images, 60.0, regions, 0, document, ATTRS)
    append_page(tmp_path / "one.pdf", page, first=True)
    data = (tmp_path / "one.pdf").read_bytes()
    start = data.index(b"\xff\xd8\xff")  # the JPEG in it
    (tmp_path / "one.jpg").write_bytes(data[start : data.index(b"endstream", start)])
    stored = np.asarray(Image.open(tmp_path / "one.jpg")).astype(int)
    assert np.abs(stored - np.asarray(page)).mean() < 1


def test_pixels_that_are_not_square_are_printed_in_their_proportions() -> None:
    images, regions, document = measured((2, 60, 60))
    ratios = []
    for row_per_column in (1.0, 0.5):
        page = np.asarray(cine_page("a", images, 60.0, regions, 0, document, ATTRS, row_per_column)).astype(int)
        green = (page[..., 1] - page[..., [0, 2]].max(axis=2) > 60)[:, : MARGIN_PX + INNER_PX // 3 - 12]
        rows, columns = np.nonzero(green)  # the outline of the tissue region, 22 pixels wide and 52 high
        ratios.append(np.ptp(rows) / np.ptp(columns))
    assert ratios == pytest.approx([52 / 22, 26 / 22], rel=0.02)


def test_a_page_says_that_beams_lie_side_by_side() -> None:
    images, regions, document = measured((3, 60, 60))
    said = [ink(cine_page("a", images, 60.0, regions, 0, document, ATTRS, 1.0, beams)) for beams in (False, True)]
    rows, _ = np.nonzero(said[0] != said[1])
    assert rows.max() < MARGIN_PX + 70  # nothing but the line below the title
    of_line = [page[rows.min() : rows.max() + 1].sum() for page in said]
    assert of_line[1] > of_line[0] + 300
