"""Templates for row kernels: reductions over rows, and what is computed from them."""
