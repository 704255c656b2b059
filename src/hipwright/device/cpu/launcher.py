"""Launches kernels of the `cpu` target in this process (a worker: the library holds the candidate's code).

The library's runtime runs every GPU thread as a fiber. Errors that hardware would refuse or silently turn into wrong
values raise a CandidateError with evidence: an access outside every buffer, a data race, a diverged barrier, an endless
loop.
"""

from __future__ import annotations

import ctypes
import json
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch

from hipwright.device.cpu import abi
from hipwright.device.cpu.arguments import distinct, guarded_buffers, launch_error, pack_slots, region_table
from hipwright.device.cpu.failure import check_red_zones, failure
from hipwright.device.cpu.memory import GuardedMemory, raw_bytes, write_protected
from hipwright.device.poison import NOISE, pattern
from hipwright.device.signature import Argument, KernelParam, KernelSignature
from hipwright.errors import CandidateError
from hipwright.sandbox import crash_page

Order = Literal["forward", "reverse", "shuffle"]
LDS_LIMIT = 64 << 10
"""Bytes of LDS that a block may use: what every AMD target has (gfx950 has 160 KiB)."""
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)


class CpuLauncher:
    """Runs the kernels of one shared library. One launch at a time; not for several threads.

    order: the order of threads, waves and blocks between barriers; `seed` decides a shuffled one. poison: the byte that
    marks memory never written (`poison.pattern`). launch_limit_s: processor seconds a launch may take. keep_lds: blocks
    find in LDS what earlier ones left, instead of poison.
    """

    def __init__(
        self,
        so_path: str,
        signatures: Mapping[str, KernelSignature],
        *,
        wave: int = 64,
        order: Order = "forward",
        seed: int = 0,
        poison: int = 0xA5,
        launch_limit_s: float = 10.0,
        lds_limit: int = LDS_LIMIT,
    ) -> None:
        self._library = ctypes.CDLL(so_path)
        weakref.finalize(self, self._library.hw_release).atexit = False
        self._meta = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(self._library, "hw_meta"))))
        if self._meta["wave"] != wave:
            raise ValueError(f"{so_path} was built for waves of {self._meta['wave']} lanes, not {wave}")
        self._signatures = signatures
        self._order, self._seed, self._poison = order, seed, poison
        self._limit_s, self._lds_limit = launch_limit_s, lds_limit
        self.keep_lds = False
        self._memory = GuardedMemory()
        self._read_only: frozenset[int] = frozenset()  # first bytes of regions
        self._crash_page = crash_page()
        self._stats: list[dict[str, Any]] = []

    @property
    def checked(self) -> bool:
        """Whether the library checks every access."""
        return bool(self._meta["checked"])

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor of poison in guarded memory."""
        return self._memory.empty(tuple(int(n) for n in shape), dtype, self._poison)

    def guard(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor's storage in guarded memory, same strides and offset."""
        return self._memory.copy(tensor, self._poison)

    def keep_unchanged(self, tensors: Iterable[torch.Tensor]) -> None:
        """A launch that writes to the memory of one of these tensors fails with `input_mutated`, until the next call of
        this method. Tensors outside guarded memory are ignored.
        """
        found = (self._memory.find(tensor.untyped_storage().data_ptr()) for tensor in tensors)
        self._read_only = frozenset(region.start for region in found if region is not None)

    def stats(self) -> list[dict[str, Any]]:
        """One entry per finished launch: kernel, grid, block, seconds and the counts of `abi.COUNTS`.

        Bytes are counted by the checked build only. float_atomics: results may differ between orders by rounding.
        """
        return list(self._stats)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        lds_bytes: int,
        args: Sequence[Argument],
    ) -> None:
        """Run a kernel to its end. Raises CandidateError with evidence when it fails."""
        known = self._meta["kernels"].get(kernel)
        if known is None:
            raise launch_error(kernel, "launch_error", f"no kernel named {kernel}")
        self._check_geometry(kernel, known["lds"], grid, block, lds_bytes)
        params = self._params(kernel, known["params"], args)
        buffers = guarded_buffers(kernel, params, args, self._memory, self._poison)
        slots = pack_slots(kernel, params, args, buffers)
        launch = self._record(kernel, known, grid, block, lds_bytes, slots)
        regions = region_table(buffers, self._read_only)
        launch.regions, launch.region_count = ctypes.addressof(regions), len(distinct(buffers))
        self._write_crash_page(kernel, grid, block, running=True)
        held = [] if self.checked else [b.region for b in distinct(buffers) if b.region.start in self._read_only]
        with write_protected(held):
            started = time.perf_counter()
            self._library.hw_run(ctypes.byref(launch))
            seconds = time.perf_counter() - started
        self._write_crash_page(kernel, grid, block, running=False)
        if launch.status:
            nulls = [param.name for param, arg in zip(params, args, strict=True) if param.pointer and arg is None]
            raise failure(kernel, launch, buffers, params, nulls)
        check_red_zones(kernel, buffers, params)
        for buffer in buffers:
            if buffer.original is not None:
                buffer.original.copy_(raw_bytes(buffer.tensor)[: buffer.region.size])
        counts = dict(zip(abi.COUNTS, launch.counts, strict=True))
        self._stats.append({"kernel": kernel, "grid": list(grid), "block": list(block), "seconds": seconds, **counts})

    def _write_crash_page(
        self, kernel: str, grid: tuple[int, int, int], block: tuple[int, int, int], *, running: bool
    ) -> None:
        """Leave the launch in the crash page: the parent reads it as WorkerDied.note if this process is killed."""
        text = json.dumps({"kernel": kernel, "grid": grid, "block": block, "running": running}).encode() + b"\0"
        self._crash_page[: len(text)] = text

    def _check_geometry(
        self, kernel: str, static_lds: int, grid: tuple[int, int, int], block: tuple[int, int, int], lds_bytes: int
    ) -> None:
        def refuse(message: str, **evidence: Any) -> CandidateError:
            return launch_error(kernel, "launch_error", message, grid=list(grid), block_size=list(block), **evidence)

        if any(n < 1 for n in (*grid, *block)):
            raise refuse(f"grid {grid} and block {block} must be at least 1 in every dimension")
        if any(n > most for n, most in zip(grid, MAX_GRID, strict=True)):
            raise refuse(f"grid {grid} is over the limit {MAX_GRID}")
        threads = block[0] * block[1] * block[2]
        if threads > MAX_THREADS:
            raise refuse(f"a block of {threads} threads; the most is {MAX_THREADS}")
        if lds_bytes < 0 or static_lds + lds_bytes > self._lds_limit:
            message = f"{static_lds} static + {lds_bytes} dynamic LDS bytes; the limit is {self._lds_limit}"
            raise refuse(message, lds_bytes=lds_bytes)

    def _params(self, kernel: str, built: Sequence[str], args: Sequence[Argument]) -> Sequence[KernelParam]:
        params = self._signatures[kernel].params
        if not len(params) == len(built) == len(args):
            raise launch_error(kernel, "launch_error", f"{len(args)} arguments for {len(params)} parameters")
        return params

    def _record(
        self,
        kernel: str,
        known: Mapping[str, Any],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        lds_bytes: int,
        slots: ctypes.Array[ctypes.c_char],
    ) -> abi.LaunchRecord:
        entry = ctypes.cast(getattr(self._library, f"hw_entry_{kernel}"), ctypes.c_void_p).value
        return abi.LaunchRecord(
            entry=entry,
            args=ctypes.addressof(slots),
            grid=grid,
            block=block,
            wave=self._meta["wave"],
            order=abi.ORDERS[self._order],
            lds_dynamic=lds_bytes,
            lds_static=known["lds"],
            loops=self._meta["loops"],
            checked=self.checked,
            lds_kept=self.keep_lds,
            seed=self._seed,
            poison=0 if self._poison & NOISE else pattern(self._poison) * 0x0001000100010001,  # of LDS
            limit_us=int(self._limit_s * 1e6),
        )
