"""gfx1201 (RDNA 4), by the figures of the Radeon RX 9070 XT.

Radeon RX 9070 XT: 64 CUs (32 WGPs of 4 SIMDs and 128 KB of LDS), boost 2.97 GHz, 16 GB at 640 GB/s, 64 MB
Infinity Cache, 8 MB L2, FP32 48.7, by WMMA FP16 195, FP8 and INT8 389 (dense). Its FP8 is OCP's.
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX1201 = offline_amd(
    Architecture(
        name="gfx1201",
        product="Radeon RX 9070 XT",
        wave=32,
        cus=64,
        simds_per_cu=2,
        max_waves_per_simd=16,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=1024,
        vgprs_per_simd=1536,
        vgpr_granule=24,
        sgprs_per_wave=106,
        clock_hz=2.97e9,
        bandwidth=640e9,
        memory_bytes=16 * GIB,
        l2_bytes=8 * MIB,
        last_level_bytes=64 * MIB,
        flops={
            "float64": 0.8e12,
            "float32": 48.7e12,
            "float16": 195e12,
            "bfloat16": 195e12,
            "float8_e4m3fn": 389e12,
            "int8": 389e12,
        },
        elf_machine=0x4E,
    ),
)
