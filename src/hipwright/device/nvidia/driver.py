"""The GpuDriver of NVIDIA GPUs: the driver API through ctypes. libcuda.so.1 is part of every driver.

(The package cuda.bindings has the same calls with types, but its launch takes longer than through ctypes.)
Sources: CUDA Driver API reference, "Module Management", "Execution Control", "Primary Context Management".
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from typing import Any

from hipwright.errors import CandidateError, DeviceError

LIBRARY = "libcuda.so.1"
RENAMED = "hw_"  # prefix of kernels whose name is a CUDA function's too (toolchain/nvidia/nvrtc.py)
_NOT_READY, _INVALID_CONTEXT, _NOT_FOUND = 600, 201, 500
# CUresult values that the candidate's image or launch causes; the context stays usable
_IMAGE = {
    200: "invalid image",
    209: "no code for this GPU",
    218: "invalid PTX",
    300: "invalid source",
    500: "not found",
    222: "PTX of a newer CUDA",
    2: "out of memory",
    1: "invalid value",
}
_LAUNCH = {1: "invalid value", 701: "too many resources for this block", 700: "", 719: ""}
# CUresult values that end the context: every later call fails (Driver API, CUresult)
_STICKY = (700, 702, 710, 714, 715, 716, 717, 718, 719, 721)
# CUdevice_attribute
_DEVICE = {
    "max_threads": 1,
    "max_grid_x": 5,
    "max_grid_y": 6,
    "max_grid_z": 7,
    "lds_per_block": 97,
    "wave": 10,
}
# CUfunction_attribute
_FUNCTION = {"max_threads": 0, "static_lds": 1, "local_bytes": 3, "registers": 4}
_MAX_DYNAMIC_LDS = 8
_ARCHITECTURE = (75, 76)  # CUdevice_attribute: compute capability, major and minor


class CudaDriver:
    """Loads and launches on one NVIDIA GPU, in the primary context, which torch uses too."""

    def __init__(self, index: int = 0) -> None:
        self._cuda = _library()
        _check_device(self._cuda, self._cuda.cuInit(0), "cuInit")
        self._device = c_int()
        _check_device(self._cuda, self._cuda.cuDeviceGet(byref(self._device), index), f"GPU {index}")
        self._context = c_void_p()
        status = self._cuda.cuDevicePrimaryCtxRetain(byref(self._context), self._device)
        _check_device(self._cuda, status, f"the context of GPU {index}")
        self._launch = self._cuda.cuLaunchKernel
        self._enter()

    @property
    def arch(self) -> str:
        """The architecture's name for the compiler, "sm_90"."""
        major, minor = (self._attribute(number) for number in _ARCHITECTURE)
        return f"sm_{major}{minor}"

    def load(self, code: bytes) -> int:
        """The module's handle of a cubin."""
        self._enter()
        module = c_void_p()
        status = self._cuda.cuModuleLoadData(byref(module), code)
        self._candidate(status, _IMAGE, "the code object does not load")
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Unload a module; errors are ignored."""
        self._cuda.cuModuleUnload(module)

    def function(self, module: int, kernel: str) -> int:
        """A kernel's handle."""
        function = c_void_p()
        status = self._cuda.cuModuleGetFunction(byref(function), module, kernel.encode())
        if status == _NOT_FOUND:
            status = self._cuda.cuModuleGetFunction(byref(function), module, f"{RENAMED}{kernel}".encode())
        self._candidate(status, _IMAGE, f"the code object has no kernel {kernel}")
        return int(function.value or 0)

    def attributes(self, function: int) -> dict[str, int]:
        """registers, static_lds, local_bytes, max_threads."""
        return {name: self._function_attribute(function, number) for name, number in _FUNCTION.items()}

    def allow_lds(self, function: int, bytes_: int) -> None:
        """Opt in to more than 48 KiB of dynamic shared memory."""
        status = self._cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_LDS, bytes_)
        self._candidate(status, _LAUNCH, f"{bytes_} bytes of dynamic LDS are refused")

    def limits(self) -> dict[str, int]:
        """The device's limits, by the names of GpuDriver.limits."""
        return {name: self._attribute(number) for name, number in _DEVICE.items()}

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        lds_bytes: int,
        stream: int,
        params: ctypes.Array[c_void_p],
    ) -> None:
        """cuLaunchKernel."""
        status = self._launch(function, *grid, *block, lds_bytes, stream, params, None)
        if status == _INVALID_CONTEXT:  # this thread has not used CUDA yet
            self._enter()
            status = self._launch(function, *grid, *block, lds_bytes, stream, params, None)
        if status:
            self._candidate(status, _LAUNCH, "the launch failed")

    def peek_error(self) -> str:
        """A sticky error of the context as text, "" without one. Does not synchronise."""
        status = self._cuda.cuStreamQuery(None)
        return "" if status in (0, _NOT_READY) else _error_text(self._cuda, status)

    # ------------------------------------------------------------ inside

    def _enter(self) -> None:
        _check_device(self._cuda, self._cuda.cuCtxSetCurrent(self._context), "the context")

    def _attribute(self, number: int) -> int:
        value = c_int()
        status = self._cuda.cuDeviceGetAttribute(byref(value), number, self._device)
        _check_device(self._cuda, status, f"device attribute {number}")
        return value.value

    def _function_attribute(self, function: int, number: int) -> int:
        value = c_int()
        status = self._cuda.cuFuncGetAttribute(byref(value), number, function)
        self._candidate(status, _LAUNCH, "the kernel has no attributes")
        return value.value

    def _candidate(self, status: int, known: dict[int, str], what: str) -> None:
        """Raise the error of a call's status: CandidateError where it is `known` or sticky, else DeviceError."""
        if not status:
            return
        text = _error_text(self._cuda, status)
        if status in known or status in _STICKY:
            kind: Any = "out_of_bounds" if status in (700, 716, 717) else "timeout" if status == 702 else "launch_error"
            raise CandidateError(f"{what}: {text}", status=kind, stage="launch", evidence={"cuda": status})
        raise DeviceError(f"{what}: {text}", hint="check nvidia-smi, then try again")


def _error_text(cuda: Any, status: int) -> str:
    """CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)."""
    name, text = c_char_p(), c_char_p()
    cuda.cuGetErrorName(status, byref(name))
    cuda.cuGetErrorString(status, byref(text))
    return f"{(name.value or b'error %d' % status).decode()} ({(text.value or b'unknown').decode()})"


def _check_device(cuda: Any, status: int, what: str) -> None:
    if status:
        raise DeviceError(f"{what}: {_error_text(cuda, status)}", hint="check nvidia-smi, then try again")


def _library() -> Any:
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver: {error}", hint="install the NVIDIA driver, or use --target cpu") from None
    _declare(cuda)
    return cuda


def _declare(cuda: Any) -> None:
    """Declare argument types: without them ctypes cuts handles to 32 bits. cuda.h maps the names to _v2 ones."""
    handle = POINTER(c_void_p)
    types: dict[str, tuple[Any, ...]] = {
        "cuInit": (c_uint,),
        "cuDeviceGet": (POINTER(c_int), c_int),
        "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
        "cuDevicePrimaryCtxRetain": (handle, c_int),
        "cuCtxSetCurrent": (c_void_p,),
        "cuModuleLoadData": (handle, c_char_p),
        "cuModuleUnload": (c_void_p,),
        "cuModuleGetFunction": (handle, c_void_p, c_char_p),
        "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
        "cuFuncSetAttribute": (c_void_p, c_int, c_int),
        "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, handle, c_void_p),
        "cuStreamQuery": (c_void_p,),
        "cuGetErrorName": (c_int, POINTER(c_char_p)),
        "cuGetErrorString": (c_int, POINTER(c_char_p)),
    }
    for name, arguments in types.items():
        getattr(cuda, name).argtypes = arguments
        getattr(cuda, name).restype = c_int
