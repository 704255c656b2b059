"""An AMD GPU of this machine, through ROCm. Its architecture is one of the offline AMD targets'."""

from __future__ import annotations

from hipwright.targets.base import AMD, GpuRuntime, Target

ROCM = Target(
    name="rocm",
    kind="gpu",
    proves="numerics and real timing",
    vendor=AMD,
    waves=(64, 32),
    runtime=GpuRuntime(
        label="ROCm",
        torch_version="hip",
        install="install AMD's driver and ROCm, and the torch build for it; without one nothing is timed",
        visible=("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    ),
)
