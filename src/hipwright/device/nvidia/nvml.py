"""NVIDIA's GPUs by NVML (libnvidia-ml.so.1, part of every driver). Creates no context.

Source: NVIDIA, "NVML API Reference Guide".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p

from hipwright.device.gpu_info import GpuInfo
from hipwright.targets import CUDA

NVML = "libnvidia-ml.so.1"
_SLOWDOWNS = {0x8: "hardware slowdown", 0x40: "temperature", 0x80: "power brake"}  # nvmlClocksThrottleReason*
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t


def gpus(library: str = NVML) -> list[GpuInfo]:
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
        return [gpu for index in range(count.value) if (gpu := _info(nvml, index)) is not None]
    finally:
        nvml.nvmlShutdown()


def cuda_version(library: str = NVML) -> str:
    """The newest CUDA that the driver runs, as "CUDA 13.0"; "" without a driver."""
    version = c_int()
    with _session(library) as nvml:
        if nvml is None or not _told(nvml, "nvmlSystemGetCudaDriverVersion_v2", byref(version)):
            return ""
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def clocks_mhz(index: int, library: str = NVML) -> tuple[int, int]:
    """The highest clocks of a GPU's multiprocessors and memory; 0 where the driver does not tell."""
    found = []
    with _session(library) as nvml:
        device = c_void_p()
        if nvml is None or nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device)):
            return 0, 0
        for domain in (_SM_CLOCK, _MEMORY_CLOCK):
            mhz = c_uint()
            told = _told(nvml, "nvmlDeviceGetMaxClockInfo", device, c_int(domain), byref(mhz))
            found.append(int(mhz.value) if told else 0)
    return found[0], found[1]


def trouble(index: int, library: str = NVML) -> str:
    """Why a GPU's timings are not to be trusted now: uncorrected errors of its memory, or a slowdown by hardware."""
    with _session(library) as nvml:
        device = c_void_p()
        if nvml is None or nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device)):
            return ""
        errors, reasons = c_ulonglong(), c_ulonglong()
        uncorrected, since_loaded = c_int(1), c_int(0)  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
        told = _told(nvml, "nvmlDeviceGetTotalEccErrors", device, uncorrected, since_loaded, byref(errors))
        if told and errors.value:
            return f"{errors.value} uncorrected memory errors (ECC) since the driver was loaded"
        if _told(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", device, byref(reasons)):
            found = [name for bit, name in _SLOWDOWNS.items() if reasons.value & bit]
            if found:
                return f"its clocks are held down: {', '.join(found)}"
    return ""


def _told(nvml: ctypes.CDLL, function: str, *arguments: object) -> bool:
    """Whether a function that older libraries lack was called and succeeded."""
    found = getattr(nvml, function, None)
    return found is not None and not found(*arguments)


@contextmanager
def _session(library: str) -> Iterator[ctypes.CDLL | None]:
    """The library, initialised; None without a driver."""
    try:
        nvml = ctypes.CDLL(library)
        ready = not nvml.nvmlInit_v2()
    except (OSError, AttributeError):
        ready = False
    if not ready:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def _info(nvml: ctypes.CDLL, index: int) -> GpuInfo | None:
    device = c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device)):
        return None
    major, minor, memory = c_int(), c_int(), _Memory()
    nvml.nvmlDeviceGetCudaComputeCapability(device, byref(major), byref(minor))
    nvml.nvmlDeviceGetMemoryInfo(device, byref(memory))
    return GpuInfo(
        index=index,
        kind=CUDA.name,
        name=_text(nvml.nvmlDeviceGetName, device) or "NVIDIA GPU",
        architecture=f"sm_{major.value}{minor.value}",
        memory_bytes=int(memory.total),
        uuid=_text(nvml.nvmlDeviceGetUUID, device),
    )


def _text(function: ctypes._NamedFuncPointer, device: c_void_p) -> str:
    buffer = ctypes.create_string_buffer(128)
    failed = function(device, ctypes.cast(buffer, c_char_p), c_uint(128))
    return "" if failed else buffer.value.decode(errors="replace")
