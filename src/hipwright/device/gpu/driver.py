"""The interface between a GPU launcher and a vendor's driver API."""

from __future__ import annotations

import ctypes
from typing import Protocol

from hipwright.device.gpu.kernels import Dim3


class GpuDriver(Protocol):
    """The calls of a GPU's driver API that a launcher needs (device/nvidia/driver.py, device/amd/driver.py).

    Raises CandidateError where the code object or the launch is at fault, DeviceError where the device is.
    """

    def load(self, code: bytes) -> int:
        """A module's handle; CandidateError(launch_error) for an image that the device refuses."""

    def unload(self, module: int) -> None:
        """Unload a module."""

    def function(self, module: int, kernel: str) -> int:
        """A kernel's handle; CandidateError(launch_error) where the module has no kernel of that name."""

    def attributes(self, function: int) -> dict[str, int]:
        """{registers, static_lds (bytes), local_bytes (a thread), max_threads (a block of this kernel)}."""

    def allow_lds(self, function: int, bytes_: int) -> None:
        """Opt in to that many bytes of dynamic LDS where the default limit is less."""

    def limits(self) -> dict[str, int]:
        """{max_threads, max_grid_x, max_grid_y, max_grid_z, lds_per_block (bytes, after opting in), wave (lanes)}."""

    def launch(
        self, function: int, grid: Dim3, block: Dim3, lds_bytes: int, stream: int, params: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Enqueue a launch; the parameters are copied before the call returns."""

    def peek_error(self) -> str:
        """A sticky error of the context as text, "" without one. Not during a graph capture."""
