"""What a result says about itself: one table for files, DICOM text, MONAI metadata and the review page.

To add a setting, put it into the settings of the dehazer and give it a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from usdehaze.cine import Source

Kind = Literal["source", "result", "network", "setting"]


def in_words(value: Any) -> str:
    """A value as people read it; "" for None."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, tuple | list):
        return ", ".join(map(in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def in_db(value: float) -> str:
    """A number of dB as people read it."""
    return f"{value:g} dB"


def in_sentences(notes: str) -> str:
    """Notes that stand one a line, one after the other."""
    return " ".join(notes.split("\n"))


@dataclass(frozen=True)
class Field:
    """One row of the table.

    Attributes:
        name: of the attribute in a result file, and of the key in MONAI metadata.
        label: how it reads to people; "" where it is not for them.
        kind: where it comes from: "source" from the cine's `Source`, "network" and "setting" from the settings of the
            result, "result" from the result itself.
        words: from its value to how that reads.
        may_name_patient: shown only to those who ask for it.
    """

    name: str
    label: str
    kind: Kind
    words: Callable[[Any], str] = in_words
    may_name_patient: bool = False

    @property
    def key(self) -> str:
        """The name with blanks, where a label would be too long."""
        return self.name.replace("_", " ")


FIELDS = (  # in the order in which they are shown
    Field("source_name", "source", "source", may_name_patient=True),
    Field("source_dataset", "source dataset", "source", may_name_patient=True),
    Field("source_sha256", "source, SHA-256", "source"),
    Field("source_layout", "source layout", "source"),
    Field("source_units", "source values", "source"),
    Field("source_options", "read with", "source", may_name_patient=True),
    Field("source_frames", "", "source"),
    Field("first_frame", "", "source"),
    Field("notes", "notes", "source", words=in_sentences),  # everything that was guessed or left out
    Field("assumptions", "", "source"),  # the same: files had it before they had notes
    Field("usdehaze_version", "usdehaze version", "result"),
    Field("format", "", "result"),
    Field("format_version", "result format", "result"),
    Field("created", "result made", "result"),
    Field("digest", "", "result"),  # of the file that it was in
    Field("run", "", "result"),  # which made the file, see usdehaze.io.runs
    Field("posterior", "learned posterior", "network"),
    Field("tissue_prior", "tissue prior", "network"),
    Field("haze_prior", "haze prior", "network"),
    Field("preset", "preset", "setting"),
    Field("own_settings", "settings that are not the preset's", "setting"),
    Field("guidance", "guidance", "setting"),
    Field("observation", "observation model", "setting"),
    Field("sampler", "sampler", "setting"),
    Field("steps", "steps", "setting"),
    Field("scale", "guidance scale (tissue, haze)", "setting"),
    Field("from_guess", "starts from a first guess", "setting"),
    Field("sigma_max", "first noise level", "setting"),
    Field("sigma_min", "last noise level", "setting"),
    Field("samples", "posterior samples", "setting"),
    Field("caution", "caution", "setting"),
    Field("strength", "strength", "setting"),
    Field("seed", "seed", "setting"),
    Field("evaluations", "network evaluations a frame", "setting"),
    Field("device", "device", "setting"),
    Field("engine", "engine", "setting"),
    Field("precision", "precision", "setting"),
    Field("dynamic_range_db", "dynamic range", "result", words=in_db),
)


def describe(attributes: Mapping[str, Any], *kinds: Kind) -> Iterator[tuple[Field, str]]:
    """Every row for people that has a value among the attributes, in order, and the value in words.

    Args:
        attributes: values by the names of the table; other names are passed over.
        kinds: of the rows; all by default.
    """
    for field in FIELDS:
        value = attributes.get(field.name)
        words = "" if value is None else field.words(value)
        if words and field.label and (not kinds or field.kind in kinds):
            yield field, words


def attributes_of(
    settings: Mapping[str, Any], source: Source, dynamic_range_db: float, usdehaze_version: str, created: str | None
) -> dict[str, Any]:
    """All that a result says about itself, by the names of the table; what is None is left out."""
    values = {
        **settings,
        "usdehaze_version": usdehaze_version,
        "dynamic_range_db": float(dynamic_range_db),
        "created": created,
        **source_attributes(source),
    }
    return {name: value for name, value in values.items() if value is not None}


def settings_in(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the attributes, and whatever else is no row of another kind."""
    others = {field.name for field in FIELDS if field.kind in ("source", "result")}
    return {name: value for name, value in attributes.items() if name not in others}


def source_attributes(source: Source) -> dict[str, Any]:
    """A cine's source by the names of the table, as plain values; notes stand one a line."""
    values = {**asdict(source), "notes": source.assumptions}
    rows = {f.name: values[f.name.removeprefix("source_")] for f in FIELDS if f.kind == "source"}
    return {name: "\n".join(value) if isinstance(value, tuple) else value for name, value in rows.items()}


def source_in(attributes: Mapping[str, Any]) -> Source:
    """What `source_attributes` was given; what is missing is as in a `Source` of its own."""
    rows = [f.name for f in FIELDS if f.kind == "source" and f.name in attributes]
    known: dict[str, Any] = {name.removeprefix("source_"): str(attributes[name]) for name in rows}
    assumptions = known.pop("assumptions", "")
    notes = known.pop("notes", assumptions)
    first_frame, frames = (int(known.pop(name, 0)) for name in ("first_frame", "frames"))
    return Source(**known, assumptions=tuple(filter(None, notes.split("\n"))), first_frame=first_frame, frames=frames)


def plain(value: Any) -> Any:
    """A stored attribute as a plain Python value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value
