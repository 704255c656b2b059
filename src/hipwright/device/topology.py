"""The GPUs of this machine, found without torch and without starting a runtime: `hipwright doctor`, `--gpus all`.

The finders create no context, so a process that called them may still fork workers that use the GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from hipwright import config
from hipwright.device.amd import kfd
from hipwright.device.gpu_info import GpuInfo
from hipwright.device.nvidia import nvml
from hipwright.errors import BadInput, DeviceError
from hipwright.software_gpu import software_name
from hipwright.targets import CUDA, ROCM, TARGETS, Target


def _amd_gpus() -> list[GpuInfo]:
    """The simulated GPU where $ROCM_PATH is such a ROCm, else AMD's GPUs."""
    architecture = config.simulated_gpu().get("architecture", "")
    known = TARGETS.architecture(architecture)
    if known is None:
        return kfd.gpus()
    name = software_name(architecture)
    memory = known.memory_bytes
    return [
        GpuInfo(index=0, kind=ROCM.name, name=name, architecture=architecture, memory_bytes=memory, units=known.cus)
    ]


FINDERS: dict[Target, Callable[[], list[GpuInfo]]] = {CUDA: nvml.gpus, ROCM: _amd_gpus}
"""The registry of this layer: the finder of each GPU runtime, in the order in which GPUs are listed."""


def find(kind: str | None = None) -> list[GpuInfo]:
    """Every GPU of this machine that the environment (CUDA_VISIBLE_DEVICES and the like) allows.

    kind: only those of the GPU target of that name. A driver that does not answer counts as none.
    """
    found = [gpu for finder in FINDERS.values() for gpu in finder()]
    return [gpu for gpu in found if kind in (None, gpu.kind) and _allowed(gpu)]


def choose(wish: str, kind: str | None = None) -> list[GpuInfo]:
    """The GPUs that a `--gpus` option names: "all", or numbers such as "0,2".

    Raises DeviceError where there is no GPU, BadInput for a number without one.
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


def _allowed(gpu: GpuInfo) -> bool:
    """Whether every variable that lists visible devices lists this one, by number or by the start of its UUID.

    Entries behind a -1 are ignored, as in CUDA and HIP.
    """
    for name in TARGETS.gpu(gpu.kind).gpu_runtime.visible:
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
