"""Benchmarks over a folder of tasks: planned, run on every GPU, stored row by row, reported (docs/bench.md)."""
