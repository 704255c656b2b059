"""An NVIDIA GPU of this machine, through CUDA: the same HIP source, built by NVRTC.

Architectures are in AMD's terms. cus: SMs; simds_per_cu: their four partitions; wave: a warp; vgprs_per_simd: 32-bit
registers a lane of a partition has to share out. Speeds are nominal. Sources: "NVIDIA H200 Tensor Core GPU" datasheet
(SXM: 141 GB at 4.8 TB/s; FP64 and FP32 67 TFLOP/s, FP16 and BF16 989, INT8 1979, dense) and the white paper "NVIDIA
H100 Tensor Core GPU Architecture" (132 SMs, 256 KB of registers, 228 KB of shared memory and 64 warps an SM, 50 MB of
L2, boost 1980 MHz).
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, NVIDIA, Architecture, GpuRuntime, Target

SM_90 = Architecture(
    name="sm_90",
    compiler_name="sm_90a",  # with instructions of that architecture alone: code is built for the GPU at hand
    vendor=NVIDIA,
    product="H200 SXM",
    wave=32,
    cus=132,
    simds_per_cu=4,
    max_waves_per_simd=16,
    lds_per_cu=228 * KIB,
    lds_per_block=227 * KIB,
    lds_granule=128,
    vgprs_per_simd=512,
    vgpr_granule=8,
    clock_hz=1.98e9,
    bandwidth=4.8e12,
    memory_bytes=141 * GIB,
    l2_bytes=50 * MIB,
    last_level_bytes=50 * MIB,
    flops={
        "float64": 67e12,
        "float32": 67e12,
        "float16": 989e12,
        "bfloat16": 989e12,
        "int8": 1979e12,
    },
)

CUDA = Target(
    name="cuda",
    kind="gpu",
    proves="numerics and timing as HIP on NVIDIA",
    vendor=NVIDIA,
    architectures=(SM_90,),
    waves=(32,),
    runtime=GpuRuntime(
        label="CUDA",
        torch_version="cuda",
        install="install NVIDIA's driver, and the torch build for CUDA; without one nothing is timed",
        visible=("CUDA_VISIBLE_DEVICES",),
        builds_extensions=True,
        measured_as="HIP on NVIDIA",
    ),
)
