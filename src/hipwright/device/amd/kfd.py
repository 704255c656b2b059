"""AMD's GPUs as the amdgpu driver lists them under /sys/class/kfd. Creates no context."""

from __future__ import annotations

from pathlib import Path

from hipwright.device.gpu_info import GpuInfo
from hipwright.targets import ROCM

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
CARDS = Path("/sys/class/drm")


def gpus(nodes: Path = NODES) -> list[GpuInfo]:
    """AMD's GPUs in the driver's order; [] without the amdgpu driver. CPUs are nodes too, without SIMDs."""
    folders = sorted((path for path in nodes.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))
    found: list[GpuInfo] = []
    for folder in folders:
        properties = _properties(folder / "properties")
        version = properties.get("gfx_target_version", 0)
        if not properties.get("simd_count") or not version:
            continue
        name = _text(folder / "name")
        per_unit = properties.get("simd_per_cu", 0)
        found.append(
            GpuInfo(
                index=len(found),
                kind=ROCM.name,
                name=name or "AMD GPU",
                architecture=gfx_name(version),
                memory_bytes=sum(_memory(bank) for bank in folder.glob("mem_banks/*/properties")),
                units=properties["simd_count"] // per_unit if per_unit else 0,
                uuid=f"GPU-{properties['unique_id']:016x}" if properties.get("unique_id") else "",
            )
        )
    return found


def trouble(uuid: str, cards: Path = CARDS) -> str:
    """Why a GPU's timings are not to be trusted now: uncorrected errors that the driver's RAS counts; "" if none.

    Source: the Linux kernel's documentation of amdgpu, "AMDGPU RAS Support" (ras/*_err_count: "ue: N").
    """
    for folder in cards.glob("card*/device"):
        if not uuid or f"GPU-{_text(folder / 'unique_id')}" != uuid:
            continue
        words = [line.split() for path in folder.glob("ras/*_err_count") for line in _text(path).splitlines()]
        errors = sum(int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "ue:" and pair[1].isdigit())
        return f"{errors} uncorrected errors (RAS) since the driver was loaded" if errors else ""
    return ""


def gfx_name(version: int) -> str:
    """The name of a gfx_target_version: 90402 is gfx942, 110000 is gfx1100 (minor and stepping as hex digits)."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(bank: Path) -> int:
    """Bytes of a bank of the GPU's local memory (heap types 1 and 2), 0 for other banks."""
    properties = _properties(bank)
    return properties.get("size_in_bytes", 0) if properties.get("heap_type") in (1, 2) else 0


def _properties(path: Path) -> dict[str, int]:
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
