"""ModelNew candidates (KernelBench files with host code): export, static rules, building, running
(docs/modelnew.md)."""
