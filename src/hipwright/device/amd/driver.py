"""The GpuDriver of AMD GPUs: code objects through the HIP runtime, in the context that torch uses.

The runtime packs the arguments itself: it reads each kernel's parameter sizes and offsets from the code object and
copies them from `void **kernelParams`. `check_signatures` checks that they are those of the plan.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hipwright.device.amd.hip_api import (
    DEVICE_ATTRIBUTES,
    FUNCTION_ATTRIBUTES,
    STICKY,
    SUCCESS,
    Hip,
    error_of,
    error_text,
)
from hipwright.device.gpu.pack import ArgumentLayout
from hipwright.device.signature import KernelSignature
from hipwright.errors import CandidateError, DeviceError, HipwrightError, ToolchainError
from hipwright.targets import OFFLINE
from hipwright.toolchain.amd import codeobject, isa

WORK_ITEMS_LIMIT = 1 << 32
"""Grid * block of each dimension must be below: a dispatch counts threads in 32 bits (HSA's AQL packet)."""


class RocmDriver:
    """Loads and launches on one AMD GPU. `launch` returns before the kernel ran.

    index: the device, which becomes this thread's current one; torch must have chosen the same. library: another
    libamdhip64.so. `broken`: the sticky error that occurred, as text; the process must then be replaced.
    """

    def __init__(self, index: int = 0, *, library: Path | str | None = None) -> None:
        self.hip = Hip(library)
        count = self.hip.device_count()
        if not 0 <= index < count:
            raise DeviceError(f"no AMD GPU {index}: the HIP runtime sees {count}", hint="see HIP_VISIBLE_DEVICES")
        self.hip.call("hipSetDevice", index, doing=f"choosing device {index}")
        self.device = index
        self.broken = ""
        self._limits: dict[str, int] = {}
        self._launch = self.hip.function("hipModuleLaunchKernel")

    @property
    def arch(self) -> str:
        """The architecture's name for the compiler, "gfx942"."""
        return self.features.partition(":")[0]

    @property
    def features(self) -> str:
        """The architecture with its features, such as "gfx942:sramecc+:xnack-"."""
        return str(self.hip.properties(self.device).architecture.decode(errors="replace"))

    # ------------------------------------------------------------ GpuDriver

    def load(self, code: bytes) -> int:
        """A module's handle. ToolchainError for a code object that is damaged or for another GPU."""
        module = ctypes.c_void_p()
        try:
            self._call("hipModuleLoadData", ctypes.byref(module), code, doing="loading a code object")
        except ToolchainError as error:
            raise self._wrong_image(error, code) from None
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Unload a module and its functions."""
        self._call("hipModuleUnload", module, doing="unloading a module")

    def function(self, module: int, kernel: str) -> int:
        """A kernel's handle. CandidateError(launch_error) where the module has no kernel of that name."""
        handle = ctypes.c_void_p()
        self._call(
            "hipModuleGetFunction", ctypes.byref(handle), module, kernel.encode(), doing=f"looking for kernel {kernel}"
        )
        return int(handle.value or 0)

    def attributes(self, function: int) -> dict[str, int]:
        """registers a lane, static_lds, local_bytes (scratch a lane), max_threads."""
        found = {}
        for name, number in FUNCTION_ATTRIBUTES.items():
            value = ctypes.c_int()
            self._call("hipFuncGetAttribute", ctypes.byref(value), number, function, doing="reading a kernel's needs")
            found[name] = value.value
        return found

    def allow_lds(self, function: int, bytes_: int) -> None:
        """Checks the limit: AMD's dispatch packet states the LDS of each launch, so no opt-in exists.

        (hipFuncSetAttribute takes a host function's address, which a loaded code object does not have.)
        """
        static, most = self.attributes(function)["static_lds"], self.limits()["lds_per_block"]
        if static + bytes_ > most:
            message = f"{static} static + {bytes_} dynamic LDS bytes; the limit is {most}"
            raise CandidateError(message, stage="launch", evidence={"lds_bytes": bytes_})

    def limits(self) -> dict[str, int]:
        """max_threads, max_grid_x, max_grid_y, max_grid_z, lds_per_block, wave, units."""
        if not self._limits:
            self._limits = {name: self.hip.attribute(name, self.device) for name in DEVICE_ATTRIBUTES}
        return self._limits

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        lds_bytes: int,
        stream: int,
        params: ctypes.Array[ctypes.c_void_p],
    ) -> None:
        """Queue a launch of grid blocks of block threads on a stream. The arguments are copied before it returns."""
        for axis, blocks, threads in zip("xyz", grid, block, strict=True):
            if blocks * threads >= WORK_ITEMS_LIMIT:
                message = f"grid {axis} has {blocks} blocks of {threads} threads: AMD GPUs count less than 2^32 threads"
                raise CandidateError(message, stage="launch", evidence={"grid": list(grid), "block_size": list(block)})
        code = self._launch(function, *grid, *block, lds_bytes, stream, params, None)
        if code != SUCCESS:
            self.hip.clear_error()
            raise self._noted(error_of(code, self.hip.error_name(code), "launching"))

    def peek_error(self) -> str:
        """The sticky error as text, "" without one. Synchronises."""
        if not self.broken:  # torch may have cleared the last error; a broken device reports it again
            for code in (self.hip.last_error(), self.hip.code("hipDeviceSynchronize")):
                if code in STICKY:
                    self.broken = error_text(code, self.hip.error_name(code))
        return self.broken

    # ------------------------------------------------------------ beyond the protocol

    def synchronize(self) -> None:
        """Wait for the device. Raises the error of a kernel's fault."""
        self._call("hipDeviceSynchronize", doing="running the kernels")

    def _call(self, function: str, *arguments: Any, doing: str) -> None:
        try:
            self.hip.call(function, *arguments, doing=doing)
        except HipwrightError as error:
            self._noted(error)
            raise

    def _noted(self, error: HipwrightError) -> HipwrightError:
        if error.evidence.get("sticky"):
            self.broken = self.broken or error_text(error.evidence["code"], error.evidence["hip_error"])
        return error

    def _wrong_image(self, error: ToolchainError, code: bytes) -> ToolchainError:
        """The same error with the architectures of the code object and of the device."""
        return ToolchainError(
            f"{error.message}; it is built for {built_for(code)}, the device is {self.features}",
            hint=error.hint,
            evidence=error.evidence,
        )


def built_for(code: bytes) -> str:
    """The architecture of a code object, for a message."""
    try:
        machine = codeobject.machine(code)
    except ValueError as error:
        return f"no AMD GPU ({error})"
    names = [target.name for target in OFFLINE.values() if target.elf_machine == machine]
    return names[0] if names else f"ELF machine {machine:#x}"


def check_signatures(code: bytes, signatures: Mapping[str, KernelSignature], kernels: Iterable[str] = ()) -> None:
    """Compare a code object's argument metadata with the signatures that the plan was checked against.

    kernels: those to check; all signatures without it. Raises CandidateError(launch_error) naming the parameter: the
    runtime reads as many bytes of each argument as the code object states, not as many as were packed.
    """
    try:
        known = isa.kernel_args(code)
    except ValueError as error:
        raise ToolchainError(f"the code object cannot be read: {error}", hint="delete the build cache") from None
    for name in kernels or signatures:
        built = [arg for arg in known.get(name, []) if not arg[2].startswith("hidden_")]
        expected = _expected(signatures[name])
        if name not in known or built == expected:
            continue  # a kernel that was compiled out fails at its first launch
        place = next((i for i, pair in enumerate(zip(built, expected, strict=False)) if pair[0] != pair[1]), None)
        what = f"{len(built)} parameters, not {len(expected)}"
        if place is not None:
            (size, offset, kind), said = built[place], expected[place]
            parameter = signatures[name].params[place].name
            what = f"{parameter} as {size} bytes at {offset} ({kind}), the text {said[0]} at {said[1]} ({said[2]})"
        message = f"kernel {name}: the compiled code has {what}; is the kernel declared under an #if?"
        raise CandidateError(message, stage="launch", evidence={"kernel": name})


def _expected(signature: KernelSignature) -> list[tuple[int, int, str]]:
    """(size, offset, kind) of each parameter, as `isa.kernel_args` gives them."""
    layout = ArgumentLayout(signature)
    kinds = ["global_buffer" if param.pointer else "by_value" for param in signature.params]
    sizes = [8 if param.pointer else _size(param.kind) for param in signature.params]
    return list(zip(sizes, layout.offsets, kinds, strict=True))


def _size(kind: str) -> int:
    """Bytes of a scalar kind: "bool", or a name that ends with its bits."""
    return 1 if kind == "bool" else int(re.sub(r"\D", "", kind)) // 8
