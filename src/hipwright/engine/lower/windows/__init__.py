"""Windows over space: pooling, unfolding and interpolation."""
