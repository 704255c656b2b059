"""NVIDIA: HIP source to cubins by NVRTC, and what their PTX says."""
