"""gfx950 (CDNA 4), by the figures of the Instinct MI350X.

MI350X datasheet: 256 CUs, 2200 MHz, 288 GB at 8 TB/s, 256 MB Infinity Cache, FP64 72.1, FP32 144.2, FP16/BF16 2306.9,
FP8/INT8 4613.7 (dense). 160 KB of LDS a CU (CDNA 4 white paper).
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX950 = offline_amd(
    Architecture(
        name="gfx950",
        product="Instinct MI350X",
        wave=64,
        cus=256,
        simds_per_cu=4,
        max_waves_per_simd=8,
        lds_per_cu=160 * KIB,
        lds_per_block=160 * KIB,
        lds_granule=1280,
        vgprs_per_simd=512,
        vgpr_granule=8,
        sgprs_per_wave=102,
        clock_hz=2.2e9,
        bandwidth=8.0e12,
        memory_bytes=288 * GIB,
        l2_bytes=32 * MIB,
        last_level_bytes=256 * MIB,
        l1_bytes=32 * KIB,
        dies=8,
        flops={
            "float64": 72.1e12,
            "float32": 144.2e12,
            "float16": 2306.9e12,
            "bfloat16": 2306.9e12,
            "float8_e4m3fn": 4613.7e12,
            "int8": 4613.7e12,
        },
        mfma=True,
        matrix_float8=("float8_e4m3fn", "float8_e5m2"),
        elf_machine=0x4F,
        memory_counter="TCC_EA0",
        counts_128_byte_reads=True,
    ),
    by_default=True,
)
