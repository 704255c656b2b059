"""Kernel templates: one file per shape of parallelism."""
