"""Whole models: where their time goes, programs for the regions that matter, and the model with them (docs/models.md).

The caller's model code runs in a contained process (`host`), as task files do; this side holds plans and reports.
`load`, `calls`, `regions` and `host` import torch; the rest does not.
"""
