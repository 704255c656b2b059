"""The HIP runtime (libamdhip64.so) through ctypes: no ROCm headers, no compiler, no torch.

Names, numbers and structures are those of `hip/hip_runtime_api.h`, ROCm 6 and later. Every call that can fail is
checked; a failure raises one of hipwright's errors, by whose fault it is (`error_of`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from hipwright.errors import CandidateError, DeviceError, HipwrightError, ToolchainError
from hipwright.records import Status
from hipwright.toolchain.amd import rocm_paths

SUCCESS = 0
NAMES = {
    1: "hipErrorInvalidValue",
    2: "hipErrorOutOfMemory",
    3: "hipErrorNotInitialized",
    4: "hipErrorDeinitialized",
    9: "hipErrorInvalidConfiguration",
    17: "hipErrorInvalidDevicePointer",
    35: "hipErrorInsufficientDriver",
    52: "hipErrorMissingConfiguration",
    53: "hipErrorPriorLaunchFailure",
    98: "hipErrorInvalidDeviceFunction",
    100: "hipErrorNoDevice",
    101: "hipErrorInvalidDevice",
    200: "hipErrorInvalidImage",
    201: "hipErrorInvalidContext",
    209: "hipErrorNoBinaryForGpu",
    214: "hipErrorECCNotCorrectable",
    218: "hipErrorInvalidKernelFile",
    300: "hipErrorInvalidSource",
    301: "hipErrorFileNotFound",
    302: "hipErrorSharedObjectSymbolNotFound",
    303: "hipErrorSharedObjectInitFailed",
    304: "hipErrorOperatingSystem",
    400: "hipErrorInvalidHandle",
    401: "hipErrorIllegalState",
    500: "hipErrorNotFound",
    600: "hipErrorNotReady",
    700: "hipErrorIllegalAddress",
    701: "hipErrorLaunchOutOfResources",
    702: "hipErrorLaunchTimeOut",
    709: "hipErrorContextIsDestroyed",
    710: "hipErrorAssert",
    719: "hipErrorLaunchFailure",
    720: "hipErrorCooperativeLaunchTooLarge",
    801: "hipErrorNotSupported",
    900: "hipErrorStreamCaptureUnsupported",
    901: "hipErrorStreamCaptureInvalidated",
    999: "hipErrorUnknown",
    1052: "hipErrorRuntimeMemory",
    1053: "hipErrorRuntimeOther",
}
"""hipError_t, for a library without hipGetErrorName."""

STICKY = frozenset({53, 214, 700, 702, 709, 710, 719, 999, 1052, 1053})
"""After one of these the process cannot use the device reliably and must be replaced."""

_CANDIDATE: dict[int, tuple[Status, str]] = {
    9: ("launch_error", "the launch's grid, block or LDS is not possible on this device"),
    53: ("launch_error", "an earlier launch failed"),
    98: ("launch_error", "the code object has no such kernel"),
    500: ("launch_error", "the code object has no such kernel"),
    700: ("out_of_bounds", "a kernel read or wrote an illegal address"),
    701: ("launch_error", "the kernel needs more registers, LDS or scratch than the device has"),
    702: ("timeout", "a kernel timed out on the device"),
    710: ("launch_error", "an assertion failed in a kernel"),
    719: ("launch_error", "a kernel raised a hardware exception"),
    720: ("launch_error", "a cooperative launch has more blocks than fit on the device"),
}
_IMAGE = {
    200: "the code object is not readable",
    209: "the code object is for another GPU",
    218: "the code object is damaged",
    300: "the code object is not device code",
}

_HINTS = {
    2: "free memory on the device, or use a smaller task",
    35: "the amdgpu driver is older than this ROCm: update it",
    100: "is the GPU visible (HIP_VISIBLE_DEVICES, /dev/kfd, the render group)?",
}

FUNCTION_ATTRIBUTES = {"max_threads": 0, "static_lds": 1, "local_bytes": 3, "registers": 4}
"""hipFunction_attribute."""
DEVICE_ATTRIBUTES = {
    "max_grid_x": 29,
    "max_grid_y": 30,
    "max_grid_z": 31,
    "max_threads": 56,
    "units": 63,
    "lds_per_block": 74,
    "wave": 87,
}
"""hipDeviceAttribute_t."""

MEMCPY_HOST_TO_DEVICE, MEMCPY_DEVICE_TO_HOST = 1, 2
CAPTURE_THREAD_LOCAL = 1
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "hipInit": (c_uint,),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "hipGetDevicePropertiesR0600": (c_void_p, c_int),
    "hipModuleLoadData": (POINTER(c_void_p), c_char_p),
    "hipModuleUnload": (c_void_p,),
    "hipModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "hipFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "hipModuleLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "hipDeviceSynchronize": (),
    "hipMalloc": (POINTER(c_void_p), c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipStreamCreate": (POINTER(c_void_p),),
    "hipStreamDestroy": (c_void_p,),
    "hipStreamSynchronize": (c_void_p,),
    "hipEventCreate": (POINTER(c_void_p),),
    "hipEventDestroy": (c_void_p,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventSynchronize": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipStreamBeginCapture": (c_void_p, c_int),
    "hipStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "hipGraphInstantiate": (POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_char_p, c_size_t),
    "hipGraphLaunch": (c_void_p, c_void_p),
    "hipGraphExecDestroy": (c_void_p,),
    "hipGraphDestroy": (c_void_p,),
}


class Properties(ctypes.Structure):
    """hipDeviceProp_tR0600. Consecutive unused fields are one array, of equal size and alignment."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("uuid_luid", ctypes.c_ubyte * 24),
        ("luid_mask", c_uint),
        ("memory_bytes", c_size_t),
        ("lds_per_block", c_size_t),
        ("registers_per_block", c_int),
        ("wave", c_int),
        ("pitch", c_size_t),
        ("threads_and_grid", c_int * 8),  # maxThreadsPerBlock ... clockRate
        ("constant_bytes", c_size_t),
        ("version", c_int * 2),
        ("texture_alignments", c_size_t * 2),
        ("overlap", c_int),
        ("units", c_int),
        ("modes_textures_surfaces", c_int * 44),  # kernelExecTimeoutEnabled ... maxSurfaceCubemapLayered
        ("surface_alignment", c_size_t),
        ("concurrent_to_local_l1", c_int * 16),  # concurrentKernels ... localL1CacheSupported
        ("lds_per_unit", c_size_t),
        ("registers_to_cooperative", c_int * 12),  # regsPerMultiprocessor ... cooperativeMultiDeviceLaunch
        ("lds_opt_in", c_size_t),
        ("pageable_to_window", c_int * 4),
        ("lds_reserved", c_size_t),
        ("host_to_pointers", c_int * 13),  # hostRegisterSupported ... unifiedFunctionPointers
        ("reserved", c_int * 95),
        ("architecture", ctypes.c_char * 256),
        ("rest", ctypes.c_ubyte * 512),  # more than any release writes so far
    )


class Hip:
    """The runtime's functions, loaded from one library. For any thread; the current device is a thread's own."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = str(path or find_library())
        try:
            self._library = ctypes.CDLL(self.path)
            for name, arguments in _ARGUMENTS.items():
                getattr(self._library, name).argtypes = arguments
            self._library.hipGetErrorName.restype = c_char_p
        except (OSError, AttributeError) as error:
            raise DeviceError(f"cannot use the HIP runtime {self.path}: {error}", hint=rocm_paths.FIX) from None

    def function(self, name: str) -> Any:
        """A library function, for calls that must be fast; it returns a hipError_t."""
        return getattr(self._library, name)

    def code(self, function: str, *arguments: Any) -> int:
        """Call a function and return its hipError_t."""
        return int(getattr(self._library, function)(*arguments))

    def call(self, function: str, *arguments: Any, doing: str = "") -> None:
        """Call a function; raises `error_of` its failure. doing: the purpose of the call, for the message."""
        code = self.code(function, *arguments)
        if code != SUCCESS:
            self.clear_error()
            raise error_of(code, self.error_name(code), doing or function)

    def error_name(self, code: int) -> str:
        """ "hipErrorLaunchFailure" for 719."""
        named = self._library.hipGetErrorName(c_int(code))
        return named.decode(errors="replace") if named else NAMES.get(code, f"error {code}")

    def clear_error(self) -> None:
        """Clear this thread's last error, unless it is sticky."""
        self.code("hipGetLastError")

    def last_error(self) -> int:
        """The last error of this thread, without clearing it."""
        return self.code("hipPeekAtLastError")

    # ------------------------------------------------------------ device

    def device_count(self) -> int:
        """How many devices are visible to this process."""
        self.call("hipInit", 0, doing="starting the HIP runtime")
        return self._out(c_int, "hipGetDeviceCount", doing="counting the devices")

    def attribute(self, name: str, device: int) -> int:
        """One of `DEVICE_ATTRIBUTES`."""
        value = c_int()
        self.call("hipDeviceGetAttribute", ctypes.byref(value), DEVICE_ATTRIBUTES[name], device)
        return value.value

    def properties(self, device: int) -> Properties:
        """Name, architecture and memory of a device."""
        found = Properties()
        self.call("hipGetDevicePropertiesR0600", ctypes.byref(found), device, doing="reading the device's properties")
        return found

    def synchronize(self, doing: str = "waiting for the device") -> None:
        """Wait for everything on the device."""
        self.call("hipDeviceSynchronize", doing=doing)

    # ------------------------------------------------------------ resources, released with the block

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """The address of `size` bytes of device memory."""
        address = self._out(c_void_p, "hipMalloc", size, doing=f"allocating {size} bytes")
        try:
            yield address
        finally:
            self.code("hipFree", address)

    @contextmanager
    def stream(self) -> Iterator[int]:
        """A stream's handle."""
        handle = self._out(c_void_p, "hipStreamCreate", doing="making a stream")
        try:
            yield handle
        finally:
            self.code("hipStreamDestroy", handle)

    @contextmanager
    def event(self) -> Iterator[int]:
        """An event's handle."""
        handle = self._out(c_void_p, "hipEventCreate", doing="making an event")
        try:
            yield handle
        finally:
            self.code("hipEventDestroy", handle)

    @contextmanager
    def graph(self, stream: int, record: Any) -> Iterator[int]:
        """An executable graph of the launches of `record()` on `stream`."""
        self.call("hipStreamBeginCapture", stream, CAPTURE_THREAD_LOCAL, doing="beginning a capture")
        try:
            record()
        finally:  # a stream must not be left capturing
            captured = c_void_p()
            ended = self.code("hipStreamEndCapture", stream, ctypes.byref(captured))
        if ended != SUCCESS:
            raise error_of(ended, self.error_name(ended), "ending a capture")
        try:
            executable = c_void_p()
            self.call("hipGraphInstantiate", ctypes.byref(executable), captured, None, None, 0, doing="making a graph")
            try:
                yield int(executable.value or 0)
            finally:
                self.code("hipGraphExecDestroy", executable)
        finally:
            self.code("hipGraphDestroy", captured)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two recorded events; waits for the second."""
        self.call("hipEventSynchronize", end, doing="waiting for an event")
        value = c_float()
        self.call("hipEventElapsedTime", ctypes.byref(value), start, end, doing="reading the events")
        return value.value

    def _out(self, kind: Any, function: str, *arguments: Any, doing: str) -> int:
        value = kind()
        self.call(function, ctypes.byref(value), *arguments, doing=doing)
        return int(value.value or 0)


def error_of(code: int, name: str, doing: str) -> HipwrightError:
    """The HipwrightError of a hipError_t, by whose fault it is."""
    said = f"{doing}: {name} ({code})"
    evidence = {"hip_error": name, "code": code, "sticky": code in STICKY}
    if code in _CANDIDATE:
        status, why = _CANDIDATE[code]
        return CandidateError(f"{why}: {said}", status=status, stage="launch", evidence=evidence)
    if code in _IMAGE:
        hint = "build for the architecture that `hipwright doctor` names"
        return ToolchainError(f"{_IMAGE[code]}: {said}", hint=hint, evidence=evidence)
    return DeviceError(f"the HIP runtime failed: {said}", hint=_HINTS.get(code, ""), evidence=evidence)


def error_text(code: int, name: str) -> str:
    """An error as text: "a kernel timed out on the device: hipErrorLaunchTimeOut (702)"."""
    why = _CANDIDATE[code][1] if code in _CANDIDATE else "the device failed"
    return f"{why}: {name} ({code})"


@cache
def find_library() -> str:
    """The path of the HIP runtime that this process has loaded already (torch's), else of this machine's.

    Raises DeviceError where there is none.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith("libamdhip64.so"):
            return f"/{path}"
    found = rocm_paths.library("amdhip64")
    if found is None:
        raise DeviceError("no HIP runtime (libamdhip64.so) on this machine", hint=rocm_paths.FIX)
    return str(found)
