"""The cpu target: kernels launched in this process, with guarded memory."""
