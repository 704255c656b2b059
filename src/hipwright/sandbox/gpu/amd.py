"""AMD's device nodes: /dev/kfd serves every GPU, and the runtime is told by a variable which one to show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar


class AmdFiles:
    """The files of the amdgpu driver and of ROCm."""

    roots: ClassVar[tuple[str, ...]] = ("/opt/rocm", "/opt/amdgpu")
    tools: ClassVar[tuple[str, ...]] = ("/opt/rocm/bin",)
    visible: ClassVar[str] = "HIP_VISIBLE_DEVICES"
    home: ClassVar[tuple[str, str]] = ("ROCM_PATH", "/opt/rocm")
    renumbered: ClassVar[bool] = False

    def nodes(self, index: int, dev: Path) -> tuple[list[Path], list[Path]]:
        """The compute node and the folder of the render nodes."""
        found = [dev / "kfd", dev / "dri"]
        return found, [path for path in found if not path.exists()]

    def count(self, dev: Path, sys: Path) -> int:
        """The topology's nodes that have SIMDs: processors are nodes too."""
        if not (dev / "kfd").exists():
            return 0
        topology = (sys / "class/kfd/kfd/topology/nodes").glob("*/properties")
        return sum(re.search(r"^simd_count [1-9]", path.read_text(), re.MULTILINE) is not None for path in topology)
