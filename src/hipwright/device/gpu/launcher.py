"""Launches a code object's kernels on torch tensors and torch's current stream, through a vendor's driver.

One launcher serves one build in one worker process. Launches are asynchronous and can be captured in a graph; errors of
a kernel are raised by `sync` (a fault of the device's context: the process is then broken and must be replaced) and by
`check_zones` (a write beside a buffer).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hipwright.device.gpu.driver import GpuDriver
from hipwright.device.gpu.faults import DEVICE_FAULT, fault_status
from hipwright.device.gpu.kernels import Dim3, Geometries, Geometry, LoadedKernel
from hipwright.device.gpu.memory import Fetch, GuardedDevice, Stray, allocator
from hipwright.device.gpu.pack import ArgumentLayout
from hipwright.device.poison import pattern
from hipwright.device.signature import Argument, KernelSignature
from hipwright.errors import CandidateError, HipwrightError
from hipwright.targets import TORCH_GPU


class GpuLauncher:
    """Runs the kernels of one code object. For one thread.

    device: torch's name of the GPU, or "cpu" with a fake driver. poison: the byte that fresh memory is filled with
    (`poison.pattern`), None to leave it uninitialised. zones: red zones around the tensors of `empty` and `guard`; with
    zones off and poison None `empty` is torch.empty, as timing and graph capture need. record: whether `stats` grows.
    shared_with: a launcher of the same code, closed with this one, whose module both use.
    """

    def __init__(
        self,
        driver: GpuDriver,
        code: bytes,
        signatures: Mapping[str, KernelSignature],
        *,
        device: str,
        poison: int | None = 0xA5,
        zones: bool = True,
        shared_with: GpuLauncher | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.index = (self.device.index or 0) if self.device.type == TORCH_GPU else -1
        self.broken = False
        self.record = True
        self._driver = driver
        self._signatures = signatures
        self._poison, self._zones = poison, zones
        self._stream = _stream_of(self.device)
        self._limits = driver.limits()
        self._module: int = driver.load(code) if shared_with is None else shared_with._module
        self._owns_module = shared_with is None
        self._kernels: dict[str, LoadedKernel] = {}
        self._geometries: dict[str, Geometries] = {}
        self._memory = GuardedDevice(device)
        self.fast_empty = None if zones or poison is not None else allocator(self.device)
        self._stats: list[dict[str, Any]] = []
        self._seen: dict[int, tuple[str, str, int, int]] = {}  # storage -> kernel, argument, its address, itemsize

    # ------------------------------------------------------------ memory

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor on the device, with poison and red zones as the launcher was told."""
        if self._zones:
            sizes = tuple(int(n) for n in shape)
            return self._memory.empty(sizes, dtype, 0xA5 if self._poison is None else self._poison)
        out = torch.empty(shape, dtype=dtype, device=self.device)
        if self._poison is not None and out.numel():
            _fill(out, self._poison)
        return out

    def guard(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor's storage on the device, same strides and offset, between red zones where they are on."""
        if self._zones:
            return self._memory.copy(tensor, 0xA5 if self._poison is None else self._poison)
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        out = torch.empty(0, dtype=tensor.dtype, device=self.device)
        storage = flat.to(self.device, copy=True).untyped_storage()
        return out.set_(storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    # ------------------------------------------------------------ launching

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Enqueue a kernel on torch's current stream. Raises CandidateError for what cannot be launched."""
        known = self._kernels.get(kernel) or self._resolve(kernel)
        if (grid, block, lds_bytes) not in known.checked:
            self._check(kernel, known, grid, block, lds_bytes)
        params = known.layout.pack(args)
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.device != self.device:
                raise _refusal(kernel, f"a tensor on {arg.device} was passed; the kernel runs on {self.device}")
        self.launch_checked((known.function, grid, block, lds_bytes), params)
        if self.record:
            self._note(kernel, known, grid, block, args)

    def geometries(self, kernel: str) -> Geometries:
        """Checked launches by (grid, block, LDS bytes) as a plan writes them; KeyError for others."""
        return self._geometries.setdefault(kernel, Geometries(self._kernels, kernel))

    def launch_checked(self, geometry: Geometry, params: ctypes.Array[ctypes.c_void_p]) -> None:
        """Enqueue a launch whose geometry and arguments are checked (program/lower/fast_launch.py)."""
        function, grid, block, lds_bytes = geometry
        try:
            self._driver.launch(function, grid, block, lds_bytes, self._stream(), params)
        except HipwrightError:  # an earlier kernel may have broken the context
            self.broken = self.broken or bool(self._driver.peek_error())
            raise

    def stats(self) -> list[dict[str, Any]]:
        """One entry per launch while `record` was on: kernel, grid, block, argument_bytes (of distinct tensors)."""
        return list(self._stats)

    def attributes(self) -> dict[str, dict[str, int]]:
        """The driver's figures for each kernel: registers, static_lds, local_bytes, max_threads."""
        return {
            name: self._driver.attributes((self._kernels.get(name) or self._resolve(name)).function)
            for name in self._signatures
        }

    # ------------------------------------------------------------ errors

    def sync(self) -> None:
        """Wait for the device. Raises CandidateError for a fault of a kernel and sets `broken`."""
        try:
            if self.device.type == TORCH_GPU:
                torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            raise self.explain(error) from None
        if fault := self._driver.peek_error():
            raise self._context_fault(fault)

    def explain(self, error: BaseException) -> HipwrightError:
        """The HipwrightError of an exception that a run raised; a device fault that torch reported is told as one."""
        if isinstance(error, HipwrightError):
            return error
        fault = self._driver.peek_error()
        if fault or DEVICE_FAULT.search(str(error)):
            return self._context_fault(fault or str(error).splitlines()[0])
        text = f"{type(error).__name__}: {error}"
        return CandidateError(f"the plan raised {text.splitlines()[0][:500]}", status="launch_error", stage="launch")

    def check_zones(self) -> None:
        """Raise CandidateError(out_of_bounds), naming the argument, after a write beside a buffer. Synchronises."""
        strays = self._memory.strays()
        if strays:
            raise self._stray_write(strays[0])

    def deferred_check(self, flags: Sequence[torch.Tensor], fetch: Fetch | None = None) -> Callable[[], list[bool]]:
        """A function that raises as `sync` and `check_zones` would now, and returns the values of `flags` (booleans on
        the device), in one synchronisation.

        fetch: as for `GuardedDevice.deferred_check`; None: the flags are read when the function is called.
        """
        if not flags and not self._memory.has_zones:
            return self._only_sync
        try:
            checked = self._memory.deferred_check(flags, fetch)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise self.explain(error) from None

        def check() -> list[bool]:
            if fetch is not None:
                self.sync()
            try:
                strays, values = checked()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise self.explain(error) from None
            if fault := self._driver.peek_error():
                raise self._context_fault(fault)
            if strays:
                raise self._stray_write(strays[0])
            return values

        return check

    def _only_sync(self) -> list[bool]:
        self.sync()
        return []

    def close(self) -> None:
        """Unload the code object; no launch may be in flight."""
        if self._owns_module and not self.broken:
            self._driver.unload(self._module)
        self._kernels.clear()
        for known in self._geometries.values():
            known.clear()

    # ------------------------------------------------------------ inside

    def _resolve(self, kernel: str) -> LoadedKernel:
        signature = self._signatures.get(kernel)
        if signature is None:
            raise _refusal(kernel, "the program declares no kernel of this name")
        function = self._driver.function(self._module, kernel)
        attributes = self._driver.attributes(function)
        names = tuple(p.name for p in signature.params)
        layout, lds, threads = ArgumentLayout(signature), attributes["static_lds"], attributes["max_threads"]
        found = LoadedKernel(function, layout, lds, threads, names, set())
        self._kernels[kernel] = found
        return found

    def _check(self, kernel: str, known: LoadedKernel, grid: Dim3, block: Dim3, lds_bytes: int) -> None:
        shown = {"grid": list(grid), "block_size": list(block)}
        if any(n < 1 for n in (*grid, *block)):
            raise _refusal(kernel, f"grid {grid} and block {block} must be at least 1 in every dimension", **shown)
        most = tuple(self._limits[f"max_grid_{axis}"] for axis in "xyz")
        if any(n > limit for n, limit in zip(grid, most, strict=True)):
            raise _refusal(kernel, f"grid {grid} is over the limit {most}", **shown)
        threads = block[0] * block[1] * block[2]
        limit = min(self._limits["max_threads"], known.max_threads)
        if threads > limit:
            raise _refusal(kernel, f"a block of {threads} threads; the most for this kernel is {limit}", **shown)
        if lds_bytes < 0 or known.static_lds + lds_bytes > self._limits["lds_per_block"]:
            message = f"{known.static_lds} static + {lds_bytes} dynamic LDS bytes; the limit is "
            raise _refusal(kernel, f"{message}{self._limits['lds_per_block']}", lds_bytes=lds_bytes, **shown)
        if lds_bytes > known.lds_allowed or known.static_lds + lds_bytes > known.lds_allowed:
            self._driver.allow_lds(known.function, lds_bytes)
            known.lds_allowed = known.static_lds + lds_bytes
        known.checked.add((grid, block, lds_bytes))

    def _note(self, kernel: str, known: LoadedKernel, grid: Dim3, block: Dim3, args: Sequence[Argument]) -> None:
        sizes: dict[int, int] = {}
        for name, arg in zip(known.names, args, strict=True):
            if isinstance(arg, torch.Tensor):
                address = arg.data_ptr()
                sizes[address] = max(sizes.get(address, 0), arg.nbytes)
                if self._zones:
                    self._seen[arg.untyped_storage().data_ptr()] = (kernel, name, address, arg.itemsize)
        self._stats.append(
            {"kernel": kernel, "grid": list(grid), "block": list(block), "argument_bytes": sum(sizes.values())}
        )

    def _stray_write(self, stray: Stray) -> CandidateError:
        if not stray.start:
            message = "a write beside a buffer"
            return CandidateError(message, status="out_of_bounds", stage="launch", evidence={"kind": "write"})
        if stray.start not in self._seen:
            where = "in front of" if stray.offset < 0 else "behind"
            far = -stray.offset if stray.offset < 0 else stray.offset - stray.size
            message = f"a write {far} bytes {where} a buffer of {stray.size} bytes"
            return CandidateError(message, status="out_of_bounds", stage="launch", evidence={"kind": "write"})
        kernel, name, address, itemsize = self._seen[stray.start]
        element = (stray.start + stray.offset - address) // itemsize
        return CandidateError(
            f"kernel {kernel}: a write outside {name}, near element {element}",
            status="out_of_bounds",
            stage="launch",
            evidence={"kernel": kernel, "argument": name, "element": element, "kind": "write"},
        )

    def _context_fault(self, fault: str) -> CandidateError:
        self.broken = True
        kernels = list(dict.fromkeys(entry["kernel"] for entry in self._stats))[-8:]
        return CandidateError(
            f"the device reports {fault}; kernels launched: {', '.join(kernels) or 'none'}",
            status=fault_status(fault),
            stage="launch",
            hint="compile for the cpu target: it names the access",
            evidence={"kernels": kernels},
        )


def _refusal(kernel: str, message: str, **evidence: Any) -> CandidateError:
    return CandidateError(
        f"kernel {kernel}: {message}", status="launch_error", stage="launch", evidence={"kernel": kernel, **evidence}
    )


def _fill(tensor: torch.Tensor, poison: int) -> None:
    """Fill a contiguous tensor with the pattern of guarded memory."""
    if tensor.dtype == torch.bool:
        tensor.fill_(poison & 1)
        return
    flat = tensor.view(-1).view(torch.uint8)
    words, odd = flat[: flat.numel() // 2 * 2], flat.numel() % 2
    words.view(torch.int16).fill_(pattern(poison))
    if odd:
        flat[-1:].fill_(pattern(poison) & 0xFF)


def _stream_of(device: torch.device) -> Callable[[], int]:
    """A function that returns the raw handle of torch's current stream in about 0.1 us."""
    if device.type != TORCH_GPU:
        return lambda: 0
    index, raw = device.index or 0, torch._C._cuda_getCurrentRawStream
    return lambda: int(raw(index))
