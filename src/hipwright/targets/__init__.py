"""The targets: what programs are built for, one file each, and the one list of them.

Code asks a target what it is, or dispatches by it through one registry a layer; a target's name is written in its own
file only. A new AMD architecture is a file beside this one and a line in the list; a new GPU runtime also needs a file
in each layer that talks to it: sandbox/gpu, toolchain/gpu_compilers, device/open, device/topology,
measure/profiling/vendors.
"""

from __future__ import annotations

from hipwright.targets.base import AMD, NVIDIA, TORCH_GPU, TORCH_GPU_0, Architecture, GpuRuntime, Target, Vendor
from hipwright.targets.base import offline_amd as offline_amd
from hipwright.targets.cpu import CPU
from hipwright.targets.cuda import CUDA
from hipwright.targets.gfx90a import GFX90A
from hipwright.targets.gfx942 import GFX942
from hipwright.targets.gfx950 import GFX950
from hipwright.targets.gfx1100 import GFX1100
from hipwright.targets.gfx1151 import GFX1151
from hipwright.targets.gfx1200 import GFX1200
from hipwright.targets.gfx1201 import GFX1201
from hipwright.targets.registry import OfflineArchitectures, TargetList
from hipwright.targets.rocm import ROCM
from hipwright.targets.simulated import SIMULATED

TARGETS = TargetList(GFX90A, GFX942, GFX950, GFX1100, GFX1151, GFX1200, GFX1201, CPU, *SIMULATED, ROCM, CUDA)
OFFLINE = OfflineArchitectures(TARGETS)
"""The architecture of each offline target, by the target's name."""
REPRESENTATIVE = GFX942
"""The AMD architecture that stands for the others where one must: estimates without a GPU, equality of machine code."""

__all__ = [
    "AMD",
    "CPU",
    "CUDA",
    "GFX942",
    "GFX950",
    "NVIDIA",
    "OFFLINE",
    "REPRESENTATIVE",
    "ROCM",
    "TARGETS",
    "TORCH_GPU",
    "TORCH_GPU_0",
    "Architecture",
    "GpuRuntime",
    "Target",
    "TargetList",
    "Vendor",
    "offline_amd",
]
