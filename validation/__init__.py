"""Studies: how we know that the package works, each a command of a checkout (``python -m validation.bench``)."""
