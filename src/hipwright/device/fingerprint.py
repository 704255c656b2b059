"""What a measured row depends on beside the program: the node, its driver and runtime, the device and its clocks.

Read from the system's files and NVML, without torch and without a context on a GPU.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import hipwright
from hipwright.device.amd import kfd
from hipwright.device.gpu_info import GpuInfo
from hipwright.device.nvidia import nvml
from hipwright.records import Record
from hipwright.targets import TARGETS


class NodeFingerprint(Record, frozen=True, kw_only=True):
    """One node and the device of one evaluation; "" and 0 where the system does not tell.

    driver: version of the kernel's module. runtime: "ROCm 7.0.2" or "CUDA 13.0". device: the GPU's name, or the
    processor's. clocks_mhz: the highest core and memory clock that the driver allows now. neighbours: other seats of
    the node, which share its processors and memory.
    """

    host: str
    architecture: str
    device: str = ""
    device_id: str = ""
    driver: str = ""
    runtime: str = ""
    clocks_mhz: tuple[int, int] = (0, 0)
    cores: int = 0
    neighbours: int = 0
    system: str = ""
    hipwright: str = hipwright.__version__

    @property
    def line(self) -> str:
        """One line for people: what is not known is left out."""
        parts = [f"{self.device} ({self.architecture})" if self.device else self.architecture]
        parts += [f"id {self.device_id}"] if self.device_id else []
        parts += [f"driver {self.driver}"] if self.driver else []
        parts += [self.runtime] if self.runtime else []
        parts += ["{} / {} MHz".format(*self.clocks_mhz)] if any(self.clocks_mhz) else []
        parts += [f"{self.cores} cores", f"{self.neighbours} neighbours", self.system]
        return f"node {self.host}: {', '.join(parts)}"


def fingerprint(gpu: GpuInfo | None, *, neighbours: int = 0, host: str = "") -> NodeFingerprint:
    """The fingerprint of this machine with one of its GPUs; None: of its processor. host: "" for the machine's name."""
    common = {
        "host": host or socket.gethostname(),
        "cores": len(os.sched_getaffinity(0)),
        "neighbours": neighbours,
        "system": f"{platform.system()} {platform.release()}",
    }
    if gpu is None:
        return NodeFingerprint(architecture="cpu", device=_processor(), **common)  # type: ignore[arg-type]
    amd = TARGETS.gpu(gpu.kind).is_amd
    return NodeFingerprint(
        architecture=gpu.architecture,
        device=gpu.name,
        device_id=gpu.uuid,
        driver=_text(Path("/sys/module/amdgpu/version" if amd else "/sys/module/nvidia/version")),
        runtime=_rocm() if amd else nvml.cuda_version(),
        clocks_mhz=(0, 0) if amd else nvml.clocks_mhz(gpu.index),
        **common,  # type: ignore[arg-type]
    )


def trouble(gpu: GpuInfo | None) -> str:
    """Why the driver says that a GPU is not sound now; "" if it says nothing."""
    if gpu is None:
        return ""
    return kfd.trouble(gpu.uuid) if TARGETS.gpu(gpu.kind).is_amd else nvml.trouble(gpu.index)


def _rocm() -> str:
    version = _text(Path(os.environ.get("ROCM_PATH") or "/opt/rocm") / ".info" / "version")
    return f"ROCm {version}" if version else ""


def _processor() -> str:
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
