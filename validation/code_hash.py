"""Which code made a record."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from bench_records import bare

import usdehaze


@lru_cache
def code_hash(*patterns: str) -> str:
    """Hash of the package's files that match, without comments and docstrings, which change no figure."""
    root = Path(usdehaze.__file__).parent
    files = sorted(path for pattern in patterns for path in root.glob(pattern))
    return hashlib.sha256("\n".join(map(bare, files)).encode()).hexdigest()[:16]
