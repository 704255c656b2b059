"""Templates for matrix products."""
