"""Hazy ultrasound whose tissue and haze are known: what the shipped networks learn from and are measured on."""

from usdehaze.simulate.cine import SimulatedCine, simulate_cine
from usdehaze.simulate.frames import SETUPS, Setup, training_frames, training_pairs

__all__ = ["SETUPS", "Setup", "SimulatedCine", "simulate_cine", "training_frames", "training_pairs"]
