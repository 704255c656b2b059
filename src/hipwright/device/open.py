"""The driver of a GPU target."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hipwright.device.gpu.driver import GpuDriver
from hipwright.device.signature import KernelSignature
from hipwright.errors import BadInput
from hipwright.targets import CUDA, ROCM, TARGETS, Target


def _cuda(index: int) -> GpuDriver:
    from hipwright.device.nvidia.driver import CudaDriver

    return CudaDriver(index)


def _rocm(index: int) -> GpuDriver:
    from hipwright.device.amd.driver import RocmDriver

    return RocmDriver(index)


DRIVERS: dict[Target, Callable[[int], GpuDriver]] = {CUDA: _cuda, ROCM: _rocm}
"""The registry of this layer: opens the driver API of each GPU runtime on a device, by its number."""


def open_driver(name: str, index: int = 0) -> GpuDriver:
    """The driver API of the GPU target of that name on device `index`. Raises DeviceError where there is none.

    torch must have chosen the same device: a driver works in torch's (primary) context.
    """
    target = TARGETS.get(name)
    if target is None or target not in DRIVERS:
        raise BadInput(f"no GPU driver is called {name!r}", hint=TARGETS.gpu_choices())
    return DRIVERS[target](index)


def check_arguments(name: str, code: bytes, signatures: Mapping[str, KernelSignature]) -> None:
    """Check the arguments of a code object's kernels against the plan's signatures, where the runtime tells them.

    Raises CandidateError(launch_error) naming the parameter that differs.
    """
    if TARGETS.gpu(name).is_amd:
        from hipwright.device.amd.driver import check_signatures

        check_signatures(code, signatures)
