"""gfx90a (CDNA 2), by the figures of the Instinct MI210.

MI210 datasheet: 104 CUs, 1700 MHz, 64 GB at 1.6 TB/s, FP64/FP32 vector 22.6, FP64/FP32 matrix 45.3, FP16/BF16 181.0,
INT8 181.0. One die of an MI250X has 110 CUs and the same memory speed.
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX90A = offline_amd(
    Architecture(
        name="gfx90a",
        product="Instinct MI210",
        wave=64,
        cus=104,
        simds_per_cu=4,
        max_waves_per_simd=8,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=512,
        vgprs_per_simd=512,
        vgpr_granule=8,
        sgprs_per_wave=102,
        clock_hz=1.7e9,
        bandwidth=1638.4e9,
        memory_bytes=64 * GIB,
        l2_bytes=8 * MIB,
        last_level_bytes=0,
        l1_bytes=16 * KIB,
        flops={
            "float64": 45.3e12,
            "float32": 45.3e12,
            "float16": 181.0e12,
            "bfloat16": 181.0e12,
            "int8": 181.0e12,
        },
        mfma=True,
        elf_machine=0x3F,
        memory_counter="TCC_EA",
    ),
)
