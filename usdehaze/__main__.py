"""The command ``usdehaze``, also as ``python -m usdehaze`` and for ``torchrun -m usdehaze``."""

import signal
import sys

from usdehaze.stopping import at_once


def main() -> None:
    """The command line; told to stop before it has begun, it ends in one line as well."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, at_once)
    from usdehaze.cli import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
