"""Kernels that a caller brings: read from files of every form, compared with what a search found (docs/start.md)."""
