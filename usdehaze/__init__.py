"""usdehaze: takes the haze off ultrasound cines.

What is public is what is listed here, `usdehaze.transforms` (MONAI), `usdehaze.validation.metrics` and
`usdehaze.validation.monai_metrics`. Everything else may move without notice. Importing the package is instant: these
names load what they need (numpy, h5py, torch) on first use.

Example:
    >>> import usdehaze as ud
    >>> from usdehaze.simulate import simulate_cine
    >>> cine = simulate_cine(2, seed=1).cine  # or ud.open_cine("scan.h5")
    >>> result = ud.Dehazer.from_pretrained("preview", device="cpu").dehaze(cine)
    >>> result.tissue.shape, bool((result.tissue <= cine.frames).all())
    ((2, 128, 128), True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdehaze.cine import Cartesian, Cine, Polar, Sector, Source
    from usdehaze.dehazing.dehazer import Dehazer
    from usdehaze.dehazing.settings import PRESETS, Settings
    from usdehaze.errors import InputError, UsdehazeError
    from usdehaze.io import Scan, open_cine, open_scan, read_result, write_result
    from usdehaze.priors.posterior import LearnedPosterior
    from usdehaze.priors.prior import Prior
    from usdehaze.result import Result

    __version__: str

__all__ = [
    "PRESETS",
    "Cartesian",
    "Cine",
    "Dehazer",
    "InputError",
    "LearnedPosterior",
    "Polar",
    "Prior",
    "Result",
    "Scan",
    "Sector",
    "Settings",
    "Source",
    "UsdehazeError",
    "__version__",
    "open_cine",
    "open_scan",
    "read_result",
    "write_result",
]

_HOMES = {
    "usdehaze.cine": ("Cartesian", "Cine", "Polar", "Sector", "Source"),
    "usdehaze.dehazing.dehazer": ("Dehazer",),
    "usdehaze.dehazing.settings": ("PRESETS", "Settings"),
    "usdehaze.errors": ("InputError", "UsdehazeError"),
    "usdehaze.io": ("Scan", "open_cine", "open_scan", "read_result", "write_result"),
    "usdehaze.priors.posterior": ("LearnedPosterior",),
    "usdehaze.priors.prior": ("Prior",),
    "usdehaze.result": ("Result",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


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
