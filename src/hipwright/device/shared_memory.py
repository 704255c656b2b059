"""Memory that one process allocates and another maps: a shareable handle on a GPU, a memfd on the CPU. Imports torch.

The exporter is always a candidate's process, the importer always the task's (docs/tasks.md): no process of a
candidate ever maps memory of one that holds expectations. Source: CUDA Driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
import mmap
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from typing import Any

import torch

from hipwright.device.gpu.memory import DeviceBytes
from hipwright.errors import DeviceError
from hipwright.targets import TORCH_GPU

_LIBRARY = "libcuda.so.1"
_PINNED, _DEVICE, _POSIX_FD, _READ_WRITE = 1, 1, 1, 3


class _Location(ctypes.Structure):
    _fields_ = (("kind", c_int), ("index", c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("kind", c_int),
        ("handles", c_int),
        ("location", _Location),
        ("windows", c_void_p),
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", c_int))


class SharedMemory:
    """`bytes` of memory as the uint8 tensor `data`. Unmapped by `close`; the memory lives as long as one end maps it.

    device: "cuda:0" or "cpu". fd: where another process exported it; on the CPU, where the memory is in either process.
    Raises DeviceError where the driver has no such memory.
    """

    def __init__(self, device: str, nbytes: int, fd: int | None = None) -> None:
        self.device, self.bytes = torch.device(device), nbytes
        self._mapped: mmap.mmap | None = None
        self._handle, self._address, self._size = c_uint64(), c_uint64(), c_size_t()
        self.data: Any
        if self.device.type != TORCH_GPU:
            assert fd is not None
            self._mapped = mmap.mmap(fd, nbytes)
            self.data = torch.frombuffer(self._mapped, dtype=torch.uint8)
            return
        if torch.version.cuda is None:
            raise DeviceError("memory is shared between processes by CUDA's handles alone")
        self._cuda = ctypes.CDLL(_LIBRARY)
        torch.zeros(1, device=device)  # its context is the current one from here on
        self._map(fd)
        self.data = torch.as_tensor(DeviceBytes(int(self._address.value), nbytes), device=self.device)

    def export(self) -> int:
        """A file descriptor by which another process maps it; the caller closes it."""
        found = c_int(-1)
        self._call("cuMemExportToShareableHandle", byref(found), self._handle, _POSIX_FD, c_uint64(0))
        return found.value

    def close(self) -> None:
        """Unmaps it; `data` must not be used any more."""
        self.data = None
        if self._mapped is not None:
            return  # unmapped with the last tensor that uses it
        torch.cuda.synchronize(self.device)
        self._cuda.cuMemUnmap(self._address, self._size)
        self._cuda.cuMemAddressFree(self._address, self._size)
        self._cuda.cuMemRelease(self._handle)

    def _map(self, fd: int | None) -> None:
        where = _Location(_DEVICE, self.device.index or 0)
        properties = _Properties(_PINNED, _POSIX_FD, where)
        grain = c_size_t()
        self._call("cuMemGetAllocationGranularity", byref(grain), byref(properties), 0)
        self._size = c_size_t(-(-self.bytes // grain.value) * grain.value)
        if fd is None:
            self._call("cuMemCreate", byref(self._handle), self._size, byref(properties), c_uint64(0))
        else:
            self._call("cuMemImportFromShareableHandle", byref(self._handle), c_void_p(fd), _POSIX_FD)
        zero = c_uint64(0)
        self._call("cuMemAddressReserve", byref(self._address), self._size, c_size_t(0), zero, zero)
        self._call("cuMemMap", self._address, self._size, c_size_t(0), self._handle, zero)
        access = _Access(where, _READ_WRITE)
        self._call("cuMemSetAccess", self._address, self._size, byref(access), c_size_t(1))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            raise DeviceError(f"{name} returns {status}: memory cannot be shared between processes here")
