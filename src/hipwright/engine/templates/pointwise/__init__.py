"""Templates for pointwise kernels and transposes."""
