"""The study of trust: do no harm, leakage, calibration, stability."""
