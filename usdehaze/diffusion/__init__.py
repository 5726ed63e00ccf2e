"""Joint posterior sampling of two diffusion priors. Knows nothing of ultrasound, files or networks."""
