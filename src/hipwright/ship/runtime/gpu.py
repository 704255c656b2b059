"""A package's kernels on a GPU: built at first use, launched on torch's current stream through the driver's API.

Sources: CUDA Driver API ("Execution Control", "Primary Context Management"), HIP runtime API ("Modules").
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from . import build

Param = tuple[str, str, tuple[str, ...], int]
"""(name, struct format or "P" for a pointer, dtypes that a pointer may have or () for any, its alignment)."""
CUDA_LIBRARY, HIP_LIBRARY = "libcuda.so.1", "libamdhip64.so"
_INVALID_CONTEXT, _MAX_DYNAMIC_LDS, _FREE_LDS = 201, 8, 48 << 10
_NOT_FOUND = 500


class NoGpu(RuntimeError):
    """A tensor is not on a GPU."""


class LaunchError(RuntimeError):
    """The driver, or a check of the arguments, rejects a launch."""


class Driver:
    """The functions of libcuda or libamdhip64 that a launch needs, for one device."""

    def __init__(self, index: int) -> None:
        self.hip = torch.version.hip is not None
        self._index, self._context = index, c_void_p()
        library = ctypes.CDLL(_loaded(HIP_LIBRARY) if self.hip else CUDA_LIBRARY)
        names = _HIP if self.hip else _CUDA
        self._calls = {what: getattr(library, name) for what, name in names.items()}
        for what, call in self._calls.items():
            call.argtypes, call.restype = _ARGUMENTS[what], c_int
        self.launch_kernel = self._calls["launch"]
        if not self.hip:
            device = c_int()
            self.check(library.cuInit(0), "cuInit")
            self.check(self._calls["device"](byref(device), index), f"GPU {index}")
            self.check(self._calls["retain"](byref(self._context), device), f"the context of GPU {index}")
            self.enter()

    def enter(self) -> None:
        """Makes the device's context current in this thread; autograd's threads may have none yet."""
        if not self.hip:
            self.check(self._calls["enter"](self._context), "the context")

    def load(self, code: bytes) -> int:
        """Loads a code object; returns its module handle."""
        module = c_void_p()
        self.check(self._calls["load"](byref(module), code), "loading the kernels")
        return int(module.value or 0)

    def function(self, module: int, kernel: str) -> int:
        """The handle of a kernel. NVRTC builds may have renamed it (`build._rename`)."""
        function = c_void_p()
        status = self._calls["function"](byref(function), module, kernel.encode())
        if status == _NOT_FOUND and not self.hip:
            status = self._calls["function"](byref(function), module, f"hw_{kernel}".encode())
        self.check(status, f"kernel {kernel}")
        return int(function.value or 0)

    def allow_lds(self, function: int, lds: int) -> None:
        """Requests more than 48 KiB of dynamic shared memory, which CUDA requires and HIP does not."""
        if not self.hip:
            self.check(self._calls["attribute"](function, _MAX_DYNAMIC_LDS, lds), f"{lds} bytes of LDS")

    def check(self, status: int, doing: str) -> None:
        """Raises LaunchError for any status but success."""
        if status:
            raise LaunchError(f"{doing}: the {'HIP runtime' if self.hip else 'CUDA driver'} says error {status}")


_CUDA = {
    "device": "cuDeviceGet",
    "retain": "cuDevicePrimaryCtxRetain",
    "enter": "cuCtxSetCurrent",
    "load": "cuModuleLoadData",
    "function": "cuModuleGetFunction",
    "attribute": "cuFuncSetAttribute",
    "launch": "cuLaunchKernel",
}
_HIP = {"load": "hipModuleLoadData", "function": "hipModuleGetFunction", "launch": "hipModuleLaunchKernel"}
_HANDLE = POINTER(c_void_p)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {  # the default, int, truncates handles to 32 bits
    "device": (POINTER(c_int), c_int),
    "retain": (_HANDLE, c_int),
    "enter": (c_void_p,),
    "load": (_HANDLE, c_char_p),
    "function": (_HANDLE, c_void_p, c_char_p),
    "attribute": (c_void_p, c_int, c_int),
    "launch": (c_void_p, *(c_uint,) * 7, c_void_p, _HANDLE, _HANDLE),
}


def _loaded(name: str) -> str:
    """The library of that name that torch has loaded, else the name for the loader to search."""
    lines = Path("/proc/self/maps").read_text().splitlines() if Path("/proc/self/maps").exists() else []
    paths = (line.partition("/")[2] for line in lines)
    return next((f"/{path}" for path in paths if Path(path).name.startswith(name)), name)


# ---------------------------------------------------------------- kernels


class Kernel:
    """One kernel on one device.

    `kernel(grid, block, lds_bytes, *arguments)` enqueues it; an empty grid enqueues nothing.
    """

    def __init__(self, name: str, params: Sequence[Param], function: int, driver: Driver, device: torch.device) -> None:
        self.name, self._params, self._function, self._driver = name, tuple(params), function, driver
        self._device, self._lds, self._lock = device, _FREE_LDS, threading.Lock()
        formats = [form for _, form, _, _ in self._params]
        self._struct = struct.Struct("@" + "".join(formats))
        self._block = (ctypes.c_char * max(self._struct.size, 8))()
        ends = [struct.calcsize("@" + "".join(formats[: i + 1])) for i in range(len(formats))]
        base = ctypes.addressof(self._block)
        places = (base + end - struct.calcsize(form) for end, form in zip(ends, formats, strict=True))
        self._pointers = (c_void_p * max(len(formats), 1))(*places)
        self._kinds = [frozenset(getattr(torch, kind, None) for kind in param[2]) for param in self._params]

    def __call__(self, grid: Any, block: Any, lds: int, *arguments: Any) -> None:
        """Launches on torch's current stream of the device."""
        dims = (*dimensions(grid), *dimensions(block))
        if 0 in dims[:3]:
            return
        device, values = self._device, []
        for param, kinds, value in zip(self._params, self._kinds, arguments, strict=True):
            if param[1] == "P" and value is not None and (value.dtype in kinds or not kinds) and value.device == device:
                address = value.data_ptr()
                if not address % param[3]:
                    values.append(address)
                    continue
            values.append(self._other(param, value))
        if lds > self._lds:
            self._driver.allow_lds(self._function, lds)
            self._lds = lds
        stream = torch._C._cuda_getCurrentRawStream(self._device.index)
        with self._lock:  # the call copies the arguments before it returns
            try:
                self._struct.pack_into(self._block, 0, *values)
            except struct.error as error:
                raise LaunchError(f"kernel {self.name}: an argument does not fit: {error}") from None
            call = (self._function, *dims, lds, stream, self._pointers, None)
            status = self._driver.launch_kernel(*call)
            if status == _INVALID_CONTEXT:
                self._driver.enter()
                status = self._driver.launch_kernel(*call)
        self._driver.check(status, f"kernel {self.name}[{dims[:3]}, {dims[3:]}, {lds}]")

    def _other(self, param: Param, value: Any) -> Any:
        """A number or nothing as `struct` packs it. Raises LaunchError for a tensor, as its dtype, device or alignment
        is wrong."""
        name, form, dtypes, align = param
        if form != "P":
            return _bfloat16_bits(value) if dtypes == ("bfloat16",) else value
        if value is None:
            return 0
        if value.device != self._device or (dtypes and str(value.dtype)[6:] not in dtypes):
            raise LaunchError(
                f"kernel {self.name}: {name} wants {' or '.join(dtypes) or 'any dtype'} on "
                f"{self._device}, not {value.dtype} on {value.device}"
            )
        raise LaunchError(f"kernel {self.name}: {name} does not start at a multiple of {align} bytes")


def dimensions(value: Any) -> tuple[int, int, int]:
    """A grid or block as three integers."""
    listed = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    x, y, z = (*listed, 1, 1)[:3]
    return int(x), int(y), int(z)


def _bfloat16_bits(value: float) -> int:
    """The bits of the nearest bfloat16."""
    return int(torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16).item()) & 0xFFFF


class NoKernels:
    """Kernels that do nothing.

    A plan that runs with them only creates its tensors, as the rule for fake tensors needs.
    """

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*arguments: Any) -> None:
    return None


class Kernels:
    """The kernels of one source, built for each device on first use."""

    def __init__(self, source: Path, defines: Mapping[str, int], signatures: Mapping[str, Sequence[Param]]) -> None:
        self._source, self._defines, self._signatures = source, dict(defines), dict(signatures)
        self._made: dict[torch.device, Any] = {}
        self._lock = threading.Lock()

    def on(self, device: torch.device) -> Any:
        """The kernels as attributes. Raises NoGpu for another device, BuildError where they cannot be compiled."""
        found = self._made.get(device)
        return found if found is not None else self._make(device)

    def _make(self, device: torch.device) -> Any:
        if device.type != "cuda":
            raise NoGpu(
                f"these kernels run on a GPU and the tensors are on {device}: move the module and its inputs, "
                "or ask for the reference with allow_reference=True"
            )
        with self._lock:
            if device not in self._made:
                self._made[device] = self._built(device)
        return self._made[device]

    def _built(self, device: torch.device) -> Any:
        made = SimpleNamespace()
        if self._signatures:
            with torch.cuda.device(device):
                code = build.build(self._source.read_text(encoding="utf-8"), self._defines, architecture(device))
                driver = Driver(device.index)
                module = driver.load(code)
            for name, params in self._signatures.items():
                setattr(made, name, Kernel(name, params, driver.function(module, name), driver, device))
        return made


def missing() -> str:
    """What the kernels lack on this machine, in a line; "" where there is a GPU."""
    if torch.cuda.is_available():
        return ""
    made_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip or ''}".strip()
    built = torch.version.cuda or torch.version.hip
    return f"no GPU here (torch {torch.__version__} {f'for {made_for} sees none' if built else 'is built without one'})"


def architecture(device: torch.device) -> str:
    """The GPU's architecture: "gfx942", "sm_90"."""
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"
