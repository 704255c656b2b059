"""Statements of C, and the device functions that emitted kernels call."""
