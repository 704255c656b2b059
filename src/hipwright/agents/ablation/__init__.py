"""Ablations: the same tasks, seeds and budget for every arm (docs/ablation.md)."""
