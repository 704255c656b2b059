"""The GPUs of this machine, without torch and without starting a runtime: `hipwright doctor`, `--gpus all`.

NVIDIA: NVML (libnvidia-ml.so.1, part of every driver). AMD: what the amdgpu driver tells under /sys/class/kfd. Neither
makes a context, so a process that asked may still fork workers that use the GPU.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Literal

from hipwright.errors import BadInput, DeviceError
from hipwright.records import Record

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
NVML = "libnvidia-ml.so.1"
VISIBLE = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}


class GpuInfo(Record, frozen=True, kw_only=True):
    """One GPU. index: its number on the machine, as GpuAccess counts. units: CUs, 0 where it is not told."""

    index: int
    kind: Literal["cuda", "rocm"]
    name: str
    architecture: str
    memory_bytes: int = 0
    units: int = 0
    uuid: str = ""


def find(kind: str | None = None) -> list[GpuInfo]:
    """Every GPU of this machine that the environment (CUDA_VISIBLE_DEVICES and the like) lets us use.

    kind: only "cuda" or only "rocm". A driver that does not answer counts as none.
    """
    return [gpu for gpu in (*nvidia(), *amd()) if kind in (None, gpu.kind) and _allowed(gpu)]


def choose(wish: str, kind: str | None = None) -> list[GpuInfo]:
    """The GPUs that a `--gpus` option names: "all", or numbers such as "0,2".

    Raises DeviceError where there is none, BadInput for a number that is not there.
    """
    found = find(kind)
    if not found:
        raise DeviceError(f"no {kind or 'usable'} GPU on this machine", hint="see `hipwright doctor`")
    if wish == "all":
        return found
    if not re.fullmatch(r"\d+(,\d+)*", wish):
        raise BadInput(f"not a list of GPUs: {wish!r}", hint="all, or numbers such as 0,2")
    by_index = {gpu.index: gpu for gpu in reversed(found)}
    numbers = list(dict.fromkeys(int(word) for word in wish.split(",")))
    if missing := [number for number in numbers if number not in by_index]:
        known = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in found)
        raise BadInput(f"no GPU {missing[0]} here", hint=f"there are: {known}")
    return [by_index[number] for number in numbers]


# ---------------------------------------------------------------- NVIDIA


def nvidia(library: str = NVML) -> list[GpuInfo]:
    """NVIDIA's GPUs in the order of their bus, as nvidia-smi numbers them; [] without a driver."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2():
            return []
    except (OSError, AttributeError):
        return []
    try:
        count = c_uint()
        if nvml.nvmlDeviceGetCount_v2(byref(count)):
            return []
        return [gpu for index in range(count.value) if (gpu := _nvidia(nvml, index)) is not None]
    finally:
        nvml.nvmlShutdown()


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def _nvidia(nvml: ctypes.CDLL, index: int) -> GpuInfo | None:
    device = c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device)):
        return None
    major, minor, memory = c_int(), c_int(), _Memory()
    nvml.nvmlDeviceGetCudaComputeCapability(device, byref(major), byref(minor))
    nvml.nvmlDeviceGetMemoryInfo(device, byref(memory))
    return GpuInfo(
        index=index,
        kind="cuda",
        name=_said(nvml.nvmlDeviceGetName, device) or "NVIDIA GPU",
        architecture=f"sm_{major.value}{minor.value}",
        memory_bytes=int(memory.total),
        uuid=_said(nvml.nvmlDeviceGetUUID, device),
    )


def _said(function: ctypes._NamedFuncPointer, device: c_void_p) -> str:
    buffer = ctypes.create_string_buffer(128)
    failed = function(device, ctypes.cast(buffer, c_char_p), c_uint(128))
    return "" if failed else buffer.value.decode(errors="replace")


# ---------------------------------------------------------------- AMD


def amd(nodes: Path = NODES) -> list[GpuInfo]:
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
                kind="rocm",
                name=name or "AMD GPU",
                architecture=gfx_name(version),
                memory_bytes=sum(_memory(bank) for bank in folder.glob("mem_banks/*/properties")),
                units=properties["simd_count"] // per_unit if per_unit else 0,
                uuid=f"GPU-{properties['unique_id']:016x}" if properties.get("unique_id") else "",
            )
        )
    return found


def gfx_name(version: int) -> str:
    """The name of a gfx_target_version: 90402 is gfx942, 110000 is gfx1100 (minor and stepping as hex digits)."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(bank: Path) -> int:
    """Bytes of a memory bank that is the GPU's own: heap types 1 and 2, local memory."""
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


def _allowed(gpu: GpuInfo) -> bool:
    """Whether every variable that lists visible devices lists this one, by number or by the start of its UUID.

    What follows a -1 counts for nothing, as in CUDA and HIP.
    """
    for name in VISIBLE[gpu.kind]:
        listed = os.environ.get(name)
        if listed is None:
            continue
        words = [word.strip() for word in listed.split(",")]
        words = words[: words.index("-1")] if "-1" in words else words
        if not any(word == str(gpu.index) or _named(word, gpu) for word in words):
            return False
    return True


def _named(word: str, gpu: GpuInfo) -> bool:
    return len(word) > 4 and bool(gpu.uuid) and gpu.uuid.startswith(word)
