"""Templates for scatters, segment sums and histograms."""
