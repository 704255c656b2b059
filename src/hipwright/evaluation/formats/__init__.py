"""Task formats of other benchmarks, each read by one loader: tasks in the KernelBench form (docs/task-formats.md)."""
