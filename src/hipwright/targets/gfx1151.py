"""gfx1151 (RDNA 3.5), by the figures of the Radeon 8060S.

Radeon 8060S of the Ryzen AI Max+ 395: 40 CUs (20 WGPs of 4 SIMDs and 128 KB of LDS), up to 2.9 GHz, up to 96 GB of the
system's LPDDR5X-8000 at 256 GB/s, 32 MB Infinity Cache, 2 MB L2. Operations are those of gfx1100 a CU and clock.
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX1151 = offline_amd(
    Architecture(
        name="gfx1151",
        product="Radeon 8060S",
        wave=32,
        cus=40,
        simds_per_cu=2,
        max_waves_per_simd=16,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=1024,
        vgprs_per_simd=1536,
        vgpr_granule=24,
        sgprs_per_wave=106,
        clock_hz=2.9e9,
        bandwidth=256e9,
        memory_bytes=96 * GIB,
        l2_bytes=2 * MIB,
        last_level_bytes=32 * MIB,
        flops={
            "float64": 0.9e12,
            "float32": 29.7e12,
            "float16": 59.4e12,
            "bfloat16": 59.4e12,
            "int8": 59.4e12,
        },
        elf_machine=0x4A,
    ),
)
