"""usdehaze: takes the haze off ultrasound cines.

Importing the package is instant: the names below load what they need (numpy, h5py, torch) on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdehaze.cine import Cine
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.io import open_cine
    from usdehaze.result import Result

    __version__: str

__all__ = ["Cine", "Dehazer", "Result", "__version__", "open_cine"]

_HOME = {
    "Cine": "usdehaze.cine",
    "Result": "usdehaze.result",
    "Dehazer": "usdehaze.dehazing.dehazer",
    "open_cine": "usdehaze.io",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'usdehaze' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("usdehaze")
    except PackageNotFoundError:  # run from a checkout that was never installed (a bare GPU machine)
        return "0+checkout"
