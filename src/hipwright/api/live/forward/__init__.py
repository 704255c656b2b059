"""Forwards around several programs: one graph of the GPU for all of a call (docs/library.md)."""
