"""The launch plan: steps in order, allocations, launches, library calls."""
