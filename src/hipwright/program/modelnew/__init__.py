"""The ModelNew lane: KernelBench files exported, checked, built and run (docs/modelnew.md)."""
