"""HIP source to a Build, for AMD GPUs without ROCm and for this machine's processor (docs/toolchain.md)."""
