"""Packages that are installed only where they are wanted."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from usdehaze.errors import UsdehazeError


def needed(package: str, extra: str) -> ModuleType:
    """The package, imported.

    Raises:
        UsdehazeError: it is not installed; names the extra that brings it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise UsdehazeError(f'{package} is not installed; get it with: pip install "usdehaze[{extra}]"') from error
