"""The records that describe a target: its vendor, architectures and GPU runtime. Each target has a file of its own.

Speeds are nominal, from datasheets: no measurement of ours stands behind them. They are for the named product; the same
code objects run on its siblings. Sources for AMD: product pages and datasheets of the named accelerators, "AMD Instinct
MI200 / MI300 (CDNA 3) / MI350 (CDNA 4)" and "RDNA3" instruction set guides and white papers for LDS, registers and
SIMDs; allocation granules from LLVM's AMDGPU backend documentation (llvm.org/docs/AMDGPUUsage.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hipwright.records import Record

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TORCH_GPU = "cuda"
"""torch's device type for a GPU, on ROCm too."""
TORCH_GPU_0 = f"{TORCH_GPU}:0"
"""torch's name of the first visible GPU: the only one that a contained process sees."""

TargetKind = Literal["offline", "host", "simulated", "gpu"]


class Vendor(Record, frozen=True, kw_only=True):
    """A maker of GPUs. unit: what it calls the part of a GPU that holds blocks, in the plural."""

    name: str
    unit: str


AMD = Vendor(name="AMD", unit="CUs")
NVIDIA = Vendor(name="NVIDIA", unit="SMs")


class Architecture(Record, frozen=True, kw_only=True):
    """One GPU architecture, and the product whose nominal figures stand for it, in AMD's terms.

    compiler_name: the compiler's name of the architecture where `name` is another; read it as `isa`. wave: lanes. cus:
    compute units (NVIDIA: SMs). lds_per_cu, lds_per_block, lds_granule: bytes. vgprs_per_simd: registers each lane of a
    SIMD shares among its resident waves; vgpr_granule: registers a wave is given at a time. bandwidth: bytes/s of
    device memory. flops: dense operations/s by torch dtype, by matrix instructions where there are any. l2_bytes: all
    of it; last_level_bytes: the Infinity Cache, 0 without. l1_bytes: the vector cache of a CU; line_bytes: of a cache
    line; dies: that share the L2 among them; lds_banks: of 4 bytes. mfma: whether CDNA's matrix instructions are there;
    matrix_float8: the 8-bit floats that they multiply, and the library. elf_machine: EF_AMDGPU_MACH of the ELF header's
    e_flags. memory_counter: prefix of the hardware counters of requests from L2 to memory, "" where rocprofv3 has none;
    counts_128_byte_reads: whether TCC_BUBBLE counts reads of 128 bytes.
    """

    name: str
    compiler_name: str = ""
    vendor: Vendor = AMD
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
    sgprs_per_wave: int = 0
    clock_hz: float
    bandwidth: float
    memory_bytes: int
    l2_bytes: int
    last_level_bytes: int
    l1_bytes: int = 16 * KIB
    line_bytes: int = 128
    dies: int = 1
    lds_banks: int = 32
    flops: dict[str, float]
    mfma: bool = False
    matrix_float8: tuple[str, ...] = ()
    elf_machine: int = 0
    memory_counter: str = ""
    counts_128_byte_reads: bool = False

    @property
    def isa(self) -> str:
        """The compiler's name of the architecture, such as "gfx942"."""
        return self.compiler_name or self.name


class GpuRuntime(Record, frozen=True, kw_only=True):
    """How a GPU of this machine is used.

    label: the runtime's name. torch_version: the attribute of torch.version that a torch build for it has. install:
    what to do where no GPU is found. visible: environment variables that limit which GPUs a process may use.
    builds_extensions: whether native torch extensions (`load_inline`) can be built for it. measured_as: how a device
    is named with a measured figure, before its own name without the vendor's; "" for the device's name alone.
    """

    label: str
    torch_version: str
    install: str
    visible: tuple[str, ...]
    builds_extensions: bool = False
    measured_as: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Target:
    """What programs are built for. Compared by identity: registries of the layers are keyed by it.

    name: in options, records and events. kind: "offline": machine code is built and examined, nothing runs; "host": the
    source runs on this machine's processors; "simulated": machine code for a GPU is executed by software; "gpu": the
    source runs on a GPU of this machine. proves: what a pass is evidence of. architectures: an offline target has one,
    a simulated one that of its offline target, a GPU runtime none where each architecture is an offline target. waves:
    lanes of a wavefront that programs may meet. by_default: whether an offline target is built for when no target is
    named (of the others, the first GPU runtime that has a GPU here, else the host).
    """

    name: str
    kind: TargetKind
    proves: str
    vendor: Vendor | None = None
    architectures: tuple[Architecture, ...] = ()
    waves: tuple[int, ...]
    by_default: bool = False
    runtime: GpuRuntime | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether programs run and are timed on a GPU of this machine."""
        return self.kind == "gpu"

    @property
    def is_host(self) -> bool:
        """Whether programs run on the processor."""
        return self.kind == "host"

    @property
    def is_simulated(self) -> bool:
        """Whether machine code for a GPU is executed by software."""
        return self.kind == "simulated"

    @property
    def is_offline(self) -> bool:
        """Whether programs are only compiled."""
        return self.kind == "offline"

    @property
    def is_amd(self) -> bool:
        """Whether the machine code is AMD's."""
        return self.vendor == AMD

    @property
    def maker(self) -> str:
        """The vendor's name, "" without one."""
        return self.vendor.name if self.vendor else ""

    @property
    def architecture(self) -> Architecture:
        """The one architecture of an offline or simulated target."""
        (only,) = self.architectures
        return only

    @property
    def gpu_runtime(self) -> GpuRuntime:
        """`runtime` of a GPU target; ValueError for any other."""
        if self.runtime is None:
            raise ValueError(f"{self.name} has no GPU runtime")
        return self.runtime


def offline_amd(architecture: Architecture, *, by_default: bool = False) -> Target:
    """The target that compiles for one AMD architecture."""
    return Target(
        name=architecture.name,
        kind="offline",
        proves="it compiles; registers, LDS, scratch, occupancy, instruction mix",
        vendor=AMD,
        architectures=(architecture,),
        waves=(architecture.wave,),
        by_default=by_default,
    )
