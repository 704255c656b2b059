"""Access of a contained process to one GPU: bwrap's arguments, readable folders and environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hipwright import config
from hipwright.errors import DeviceError
from hipwright.sandbox.gpu.amd import AmdFiles
from hipwright.sandbox.gpu.driver_files import DriverFiles
from hipwright.sandbox.gpu.nvidia import NvidiaFiles
from hipwright.targets import CUDA, ROCM, Target

DRIVER_FILES: dict[Target, DriverFiles] = {CUDA: NvidiaFiles(), ROCM: AmdFiles()}
"""The registry of this layer: one entry a GPU runtime."""
_DRIVER_LIBRARY = re.compile(r"lib(cuda|nvidia-|nvrtc|cudart|amdhip64|hsa-runtime64|hiprtc|amd_comgr)[\w.-]*\.so")


@dataclass(frozen=True)
class GpuAccess:
    """One GPU of this machine, by its runtime (a GPU target) and its number."""

    target: Target
    index: int = 0

    @property
    def _files(self) -> DriverFiles:
        return DRIVER_FILES[self.target]

    @property
    def simulated_rocm(self) -> Path | None:
        """The folder of the ROCm whose GPU this is, where that is software."""
        return config.simulated_rocm() if self.target is ROCM else None

    def nodes(self) -> list[Path]:
        """The device nodes to show; none for a simulated GPU. Raises DeviceError where the GPU has none."""
        if self.simulated_rocm is not None:
            return []
        found, missing = self._files.nodes(self.index, Path("/dev"))
        if missing:
            raise DeviceError(
                f"no {self.target.name} GPU {self.index} here: {missing[0]} has no such device",
                hint="see `hipwright doctor`; in a container, pass the GPU's devices to it",
            )
        return found

    def mounts(self) -> list[str]:
        """bwrap's arguments: the nodes, and /sys, where the runtimes read buses and memory nodes."""
        shown = [word for node in self.nodes() for word in ("--dev-bind", str(node), str(node))]
        return [*shown, "--ro-bind", "/sys", "/sys"]

    def libraries(self) -> list[Path]:
        """Folders of LD_LIBRARY_PATH that hold driver or runtime libraries; the other folders stay hidden."""
        entries = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
        return [entry for entry in dict.fromkeys(entries) if _holds_driver(entry)]

    def paths(self) -> list[Path]:
        """Files and folders outside /usr that must be readable."""
        simulated = self.simulated_rocm
        roots = [simulated] if simulated else [Path(root) for root in self._files.roots]
        found = [*self.libraries(), *roots, *(root.resolve() for root in roots)]
        return [path for path in dict.fromkeys(found) if path.is_dir()]

    def environment(self, *, contained: bool = True) -> dict[str, str]:
        """Settings: one visible GPU, every cache in the private /tmp, compilers on PATH."""
        files = self._files
        home, folder = files.home
        tools = [path for path in files.tools if Path(path).is_dir()]
        settings = {
            "PATH": ":".join([*tools, "/usr/local/bin", "/usr/bin", "/bin"]),
            "USER": "sandbox",  # without an /etc/passwd some libraries ask the environment for the user's name
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_MODULE_LOADING": "LAZY",
            "CUDA_CACHE_PATH": "/tmp/cuda-cache",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch asks whether there is a GPU without starting the driver
            "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its worker processes would outlive a session
            "TRITON_CACHE_DIR": "/tmp/triton",
            "TORCH_EXTENSIONS_DIR": "/tmp/torch_extensions",
            files.visible: str(0 if files.renumbered and contained else self.index),
        }
        if Path(folder).is_dir():
            settings[home] = folder
        if (simulated := self.simulated_rocm) is not None:
            settings["ROCM_PATH"] = str(simulated)
        if libraries := self.libraries():
            settings["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        return settings


def gpu_count(target: Target, dev: Path = Path("/dev"), sys: Path = Path("/sys")) -> int:
    """GPUs of that runtime on this machine, counted without starting it (a fork after CUDA has started is useless)."""
    if target is ROCM and config.simulated_rocm() is not None:
        return 1
    return DRIVER_FILES[target].count(dev, sys)


def _holds_driver(folder: Path) -> bool:
    try:
        return any(_DRIVER_LIBRARY.match(path.name) for path in folder.iterdir())
    except OSError:
        return False
