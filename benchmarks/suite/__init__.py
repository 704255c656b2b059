"""The suite of kernels and its records: docs/kernels.md."""
