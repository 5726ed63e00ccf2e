"""Files in and out: what a file is, scans into `Cine`, results to disk."""

from __future__ import annotations

from usdehaze.io.detect import RESULT_SUFFIX, list_results, list_scans
from usdehaze.io.formats import kind_of
from usdehaze.io.open import open_cine, open_scan
from usdehaze.io.reading import Reading
from usdehaze.io.result import OpenResult, ResultWriter, open_result, read_result, write_result
from usdehaze.io.scan import Scan
from usdehaze.io.simulation import StoredTruth, read_truth, write_simulation
from usdehaze.io.sink import Sink

__all__ = [
    "RESULT_SUFFIX",
    "OpenResult",
    "Reading",
    "ResultWriter",
    "Scan",
    "Sink",
    "StoredTruth",
    "kind_of",
    "list_results",
    "list_scans",
    "open_cine",
    "open_result",
    "open_scan",
    "read_result",
    "read_truth",
    "write_result",
    "write_simulation",
]
