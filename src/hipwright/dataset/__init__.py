"""Pairs of a task and a verified program, and what training takes of them (docs/dataset.md)."""
