"""What launchers in this process have in common: guarded memory, checks of a launch's geometry, statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Literal

import torch

from hipwright.device.cpu.arguments import BufferArgument, launch_error
from hipwright.device.cpu.memory import GuardedMemory, raw_bytes
from hipwright.device.signature import Argument, KernelParam, KernelSignature
from hipwright.errors import CandidateError
from hipwright.sandbox import crash_page

Order = Literal["forward", "reverse", "shuffle"]
LDS_LIMIT = 64 << 10
"""Bytes of LDS that a block may use: what every AMD target has (gfx950 has 160 KiB)."""
THREAD_S, MOST_FOR_THREADS = 2e-6, 4.0
"""Seconds that a launch's limit grows by a thread, and the most of it, in times of the limit itself."""
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
Dim3 = tuple[int, int, int]


class GuardedLauncher:
    """The memory of one launcher, and what it has launched. One launch at a time; not for several threads.

    order: the order of threads, waves and blocks between barriers; `seed` decides a shuffled one. poison: the byte that
    marks memory never written (`poison.pattern`). launch_limit_s: processor seconds a launch may take. keep_lds: blocks
    find in LDS what earlier ones left, instead of poison.
    """

    def __init__(
        self,
        signatures: Mapping[str, KernelSignature],
        order: Order,
        seed: int,
        poison: int,
        launch_limit_s: float,
        lds_limit: int,
    ) -> None:
        self._signatures = signatures
        self._order, self._seed, self._poison = order, seed, poison
        self._limit_s, self._lds_limit = launch_limit_s, lds_limit
        self.keep_lds = False
        self._memory = GuardedMemory()
        self._read_only: frozenset[int] = frozenset()  # first bytes of regions
        self._crash_page = crash_page()
        self._stats: list[dict[str, Any]] = []

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

    def _return_copies(self, buffers: Sequence[BufferArgument]) -> None:
        """Copy what a launch wrote back to tensors that are not in guarded memory."""
        for buffer in buffers:
            if buffer.original is not None:
                buffer.original.copy_(raw_bytes(buffer.tensor)[: buffer.region.size])

    def _note(self, kernel: str, grid: Dim3, block: Dim3, seconds: float, counts: Mapping[str, int]) -> None:
        self._stats.append({"kernel": kernel, "grid": list(grid), "block": list(block), "seconds": seconds, **counts})

    def _write_crash_page(self, kernel: str, grid: Dim3, block: Dim3, *, running: bool) -> None:
        """Leave the launch in the crash page: the parent reads it as WorkerDied.note if this process is killed."""
        text = json.dumps({"kernel": kernel, "grid": grid, "block": block, "running": running}).encode() + b"\0"
        self._crash_page[: len(text)] = text

    def _check_geometry(self, kernel: str, static_lds: int, grid: Dim3, block: Dim3, lds_bytes: int) -> None:
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

    def _limit_us(self, grid: Dim3, block: Dim3) -> int:
        """The processor time of a launch: threads cost time here although they compute little."""
        threads = prod(grid) * prod(block)
        return int(1e6 * (self._limit_s + min(threads * THREAD_S, MOST_FOR_THREADS * self._limit_s)))

    def _params(self, kernel: str, built: int, args: Sequence[Argument]) -> Sequence[KernelParam]:
        params = self._signatures[kernel].params
        if not len(params) == built == len(args):
            raise launch_error(kernel, "launch_error", f"{len(args)} arguments for {len(params)} parameters")
        return params
