"""What a contained process needs to use a GPU: device nodes, driver libraries and settings, and nothing more.

NVIDIA: the driver's nodes are open to everyone (mode 0666), so no privilege is needed. Only the chosen GPU's own node
is shown: the driver leaves out GPUs whose node it cannot open, as in a container with one GPU. GPU numbers count those
nodes in order, as nvidia-smi does on machines where minor numbers follow the bus. AMD: /dev/kfd lists every GPU; the
runtime is told which to show. The process sees one GPU, which torch calls "cuda:0".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hipwright.errors import DeviceError

_DRIVER_LIBRARY = re.compile(r"lib(cuda|nvidia-|nvrtc|cudart|amdhip64|hsa-runtime64|hiprtc|amd_comgr)[\w.-]*\.so")
_ROOTS = {
    "cuda": ("/usr/local/nvidia", "/usr/local/cuda", "/run/opengl-driver", "/usr/lib/wsl"),
    "rocm": ("/opt/rocm", "/opt/amdgpu"),
}
_TOOLS = {"cuda": ("/usr/local/cuda/bin", "/usr/local/nvidia/bin"), "rocm": ("/opt/rocm/bin",)}
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}
_HOME = {"cuda": ("CUDA_HOME", "/usr/local/cuda"), "rocm": ("ROCM_PATH", "/opt/rocm")}


@dataclass(frozen=True)
class GpuAccess:
    """One GPU of this machine, by kind and number."""

    kind: Literal["cuda", "rocm"]
    index: int = 0

    def nodes(self) -> list[Path]:
        """The device nodes to show. Raises DeviceError where the GPU has none."""
        dev = Path("/dev")
        if self.kind == "rocm":
            found = [dev / "kfd", dev / "dri"]
            missing = [path for path in found if not path.exists()]
        else:
            mine = gpu_nodes(dev)
            found = [dev / "nvidiactl", *mine[self.index : self.index + 1]]
            missing = [path for path in found if not path.exists()] or ([] if self.index < len(mine) else [dev])
            found += [path for path in map(dev.joinpath, _SHARED_NODES) if path.exists()]
        if missing:
            raise DeviceError(
                f"no {self.kind} GPU {self.index} here: {missing[0]} has no such device",
                hint="see `hipwright doctor`; in a container, pass the GPU's devices to it",
            )
        return found

    def mounts(self) -> list[str]:
        """bwrap's arguments: the nodes, and /sys, where the runtimes read buses and memory nodes."""
        shown = [word for node in self.nodes() for word in ("--dev-bind", str(node), str(node))]
        return [*shown, "--ro-bind", "/sys", "/sys"]

    def libraries(self) -> list[Path]:
        """Folders of LD_LIBRARY_PATH that hold driver or runtime libraries; the others are nobody's business."""
        entries = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
        return [entry for entry in dict.fromkeys(entries) if _holds_driver(entry)]

    def paths(self) -> list[Path]:
        """Files and folders outside /usr that must be readable."""
        roots = [Path(root) for root in _ROOTS[self.kind]]
        found = [*self.libraries(), *roots, *(root.resolve() for root in roots)]
        return [path for path in dict.fromkeys(found) if path.is_dir()]

    def environment(self, *, contained: bool = True) -> dict[str, str]:
        """Settings: one visible GPU, every cache in the private /tmp, compilers on PATH."""
        home, folder = _HOME[self.kind]
        tools = [path for path in _TOOLS[self.kind] if Path(path).is_dir()]
        settings = {
            "PATH": ":".join([*tools, "/usr/local/bin", "/usr/bin", "/bin"]),
            "USER": "sandbox",  # without an /etc/passwd some libraries ask the environment who they are
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_MODULE_LOADING": "LAZY",
            "CUDA_CACHE_PATH": "/tmp/cuda-cache",
            "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its worker processes would outlive a session
            "TRITON_CACHE_DIR": "/tmp/triton",
            "TORCH_EXTENSIONS_DIR": "/tmp/torch_extensions",
        }
        settings["CUDA_VISIBLE_DEVICES" if self.kind == "cuda" else "HIP_VISIBLE_DEVICES"] = str(
            self._visible(contained)
        )
        if Path(folder).is_dir():
            settings[home] = folder
        if libraries := self.libraries():
            settings["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        return settings

    def _visible(self, contained: bool) -> int:
        # inside, the only NVIDIA node left is number 0
        return 0 if self.kind == "cuda" and contained else self.index


_SHARED_NODES = ("nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


def gpu_nodes(dev: Path = Path("/dev")) -> list[Path]:
    """NVIDIA's per-GPU nodes in order of their minor numbers."""
    found = [path for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("nvidia")))


def gpu_count(kind: Literal["cuda", "rocm"], dev: Path = Path("/dev"), sys: Path = Path("/sys")) -> int:
    """GPUs of that kind on this machine, without starting a runtime (a fork after CUDA has started is useless)."""
    if kind == "cuda":
        return len(gpu_nodes(dev)) if (dev / "nvidiactl").exists() else 0
    if not (dev / "kfd").exists():
        return 0
    topology = (sys / "class/kfd/kfd/topology/nodes").glob("*/properties")
    return sum(re.search(r"^simd_count [1-9]", path.read_text(), re.MULTILINE) is not None for path in topology)


def _holds_driver(folder: Path) -> bool:
    try:
        return any(_DRIVER_LIBRARY.match(path.name) for path in folder.iterdir())
    except OSError:
        return False
