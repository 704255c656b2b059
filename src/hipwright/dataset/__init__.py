"""Data sets of tasks with verified and refuted programs, and their export for training (docs/dataset.md)."""
