"""gfx1100 (RDNA 3), by the figures of the Radeon RX 7900 XTX.

Radeon RX 7900 XTX: 96 CUs (48 WGPs of 4 SIMDs and 128 KB of LDS), boost 2.5 GHz, 24 GB at 960 GB/s, 96 MB Infinity
Cache, 6 MB L2, FP32 61.4, FP16 122.8 by WMMA, INT8 122.8.
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX1100 = offline_amd(
    Architecture(
        name="gfx1100",
        product="Radeon RX 7900 XTX",
        wave=32,
        cus=96,
        simds_per_cu=2,
        max_waves_per_simd=16,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=1024,
        vgprs_per_simd=1536,
        vgpr_granule=24,
        sgprs_per_wave=106,
        clock_hz=2.5e9,
        bandwidth=960e9,
        memory_bytes=24 * GIB,
        l2_bytes=6 * MIB,
        last_level_bytes=96 * MIB,
        l1_bytes=32 * KIB,
        flops={
            "float64": 1.9e12,
            "float32": 61.4e12,
            "float16": 122.8e12,
            "bfloat16": 122.8e12,
            "int8": 122.8e12,
        },
        elf_machine=0x41,
    ),
)
