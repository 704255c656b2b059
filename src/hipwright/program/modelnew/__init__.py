"""ModelNew candidates: KernelBench files exported, checked, built and run (docs/modelnew.md)."""
