"""gfx1200 (RDNA 4), by the figures of the Radeon RX 9060 XT.

Radeon RX 9060 XT: 32 CUs (16 WGPs of 4 SIMDs and 128 KB of LDS), boost 3.13 GHz, 16 GB at 320 GB/s, 32 MB
Infinity Cache, 4 MB L2, FP32 25.6, by WMMA FP16 103, FP8 and INT8 205 (dense). Its FP8 is OCP's.
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX1200 = offline_amd(
    Architecture(
        name="gfx1200",
        product="Radeon RX 9060 XT",
        wave=32,
        cus=32,
        simds_per_cu=2,
        max_waves_per_simd=16,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=1024,
        vgprs_per_simd=1536,
        vgpr_granule=24,
        sgprs_per_wave=106,
        clock_hz=3.13e9,
        bandwidth=320e9,
        memory_bytes=16 * GIB,
        l2_bytes=4 * MIB,
        last_level_bytes=32 * MIB,
        flops={
            "float64": 0.4e12,
            "float32": 25.6e12,
            "float16": 103e12,
            "bfloat16": 103e12,
            "float8_e4m3fn": 205e12,
            "int8": 205e12,
        },
        elf_machine=0x48,
    ),
)
