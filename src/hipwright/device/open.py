"""The driver of a target, by name."""

from __future__ import annotations

from hipwright.device.gpu import GpuDriver
from hipwright.errors import BadInput


def open_driver(name: str, index: int = 0) -> GpuDriver:
    """The driver API of "cuda" or "rocm" on device `index`. Raises DeviceError where there is none.

    torch must have chosen the same device: a driver works in torch's (primary) context.
    """
    if name == "cuda":
        from hipwright.device.cuda import CudaDriver

        return CudaDriver(index)
    if name == "rocm":
        from hipwright.device.rocm import RocmDriver

        return RocmDriver(index)
    raise BadInput(f"no GPU driver is called {name!r}", hint="cuda or rocm")
