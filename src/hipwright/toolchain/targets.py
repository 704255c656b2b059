"""The AMD targets: what the estimate and the occupancy formula need to know of each.

Speeds are nominal, from datasheets: no measurement of ours stands behind them. They are for the named product; the same
code objects run on its siblings. Sources: AMD's product pages and datasheets of the named accelerators, "AMD Instinct
MI200 / MI300 (CDNA 3) / MI350 (CDNA 4)" and "RDNA3" instruction set guides and white papers for LDS, registers and
SIMDs; allocation granules from LLVM's AMDGPU backend documentation (llvm.org/docs/AMDGPUUsage.html).
"""

from __future__ import annotations

from typing import Literal

from hipwright.records import Record


class Target(Record, frozen=True, kw_only=True):
    """One AMD architecture, and the product whose nominal figures stand for it.

    wave: lanes. lds_per_cu, lds_per_block, lds_granule: bytes. vgprs_per_simd: registers each lane of a SIMD shares
    among its resident waves; vgpr_granule: registers a wave is given at a time. bandwidth: bytes/s of device memory.
    flops: dense operations/s by torch dtype, by matrix instructions where there are any. l2_bytes: all of it;
    last_level_bytes: the Infinity Cache, 0 without. elf_machine: EF_AMDGPU_MACH of the ELF header's e_flags.
    """

    name: str
    product: str
    wave: Literal[32, 64]
    cus: int
    simds_per_cu: int
    max_waves_per_simd: int
    lds_per_cu: int
    lds_per_block: int
    lds_granule: int
    vgprs_per_simd: int
    vgpr_granule: int
    sgprs_per_wave: int
    clock_hz: float
    bandwidth: float
    memory_bytes: int
    l2_bytes: int
    last_level_bytes: int
    flops: dict[str, float]
    mfma: bool
    elf_machine: int
    nominal: bool = True


_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        # MI210 datasheet: 104 CUs, 1700 MHz, 64 GB at 1.6 TB/s, FP64/FP32 vector 22.6, FP64/FP32 matrix 45.3,
        # FP16/BF16 181.0, INT8 181.0. One die of an MI250X has 110 CUs and the same memory speed.
        Target(
            name="gfx90a",
            product="Instinct MI210",
            wave=64,
            cus=104,
            simds_per_cu=4,
            max_waves_per_simd=8,
            lds_per_cu=64 * _KIB,
            lds_per_block=64 * _KIB,
            lds_granule=512,
            vgprs_per_simd=512,
            vgpr_granule=8,
            sgprs_per_wave=102,
            clock_hz=1.7e9,
            bandwidth=1638.4e9,
            memory_bytes=64 * _GIB,
            l2_bytes=8 * _MIB,
            last_level_bytes=0,
            flops={
                "float64": 45.3e12,
                "float32": 45.3e12,
                "float16": 181.0e12,
                "bfloat16": 181.0e12,
                "int8": 181.0e12,
            },
            mfma=True,
            elf_machine=0x3F,
        ),
        # MI300X datasheet: 304 CUs, 2100 MHz, 192 GB at 5.3 TB/s, 256 MB Infinity Cache, FP64 matrix 163.4,
        # FP32 163.4, FP16/BF16 1307.4, FP8/INT8 2614.9 (dense). L2 is 4 MB on each of 8 XCDs (CDNA 3 white paper).
        Target(
            name="gfx942",
            product="Instinct MI300X",
            wave=64,
            cus=304,
            simds_per_cu=4,
            max_waves_per_simd=8,
            lds_per_cu=64 * _KIB,
            lds_per_block=64 * _KIB,
            lds_granule=512,
            vgprs_per_simd=512,
            vgpr_granule=8,
            sgprs_per_wave=102,
            clock_hz=2.1e9,
            bandwidth=5.325e12,
            memory_bytes=192 * _GIB,
            l2_bytes=32 * _MIB,
            last_level_bytes=256 * _MIB,
            flops={
                "float64": 163.4e12,
                "float32": 163.4e12,
                "float16": 1307.4e12,
                "bfloat16": 1307.4e12,
                "float8_e4m3fnuz": 2614.9e12,
                "int8": 2614.9e12,
            },
            mfma=True,
            elf_machine=0x4C,
        ),
        # MI350X datasheet: 256 CUs, 2200 MHz, 288 GB at 8 TB/s, 256 MB Infinity Cache, FP64 72.1, FP32 144.2,
        # FP16/BF16 2306.9, FP8/INT8 4613.7 (dense). 160 KB of LDS a CU (CDNA 4 white paper).
        Target(
            name="gfx950",
            product="Instinct MI350X",
            wave=64,
            cus=256,
            simds_per_cu=4,
            max_waves_per_simd=8,
            lds_per_cu=160 * _KIB,
            lds_per_block=160 * _KIB,
            lds_granule=1280,
            vgprs_per_simd=512,
            vgpr_granule=8,
            sgprs_per_wave=102,
            clock_hz=2.2e9,
            bandwidth=8.0e12,
            memory_bytes=288 * _GIB,
            l2_bytes=32 * _MIB,
            last_level_bytes=256 * _MIB,
            flops={
                "float64": 72.1e12,
                "float32": 144.2e12,
                "float16": 2306.9e12,
                "bfloat16": 2306.9e12,
                "float8_e4m3fn": 4613.7e12,
                "int8": 4613.7e12,
            },
            mfma=True,
            elf_machine=0x4F,
        ),
        # Radeon RX 7900 XTX: 96 CUs (48 WGPs of 4 SIMDs and 128 KB of LDS), boost 2.5 GHz, 24 GB at 960 GB/s, 96 MB
        # Infinity Cache, 6 MB L2, FP32 61.4, FP16 122.8 by WMMA, INT8 122.8.
        Target(
            name="gfx1100",
            product="Radeon RX 7900 XTX",
            wave=32,
            cus=96,
            simds_per_cu=2,
            max_waves_per_simd=16,
            lds_per_cu=64 * _KIB,
            lds_per_block=64 * _KIB,
            lds_granule=1024,
            vgprs_per_simd=1536,
            vgpr_granule=24,
            sgprs_per_wave=106,
            clock_hz=2.5e9,
            bandwidth=960e9,
            memory_bytes=24 * _GIB,
            l2_bytes=6 * _MIB,
            last_level_bytes=96 * _MIB,
            flops={
                "float64": 1.9e12,
                "float32": 61.4e12,
                "float16": 122.8e12,
                "bfloat16": 122.8e12,
                "int8": 122.8e12,
            },
            mfma=False,
            elf_machine=0x41,
        ),
    )
}
