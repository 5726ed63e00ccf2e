"""Taking the haze off a cine: settings, the dehazer, and the decision it makes in every pixel."""
