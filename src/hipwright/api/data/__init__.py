"""Data for training: new tasks, verified pairs of tasks and programs, exports (docs/synth.md, docs/dataset.md)."""
