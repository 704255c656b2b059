"""A GPU driver without a GPU: it records launches, and may run a Python function in place of a kernel.

For `GpuLauncher(FakeDriver(...), ..., device="cpu")`: pointers are then addresses of this process's own memory.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipwright.errors import CandidateError

LIMITS = {
    "max_threads": 1024,
    "max_grid_x": 2**31 - 1,
    "max_grid_y": 65535,
    "max_grid_z": 65535,
    "lds_per_block": 227 << 10,
    "wave": 32,
}


@dataclass
class Launched:
    """One launch: `values` holds the raw bytes of each argument, as the driver would copy them."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds_bytes: int
    stream: int
    values: list[bytes]


@dataclass
class FakeDriver:
    """sizes: kernel -> bytes of each parameter. bodies: kernel -> what a launch does with those bytes.

    error: what peek_error says from now on. static_lds, max_threads: attributes of every kernel.
    """

    sizes: dict[str, Sequence[int]]
    bodies: dict[str, Callable[[list[bytes]], None]] = field(default_factory=dict)
    name: str = "fake"
    error: str = ""
    static_lds: int = 0
    max_threads: int = 1024
    launches: list[Launched] = field(default_factory=list)
    allowed: dict[str, int] = field(default_factory=dict)
    modules: dict[int, bytes] = field(default_factory=dict)
    asked: int = 0  # calls of `function`

    def load(self, code: bytes) -> int:
        if not code.startswith(b"code"):
            raise CandidateError("the code object does not load", status="launch_error", stage="launch")
        self.modules[len(self.modules) + 1] = code
        return len(self.modules)

    def unload(self, module: int) -> None:
        del self.modules[module]

    def function(self, module: int, kernel: str) -> int:
        assert module in self.modules
        self.asked += 1
        names = list(self.sizes)
        if kernel not in names:
            raise CandidateError(f"the code object has no kernel {kernel}", status="launch_error", stage="launch")
        return names.index(kernel) + 1

    def attributes(self, function: int) -> dict[str, int]:
        return {"registers": 32, "static_lds": self.static_lds, "local_bytes": 0, "max_threads": self.max_threads}

    def allow_lds(self, function: int, bytes_: int) -> None:
        self.allowed[list(self.sizes)[function - 1]] = bytes_

    def limits(self) -> dict[str, int]:
        return dict(LIMITS)

    def launch(
        self, function: int, grid: Any, block: Any, lds_bytes: int, stream: int, params: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        kernel = list(self.sizes)[function - 1]
        values = [ctypes.string_at(params[i], size) for i, size in enumerate(self.sizes[kernel])]
        self.launches.append(Launched(kernel, grid, block, lds_bytes, stream, values))
        if kernel in self.bodies:
            self.bodies[kernel](values)

    def peek_error(self) -> str:
        return self.error


def pointer(value: bytes) -> int:
    """The address in an argument."""
    return int(struct.unpack("P", value)[0])
