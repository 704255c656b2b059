"""gfx942 (CDNA 3), by the figures of the Instinct MI300X.

MI300X datasheet: 304 CUs, 2100 MHz, 192 GB at 5.3 TB/s, 256 MB Infinity Cache, FP64 matrix 163.4, FP32 163.4, FP16/BF16
1307.4, FP8/INT8 2614.9 (dense). L2 is 4 MB on each of 8 XCDs, L1
32 KB a CU with lines of 128 bytes (CDNA 3 white paper).
"""

from __future__ import annotations

from hipwright.targets.base import GIB, KIB, MIB, Architecture, offline_amd

GFX942 = offline_amd(
    Architecture(
        name="gfx942",
        product="Instinct MI300X",
        wave=64,
        cus=304,
        simds_per_cu=4,
        max_waves_per_simd=8,
        lds_per_cu=64 * KIB,
        lds_per_block=64 * KIB,
        lds_granule=512,
        vgprs_per_simd=512,
        vgpr_granule=8,
        sgprs_per_wave=102,
        clock_hz=2.1e9,
        bandwidth=5.325e12,
        memory_bytes=192 * GIB,
        l2_bytes=32 * MIB,
        last_level_bytes=256 * MIB,
        l1_bytes=32 * KIB,
        dies=8,
        flops={
            "float64": 163.4e12,
            "float32": 163.4e12,
            "float16": 1307.4e12,
            "bfloat16": 1307.4e12,
            "float8_e4m3fnuz": 2614.9e12,
            "int8": 2614.9e12,
        },
        mfma=True,
        matrix_float8=("float8_e4m3fnuz", "float8_e5m2fnuz"),
        elf_machine=0x4C,
        memory_counter="TCC_EA0",
        counts_128_byte_reads=True,
    ),
    by_default=True,
)
