"""Pages of docs/results, written from benchmarks/records."""
