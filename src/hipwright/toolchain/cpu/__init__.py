"""The cpu target: HIP source to a shared library for this machine."""
