"""The GPU that a seat's machine uses."""

from __future__ import annotations

from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.machine import Machine
from hipwright.targets import TARGETS


def gpu_of(machine: Machine) -> GpuInfo | None:
    """The machine's GPU as the driver lists it; None where it uses none."""
    for name, context in machine.gpus.items():
        found = topology.find(TARGETS.gpu(name).name)
        return next((one for one in found if one.index == context.index), None)
    return None
