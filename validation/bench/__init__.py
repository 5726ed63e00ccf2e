"""The test bench for dehazers and their priors."""
