"""NVIDIA GPUs: the driver through libcuda, and NVML."""
