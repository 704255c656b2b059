"""The machine, its driver and its compilers: versions, and one kernel built by each route."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from hipwright import __version__, config
from hipwright.api.contact.steps import StepFailed
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import DeviceError
from hipwright.targets import ROCM
from hipwright.toolchain.amd import hiprtc, rocm_paths
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import CompilePool

GROUPS = "add the user to the groups render and video (usermod -aG render,video), and log in again"
INSTALL = "install AMD's driver (amdgpu-install --usecase=rocm, or the kernel's own amdgpu)"
CONTAINER = "in a container: --device /dev/kfd --device /dev/dri --group-add video --group-add render"


def find_gpu(index: int | None, *, dev: Path = Path("/dev"), sys: Path = Path("/sys")) -> GpuInfo:
    """The AMD GPU to use. Raises DeviceError, which says what is missing and what to do, where there is none."""
    from hipwright.device import topology

    found = [gpu for gpu in topology.find(ROCM.name) if index in (None, gpu.index)]
    if found:
        return found[0]
    if index is not None and topology.find(ROCM.name):
        raise DeviceError(f"no AMD GPU {index} here", hint="`hipwright doctor` lists the GPUs")
    if not (sys / "module/amdgpu").exists():
        raise DeviceError("no AMD GPU: the amdgpu driver is not loaded", hint=f"{INSTALL}, then `modprobe amdgpu`")
    if not (dev / "kfd").exists():
        raise DeviceError("no AMD GPU: there is no /dev/kfd, by which programs compute", hint=CONTAINER)
    raise DeviceError("no AMD GPU: the driver lists none, or HIP_VISIBLE_DEVICES hides it", hint="see `rocminfo`")


def driver_facts(gpu: GpuInfo) -> dict[str, Any]:
    """Versions of all that counts. Raises DeviceError where the device's nodes may not be opened."""
    from hipwright.api.doctor import machine_checks

    checks = machine_checks()
    facts: dict[str, Any] = {
        "gpu": gpu.name,
        "architecture": gpu.architecture,
        "memory_bytes": gpu.memory_bytes,
        "units": gpu.units,
        "hipwright": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "driver": _text(Path("/sys/module/amdgpu/version")) or "the kernel's own",
        "rocm_version": ".".join(map(str, rocm_paths.version() or ())) or "unknown",
        "runtime": str(rocm_paths.library("amdhip64") or "none"),
        "hiprtc": str(rocm_paths.library("hiprtc") or "none"),
        "hipcc": str(rocm_paths.hipcc() or "none"),
        "torch": next((check.detail for check in checks if check.name == "torch"), ""),
    }
    facts["output"] = "\n".join(f"{'ok' if c.ok else 'no':<4}{c.name}: {c.detail}" for c in checks)
    if config.simulated_rocm() is None:
        for node in ("/dev/kfd", "/dev/dri"):
            if not os.access(node, os.R_OK | os.W_OK if node == "/dev/kfd" else os.R_OK):
                raise StepFailed(f"{node} cannot be opened", hint=GROUPS, facts=facts, output=facts.pop("output"))
    return facts


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def build_by(route: str, source: str, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool) -> dict[str, Any]:
    """{"blob", "seconds", "registers"} of the trial kernels by one route. Raises StepFailed for what it refuses."""
    built = hiprtc.build_by(route, source, arch=arch, pool=pool, cache=cache, unsafe=unsafe)
    if not built.ok:
        first = next(iter(built.log.splitlines()), "no message")
        raise StepFailed(f"{route} refuses the trial kernels: {first}", output=built.log)
    code = cache.get(built.blob)
    kernels = {kernel.name: kernel.vgpr + kernel.agpr for kernel in built.kernels}
    seconds = round(built.seconds, 3)
    return {"blob": built.blob, "bytes": len(code), "build_seconds": seconds, "registers": kernels, "output": built.log}
