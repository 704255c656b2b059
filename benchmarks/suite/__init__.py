"""The suite of kernels and its records: docs/suite.md."""
