"""Figures of a result as a DICOM structured report (PS3.16 TID 1500, Measurement Report), beside its images.

A group of measurements (TID 1501) is of one kind of pixels (its finding) and of the input, the output, or the change
from one to the other; it refers to the frames that were measured: of the output those of the derived image, or where
that is not there those of the source. Means over these frames come with the ends of their
intervals. Concepts of our own have the coding scheme `SCHEME` and the names of the Metrics JSON. Nothing that anybody
has typed, such as a region's name, gets into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydicom.dataset import Dataset
from pydicom.uid import generate_uid

import usdehaze
from usdehaze.errors import InputError
from usdehaze.optional import needed
from usdehaze.provenance import describe
from usdehaze.validation.regions import AUTOMATIC, FAINT
from usdehaze.validation.report import TITLES

SCHEME = "99USDEHAZE"
ULTRASONOGRAPHY = ("16310003", "SCT", "Ultrasonography")
MEAN = ("373098007", "SCT", "Mean")
ENDS = (("ci95_low", SCHEME, "lower end of the 95 % interval"), ("ci95_high", SCHEME, "upper end of the 95 % interval"))
FINDINGS = {
    "tissue": ("region_tissue", SCHEME, "Region of tissue"),
    "haze": ("region_haze", SCHEME, "Region of haze"),
    FAINT: ("region_faint", SCHEME, "Region of faint walls"),
    "both": ("regions_both", SCHEME, "Regions of tissue and of haze"),
    "image": ("image", SCHEME, "Whole image"),
}
OF_BOTH = {"gcnr", "gcnr_corrected", "cnr", "cnr_linear", "contrast_db"}
PARTS = {"input": "input", "tissue": "output", "delta": "change"}  # of the Metrics JSON, and in words
METHODS = {
    True: ("regions_found", SCHEME, "Regions found by brightness, drawn by nobody"),
    False: ("regions_given", SCHEME, "Regions given"),
}
DECIBELS, RATIO, PIXELS = ("dB", "UCUM", "decibel"), ("1", "UCUM", "no units"), ("{pixels}", "UCUM", "pixels")
NUMBER = 901  # of the series, added to 1000 times the source's


@dataclass(frozen=True)
class Subject:
    """The images that figures are of, and how the one was made of the other.

    Attributes:
        source: attributes of the DICOM image that was dehazed.
        derived: of the derived image of its tissue; None where there is none to refer to.
        first_frame: index in the source of the first frame of the result.
        version: of usdehaze that made the result.
        made_with: networks and settings in words.
        files: which they and the result lie in.
    """

    source: Dataset
    derived: Dataset | None
    first_frame: int
    version: str
    made_with: tuple[str, ...]
    files: tuple[Path, ...]


def subject_of(result: Path, given: Path | None = None) -> Subject:
    """What a report on a result refers to.

    Args:
        result: its file; images are looked for beside it.
        given: the DICOM image that it was made of, where that lies elsewhere.

    Raises:
        UsdehazeError: highdicom is not installed.
        InputError: see `usdehaze.io.dicom.companion.source_image`.
    """
    needed("highdicom", "report")
    from usdehaze.io.detect import DICOM_SUFFIX, beside_result
    from usdehaze.io.dicom.companion import source_image
    from usdehaze.io.result import open_result

    with open_result(result) as opened:
        path, source = source_image(result, opened.cine.source, given)
        told = [f"{field.key} {words}" for field, words in describe(opened.settings, "network", "setting")]
        return Subject(
            source,
            _derived(result, opened.run),
            opened.cine.source.first_frame,
            opened.usdehaze_version,
            tuple(text.encode("ascii", "replace").decode() for text in told),
            (result, path, beside_result(result, DICOM_SUFFIX)),
        )


def write_structured_report(path: Path, document: dict[str, Any], subject: Subject) -> None:
    """Writes the report, replacing one that is there: see `structured_report`.

    Raises:
        InputError: no figure to report, or the file cannot be written.
    """
    from usdehaze.io.dicom.companion import write_companion

    write_companion(path, structured_report(document, subject), True, subject.files)


def structured_report(document: dict[str, Any], subject: Subject) -> Dataset:
    """An Enhanced SR with the summary of a Metrics JSON, ready to be written.

    Args:
        document: of one result.
        subject: what it was measured on.

    Raises:
        InputError: no figure to report.
    """
    highdicom = needed("highdicom", "report")
    from usdehaze.io.dicom.companion import adopted, series_number_beside, stand_in
    from usdehaze.io.dicom.derive import IMPLEMENTATION

    groups = [*_groups(document, subject)]
    if not groups:
        raise InputError(subject.files[0], "no figure to report has a value")
    sr, images = highdicom.sr, [subject.source, *([subject.derived] if subject.derived else [])]
    device = sr.DeviceObserverIdentifyingAttributes(
        uid=IMPLEMENTATION, name="usdehaze", manufacturer_name="usdehaze", model_name=f"usdehaze {usdehaze.__version__}"
    )
    observer = sr.ObserverContext(
        observer_type=_code("121007", "DCM", "Device"), observer_identifying_attributes=device
    )
    content = sr.MeasurementReport(
        observation_context=sr.ObservationContext(observer_device_context=observer),
        procedure_reported=_code(*ULTRASONOGRAPHY),
        imaging_measurements=groups,
    )
    built = sr.EnhancedSR(
        evidence=[stand_in(image) for image in images],
        content=content[0],
        series_instance_uid=generate_uid(prefix=None),
        series_number=series_number_beside(subject.source, NUMBER),
        sop_instance_uid=generate_uid(prefix=None),
        instance_number=1,
        is_complete=True,
        series_description="Figures of haze removal (usdehaze)",
    )
    return adopted(built, subject.source)


def _groups(document: dict[str, Any], subject: Subject) -> Iterator[Any]:
    """The groups of measurements that hold any."""
    import highdicom

    sr = highdicom.sr
    estimators = document["settings"]["estimators"]
    regions = document["settings"].get("regions", {})
    automatic, margin_px = regions.get("origin") == AUTOMATIC, regions.get("margin_px")
    eroded = [f"regions eroded by {margin_px:g} pixels"] if margin_px else []
    dehazing = sr.AlgorithmIdentification("usdehaze", subject.version, subject.made_with)
    measured: dict[tuple[str, str], list[Any]] = {}
    for name, entry in document["summary"].items():
        for part, values in _values(entry):
            measurements = measured.setdefault((_pixels_of(name), part), [])
            how = [estimators[name], *(eroded if _pixels_of(name) != "image" else [])]
            algorithm = sr.AlgorithmIdentification(f"usdehaze {name}", usdehaze.__version__, how)
            for value, derivation in values:
                measurements.append(
                    sr.Measurement(
                        name=_code(name, SCHEME, TITLES.get(name, name)),
                        value=value,
                        unit=_code(*(DECIBELS if name.endswith("_db") else RATIO)),
                        derivation=_code(*derivation),
                        algorithm_id=algorithm,
                    )
                )
    for role, (low, high) in document["settings"]["n_pixels_range"].items():
        for part in {part for pixels, part in measured if pixels == role}:
            for words, count in (("fewest", low), ("most", high)):
                name = _code(f"{words}_pixels", SCHEME, f"pixels of the region in a frame, {words}")
                measured[role, part].append(sr.Measurement(name=name, value=count, unit=_code(*PIXELS)))
    for (pixels, part), measurements in sorted(measured.items()):
        figures = {name for name in document["summary"] if _pixels_of(name) == pixels}
        frames = sorted(record["frame"] for record in document["frames"] if figures & record.keys())
        before = [_reference(subject.source, [t + 1 for t in frames])]
        after = [_reference(subject.derived, [t - subject.first_frame + 1 for t in frames])] if subject.derived else []
        images = {"input": before, "tissue": after or before, "delta": before + after}
        yield sr.MeasurementsAndQualitativeEvaluations(
            tracking_identifier=sr.TrackingIdentifier(generate_uid(prefix=None), f"{pixels}, {PARTS[part]}"),
            finding_type=_code(*FINDINGS[pixels]),
            method=None if pixels == "image" else _code(*METHODS[automatic]),
            algorithm_id=None if part == "input" else dehazing,
            measurements=measurements,
            source_images=images[part],
        )


def _values(entry: dict[str, Any]) -> Iterator[tuple[str, list[tuple[float, tuple[str, str, str]]]]]:
    """Values of a figure with what each is, by parts; figures that compare output with input are of the change."""
    compares = entry["input"] is None
    for part in ("tissue",) if compares else ("input", "tissue", "delta"):
        if entry[part] is None:
            continue
        values = [(entry[part], MEAN)]
        if entry["ci95"] is not None and (compares or part == "delta"):
            values += zip(entry["ci95"], ENDS, strict=True)
        yield "delta" if compares else part, values


def _pixels_of(name: str) -> str:
    """Which pixels a figure is of, a key of `FINDINGS`."""
    if name in OF_BOTH:
        return "both"
    return next((role for role in (FAINT, "tissue", "haze") if role in name.split("_")), "image")


def _reference(image: Dataset, frames: list[int]) -> Any:
    """A reference to frames of an image, counted from 1."""
    import highdicom

    from usdehaze.io.dicom.companion import has_frame_numbers
    from usdehaze.io.dicom.header import sop_class, sop_instance

    told = frames if has_frame_numbers(image) else None
    return highdicom.sr.SourceImageForMeasurementGroup(sop_class(image), sop_instance(image), told)


def _code(value: str, scheme: str, meaning: str) -> Any:
    import highdicom

    return highdicom.sr.CodedConcept(value, scheme, meaning)


def _derived(result: Path, run: str) -> Dataset | None:
    """Attributes of the derived image of the tissue that the same run wrote beside a result."""
    from usdehaze.io.detect import DICOM_SUFFIX, beside_result
    from usdehaze.io.dicom.header import image_attributes
    from usdehaze.io.runs import run_of

    path = beside_result(result, DICOM_SUFFIX)
    return image_attributes(path) if run and path.is_file() and run_of(path) == run else None
