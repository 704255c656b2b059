"""A candidate in its own process, the same on all targets. Imports torch."""
