"""A folder of tasks judged as a whole: planned, run on every GPU, kept row by row, reported (docs/bench.md)."""
