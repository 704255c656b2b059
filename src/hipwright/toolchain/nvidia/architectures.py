"""NVIDIA architectures as the estimate needs to know them, in the terms of `hipwright.toolchain.targets.Target`.

cus: SMs; simds_per_cu: their four partitions; wave: a warp; vgprs_per_simd: 32-bit registers a lane of a partition has
to share out. Speeds are nominal, from datasheets. Sources: "NVIDIA H200 Tensor Core GPU" datasheet (SXM: 141 GB at 4.8
TB/s; FP64 and FP32 67 TFLOP/s, FP16 and BF16 989, INT8 1979, dense) and "NVIDIA H100 Tensor Core GPU Architecture"
white paper (132 SMs, 256 KB of registers, 228 KB of shared memory and 64 warps an SM, 50 MB of L2, boost 1980 MHz).
"""

from __future__ import annotations

from hipwright.toolchain.targets import TARGETS, Target

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

NVIDIA: dict[str, Target] = {
    "sm_90": Target(
        name="sm_90",
        product="H200 SXM",
        wave=32,
        cus=132,
        simds_per_cu=4,
        max_waves_per_simd=16,
        lds_per_cu=228 * _KIB,
        lds_per_block=227 * _KIB,
        lds_granule=128,
        vgprs_per_simd=512,
        vgpr_granule=8,
        sgprs_per_wave=0,
        clock_hz=1.98e9,
        bandwidth=4.8e12,
        memory_bytes=141 * _GIB,
        l2_bytes=50 * _MIB,
        last_level_bytes=50 * _MIB,
        flops={
            "float64": 67e12,
            "float32": 67e12,
            "float16": 989e12,
            "bfloat16": 989e12,
            "int8": 1979e12,
        },
        mfma=False,
        elf_machine=0,
    )
}


def nominal(architecture: str) -> Target | None:
    """The figures of an architecture by its compiler's name ("sm_90", "gfx942"); None where none are known."""
    return TARGETS.get(architecture) or NVIDIA.get(architecture.rstrip("af") if "sm_" in architecture else "")
