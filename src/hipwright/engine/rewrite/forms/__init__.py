"""Operators in the form of others, of which kernels or the library's calls are faster."""
