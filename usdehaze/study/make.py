"""Making a reader study: one self-contained page a reader, and the key."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from usdehaze.decibels import db_to_grey
from usdehaze.errors import InputError
from usdehaze.geometry import blank_screen
from usdehaze.io.atomic import PartFile, check_target
from usdehaze.io.own_files import LazyCine
from usdehaze.io.result import OpenResult, open_result
from usdehaze.io.together import commit, prepare
from usdehaze.page_policy import page_policy
from usdehaze.preview import as_scanned, frame_time_s
from usdehaze.study.answers import answer_files
from usdehaze.study.design import ARMS, CHOICE, ITEMS, KEY, SCALE, SIDES, Study, Trial, draw_study, key_of, read_study

MAX_PAGE_BYTES = 256 * 10**6  # what a browser still opens in good time
MOST_FRAMES = 16  # by default
PLACES = ("css", "js")

Pictures = dict[str, list[str]]  # "input" and "tissue": PNG of every frame, base64


def make_study(
    results: Sequence[Path],
    folder: Path,
    n_readers: int = 3,
    seed: int = 0,
    *,
    frames: slice | None = None,
    with_screen: bool = False,
    overwrite: bool = False,
) -> Study:
    """Writes a study: ``reader-NN.html`` a reader, and ``study.json``, the key, which no reader should see.

    Pages hold pictures and codes: nothing of a file's name, of a source, or of which side is which.

    Args:
        results: files written by ``usdehaze process``, one a case.
        folder: where they go, all of them or none.
        n_readers: pages.
        seed: of the randomisation.
        frames: frames of each result; the first 16 by default.
        with_screen: show what the screen has around the images, names perhaps; it is black by default.
        overwrite: replace a study that is there, but none that there are answers to.

    Raises:
        InputError: a result that cannot be read, two that are one, a study that exists, or pages too large.
    """
    pages = [folder / f"reader-{r:02d}.html" for r in range(1, n_readers + 1)]
    for path in (folder / KEY, *pages):
        check_target(path, overwrite)
    named, pictures, looks = [], [], []
    digest = hashlib.sha256()  # of the pictures
    size = 0
    for path in results:
        with open_result(path) as result:
            named.append((path.name, result.cine.source.sha256))
            pictures.append(_pictures(result, frames or slice(MOST_FRAMES), with_screen, digest))
            looks.append(_look(result.cine))
        size += sum(len(picture) for arm in pictures[-1].values() for picture in arm)
        if size > MAX_PAGE_BYTES:
            found = f"pages of {len(results)} results would be larger than {MAX_PAGE_BYTES / 1e6:g} MB"
            raise InputError(folder, found, advice="take fewer frames with --frames, for instance --frames 0:8")
    if len(set(named)) < len(named) or len({path.resolve() for path in results}) < len(results):
        raise InputError(folder, "the same result twice", "one file a case")
    study = draw_study(named, n_readers, seed, digest.hexdigest())
    of_case = {case.case: shown | look for case, shown, look in zip(study.cases, pictures, looks, strict=True)}
    before = _before(folder) if overwrite else None
    if before is not None and before.study != study.study and answer_files(folder):
        found = "holds answers to the study that is there, which could not be scored without its key"
        raise InputError(folder, found, "another folder", "make the new study elsewhere with -o, or move that one away")
    with ExitStack() as stack:
        parts = []
        for path in (folder / KEY, *pages):
            parts.append(PartFile(path, overwrite, results))
            stack.callback(parts[-1].discard)
        parts[0].path.write_text(json.dumps(key_of(study), indent=1) + "\n", encoding="utf-8")
        for part, (reader, trials) in zip(parts[1:], study.readers.items(), strict=True):
            part.path.write_text(_page(study.study, reader, trials, of_case), encoding="utf-8", newline="\n")
        prepare(parts)
        commit(parts)
    known = () if before is None else before.readers
    for page in folder.glob("reader-*.html"):
        if page.stem in known and page not in pages:
            page.unlink(missing_ok=True)  # of the study that was replaced
    return study


def _before(folder: Path) -> Study | None:
    """The study in a folder, where there is a whole one."""
    try:
        return read_study(folder)
    except InputError:
        return None


def _pictures(result: OpenResult, frames: slice, with_screen: bool, digest: hashlib._Hash) -> Pictures:
    """Both arms of a case as a scanner shows them, taken into a hash as well."""
    cine = result.cine
    chosen = range(*frames.indices(cine.n_frames))
    if not chosen:
        raise InputError(result.path, "no such frames", f"frames of 0 to {cine.n_frames - 1}")

    def png(frame_db: np.ndarray) -> str:
        grey = db_to_grey(frame_db, cine.dynamic_range_db)
        if not with_screen:
            grey = blank_screen(grey, cine.geometry, 0)
        grey = as_scanned(grey, cine.geometry)
        digest.update(grey.tobytes())
        packed = io.BytesIO()
        Image.fromarray(grey).save(packed, format="PNG")
        return base64.b64encode(packed.getvalue()).decode("ascii")

    return {
        arm: [png(source[t]) for t in chosen] for arm, source in zip(ARMS, (result.input, result.tissue), strict=True)
    }


def _look(cine: LazyCine) -> dict[str, float]:
    """How fast its frames follow each other, and how much further apart rows are than columns in the pictures."""
    return {"frame_time_s": frame_time_s(cine.frame_times_s), "row_per_column": cine.geometry.row_per_column}


def _page(study: str, reader: str, trials: Sequence[Trial], of_case: dict[str, dict[str, Any]]) -> str:
    """The page of one reader."""
    pairs = []
    for trial in trials:
        case = of_case[trial.case]
        look = {name: value for name, value in case.items() if name not in ARMS}
        pairs.append({"pair": trial.pair, **look} | {side: case[trial.arm(side)] for side in SIDES})
    data: dict[str, Any] = {"study": study, "reader": reader, "items": ITEMS, "scale": SCALE, "choice": CHOICE}
    text = {name: (files("usdehaze.study") / f"page.{name}").read_text(encoding="utf-8") for name in ("html", *PLACES)}
    policy = page_policy(text["css"], text["js"])
    parts = text | {"policy": policy, "data": json.dumps(data | {"pairs": pairs})}
    page = text["html"]
    for name in ("policy", *PLACES, "data"):
        page = page.replace("{{" + name + "}}", parts[name])
    return page
