"""Templates for selection: top-k, sort, k-th value."""
