"""``python -m usdehaze``: the command line, also for ``torchrun -m usdehaze``."""

from usdehaze.cli import main

if __name__ == "__main__":
    main()
