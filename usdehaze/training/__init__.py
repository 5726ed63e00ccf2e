"""Training of priors and posteriors, on simulated frames or on one's own scans."""
