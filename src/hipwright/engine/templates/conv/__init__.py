"""Templates for convolutions, pooling and other windows."""
