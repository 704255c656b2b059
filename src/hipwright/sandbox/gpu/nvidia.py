"""NVIDIA's device nodes: open to everyone (mode 0666), so no privilege is needed.

Only the chosen GPU's own node is shown: the driver leaves out GPUs whose node it cannot open, as in a container with
one GPU. GPU numbers count those nodes in order, as nvidia-smi does where minor numbers follow the bus.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

_SHARED_NODES = ("nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


class NvidiaFiles:
    """The files of NVIDIA's driver and of CUDA."""

    roots: ClassVar[tuple[str, ...]] = ("/usr/local/nvidia", "/usr/local/cuda", "/run/opengl-driver", "/usr/lib/wsl")
    tools: ClassVar[tuple[str, ...]] = ("/usr/local/cuda/bin", "/usr/local/nvidia/bin")
    visible: ClassVar[str] = "CUDA_VISIBLE_DEVICES"
    home: ClassVar[tuple[str, str]] = ("CUDA_HOME", "/usr/local/cuda")
    renumbered: ClassVar[bool] = True

    def nodes(self, index: int, dev: Path) -> tuple[list[Path], list[Path]]:
        """The control node, the GPU's own, and those that all GPUs share."""
        gpus = gpu_nodes(dev)
        found = [dev / "nvidiactl", *gpus[index : index + 1]]
        missing = [path for path in found if not path.exists()] or ([] if index < len(gpus) else [dev])
        return [*found, *(path for path in map(dev.joinpath, _SHARED_NODES) if path.exists())], missing

    def count(self, dev: Path, sys: Path) -> int:
        """The GPUs' own nodes."""
        return len(gpu_nodes(dev)) if (dev / "nvidiactl").exists() else 0


def gpu_nodes(dev: Path = Path("/dev")) -> list[Path]:
    """NVIDIA's per-GPU nodes in order of their minor numbers."""
    found = [path for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("nvidia")))
