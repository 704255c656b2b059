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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.device.cpu import abi
from hipwright.device.cpu.arguments import (
    BufferArgument,
    distinct,
    guarded_buffers,
    launch_error,
    pack_slots,
    region_table,
)
from hipwright.device.cpu.failure import check_red_zones, failure
from hipwright.device.cpu.guarded import LDS_LIMIT, Dim3, GuardedLauncher, Order
from hipwright.device.cpu.memory import write_protected
from hipwright.device.cpu.repeats import CheckedLaunches, kind_of
from hipwright.device.poison import NOISE, pattern
from hipwright.device.signature import Argument, KernelSignature


@dataclass(frozen=True)
class _Built:
    """A loaded library, and what it says of itself."""

    library: Any
    meta: Mapping[str, Any]

    @property
    def checked(self) -> bool:
        return bool(self.meta["checked"])


class CpuLauncher(GuardedLauncher):
    """Runs the kernels of one shared library; the other arguments are those of `GuardedLauncher`.

    repeats: a library of the same kernels without checks, for launches that repeat checked ones (`repeats`).
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
        repeats: str | None = None,
    ) -> None:
        super().__init__(signatures, order, seed, poison, launch_limit_s, lds_limit)
        self._built = self._loaded(so_path, wave)
        self._for_repeats = self._loaded(repeats, wave) if repeats else None
        self._launches = CheckedLaunches()

    def _loaded(self, path: str, wave: int) -> _Built:
        library = ctypes.CDLL(path)
        weakref.finalize(self, library.hw_release).atexit = False
        meta = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "hw_meta"))))
        if meta["wave"] != wave:
            raise ValueError(f"{path} was built for waves of {meta['wave']} lanes, not {wave}")
        return _Built(library, meta)

    @property
    def checked(self) -> bool:
        """Whether the library checks every access."""
        return self._built.checked

    def launch(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        lds_bytes: int,
        args: Sequence[Argument],
    ) -> None:
        """Run a kernel to its end. Raises CandidateError with evidence when it fails."""
        known = self._built.meta["kernels"].get(kernel)
        if known is None:
            raise launch_error(kernel, "launch_error", f"no kernel named {kernel}")
        self._check_geometry(kernel, known["lds"], grid, block, lds_bytes)
        params = self._params(kernel, len(known["params"]), args)
        buffers = guarded_buffers(kernel, params, args, self._memory, self._poison)
        slots = pack_slots(kernel, params, args, buffers)
        kind = self._kind(kernel, (grid, block, lds_bytes), slots, buffers)
        repeated = self._launches.repeated(kind)
        built = self._for_repeats if self._for_repeats is not None and repeated is not None else self._built
        launch = self._record(built, kernel, grid, block, lds_bytes, slots)
        regions = region_table(buffers, self._read_only, known.get("read_alone", ()))
        launch.regions, launch.region_count = ctypes.addressof(regions), len(distinct(buffers))
        self._write_crash_page(kernel, grid, block, running=True)
        held = [] if built.checked else [b.region for b in distinct(buffers) if b.region.start in self._read_only]
        with write_protected(held):
            started, used = time.perf_counter(), time.thread_time()
            built.library.hw_run(ctypes.byref(launch))
            seconds, used = time.perf_counter() - started, time.thread_time() - used
        self._write_crash_page(kernel, grid, block, running=False)
        if launch.status:
            nulls = [param.name for param, arg in zip(params, args, strict=True) if param.pointer and arg is None]
            raise failure(kernel, launch, buffers, params, nulls)
        check_red_zones(kernel, buffers, params)
        self._return_copies(buffers)
        counts = dict(zip(abi.COUNTS, launch.counts, strict=True))
        if built.checked:
            self._launches.note(kind, used, counts)
        self._note(
            kernel,
            grid,
            block,
            seconds,
            counts if built is self._built else {**counts, **(repeated or {}), "repeat": 1},
        )

    def _kind(
        self,
        kernel: str,
        geometry: tuple[Dim3, Dim3, int],
        slots: ctypes.Array[ctypes.c_char],
        buffers: Sequence[BufferArgument],
    ) -> Hashable | None:
        return kind_of(kernel, geometry, slots.raw, buffers, self._read_only) if self._for_repeats else None

    def _record(
        self,
        built: _Built,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        lds_bytes: int,
        slots: ctypes.Array[ctypes.c_char],
    ) -> abi.LaunchRecord:
        entry = ctypes.cast(getattr(built.library, f"hw_entry_{kernel}"), ctypes.c_void_p).value
        return abi.LaunchRecord(
            entry=entry,
            args=ctypes.addressof(slots),
            grid=grid,
            block=block,
            wave=built.meta["wave"],
            order=abi.ORDERS[self._order],
            lds_dynamic=lds_bytes,
            lds_static=built.meta["kernels"][kernel]["lds"],
            loops=built.meta["loops"],
            checked=built.checked,
            lds_kept=self.keep_lds,
            seed=self._seed,
            poison=0 if self._poison & NOISE else pattern(self._poison) * 0x0001000100010001,  # of LDS
            limit_us=self._limit_us(grid, block),
        )
