"""usdehaze: takes the haze off ultrasound cines."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("usdehaze")
except PackageNotFoundError:  # run from a checkout that was never installed (a bare GPU machine)
    __version__ = "0+checkout"
