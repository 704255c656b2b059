"""Templates for running sums and products."""
