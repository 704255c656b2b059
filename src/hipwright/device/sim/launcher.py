"""Launches kernels of the simulated targets in this process: AMD machine code, executed by `sim_rt`."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from hipwright.device.cpu.abi import COUNTS, ORDERS
from hipwright.device.cpu.arguments import distinct, guarded_buffers, launch_error, pack_slots, region_table
from hipwright.device.cpu.failure import check_red_zones, failure
from hipwright.device.cpu.guarded import LDS_LIMIT, Dim3, GuardedLauncher, Order
from hipwright.device.poison import NOISE, pattern
from hipwright.device.signature import Argument, KernelSignature
from hipwright.device.sim import kernarg
from hipwright.device.sim.abi import UNSUPPORTED, KernelRecord, SimulatedLaunch
from hipwright.device.sim.counters import Counters
from hipwright.errors import DeviceError
from hipwright.targets import Architecture
from hipwright.toolchain.sim.program import disassemble


class Executor:
    """The executor's library with one program loaded.

    library: the path of `runtime.library`; program: of a simulated target's blob.
    """

    def __init__(self, library: str, program: str) -> None:
        self.description, code = disassemble(Path(program).read_bytes())
        self._lib = ctypes.CDLL(library)
        self._lib.sim_load.restype = ctypes.c_void_p
        self._lib.sim_load.argtypes = (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
        self._lib.sim_free.argtypes = (ctypes.c_void_p,)
        names = [name.encode() for name in self.description["handlers"]]
        table = (ctypes.c_char_p * len(names))(*names)
        self._count = len(code) // int(self._lib.sim_op_bytes())
        self.program = self._lib.sim_load(code, self._count, ctypes.addressof(table), len(names))
        weakref.finalize(self, self._lib.sim_free, self.program).atexit = False

    def counters(self, architecture: Architecture, skipped: int = 0) -> Counters:
        """Counts for one launch, which the caller closes. skipped: blocks that run before anything is counted."""
        return Counters(self._lib, self.program, self._count, architecture, skipped)

    def run(self, launch: SimulatedLaunch) -> None:
        """Runs a launch to its end or its first fault."""
        self._lib.sim_run(ctypes.byref(launch))


@dataclass(frozen=True)
class FirstBlocks:
    """How many blocks of a launch run: as many as have so many threads, within [least, most]."""

    threads: int = 1 << 15
    least: int = 32
    most: int = 512

    def of(self, grid: Dim3, block: Dim3) -> int:
        """Blocks of a launch."""
        return min(prod(grid), max(self.least, min(self.most, self.threads // prod(block))))


class SimLauncher(GuardedLauncher):
    """Runs the kernels of one program on the simulated GPU; the other arguments are those of `GuardedLauncher`.

    checked: LDS is watched for races. profiled: each launch is counted, with the caches of this architecture, and
    `counted` grows by a dictionary: kernel, grid, block, lds_bytes, blocks (that are counted), and what `Counters.read`
    gives. first: only the first blocks of a launch run, and the results of the others are left out; the second half of
    those that run is counted, whose caches the first has filled. Without it all run, and are counted.
    """

    def __init__(
        self,
        library: str,
        program: str,
        signatures: Mapping[str, KernelSignature],
        *,
        checked: bool = True,
        order: Order = "forward",
        seed: int = 0,
        poison: int = 0xA5,
        launch_limit_s: float = 10.0,
        lds_limit: int = LDS_LIMIT,
        profiled: Architecture | None = None,
        first: FirstBlocks | None = None,
    ) -> None:
        super().__init__(signatures, order, seed, poison, launch_limit_s, lds_limit)
        self._executor = Executor(library, program)
        self._kernels: Mapping[str, Any] = self._executor.description["kernels"]
        self._text: Mapping[str, str] = self._executor.description["text"]
        self.checked = checked
        self._profiled, self._first = profiled, first
        self.counted: list[dict[str, Any]] = []

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Run a kernel to its end. Raises CandidateError with evidence when it fails.

        Raises DeviceError for an instruction that the simulator does not know.
        """
        known = self._kernels.get(kernel)
        if known is None:
            raise launch_error(kernel, "launch_error", f"no kernel named {kernel}")
        self._check_geometry(kernel, known["abi"]["lds"], grid, block, lds_bytes)
        params = self._params(kernel, len(kernarg.explicit(known["args"])), args)
        buffers = guarded_buffers(kernel, params, args, self._memory, self._poison)
        slots = pack_slots(kernel, params, args, buffers)
        segment = ctypes.create_string_buffer(kernarg.segment(known, slots.raw, grid, block, lds_bytes))
        abi = KernelRecord(**known["abi"])
        regions = region_table(buffers, self._read_only)
        launch = self._record(abi, segment, grid, block, lds_bytes)
        launch.regions, launch.region_count = ctypes.addressof(regions), len(distinct(buffers))
        self._write_crash_page(kernel, grid, block, running=True)
        started = time.perf_counter()
        ran = self._first.of(grid, block) if self._first is not None else prod(grid)
        launch.most_blocks = ran if ran < prod(grid) else 0
        skipped = ran // 2 if ran < prod(grid) else 0
        counters = self._executor.counters(self._profiled, skipped) if self._profiled is not None else None
        launch.profile = counters.address if counters is not None else None
        self._executor.run(launch)
        if counters is not None:
            shape = {"kernel": kernel, "grid": list(grid), "block": list(block), "lds_bytes": lds_bytes}
            self.counted.append({**shape, "blocks": ran - skipped, **counters.read(self._text)})
            counters.close()
        seconds = time.perf_counter() - started
        self._write_crash_page(kernel, grid, block, running=False)
        if launch.status:
            text = self._text.get(str(launch.at.line), "")
            if launch.status == UNSUPPORTED:
                raise _unsupported(kernel, launch, text)
            nulls = [param.name for param, arg in zip(params, args, strict=True) if param.pointer and arg is None]
            launch.message = _explained(launch, text)
            raise failure(kernel, launch, buffers, params, nulls)
        check_red_zones(kernel, buffers, params)
        self._return_copies(buffers)
        self._note(kernel, grid, block, seconds, dict(zip(COUNTS, launch.counts, strict=True)))

    def _record(
        self, abi: KernelRecord, segment: ctypes.Array[ctypes.c_char], grid: Dim3, block: Dim3, lds_bytes: int
    ) -> SimulatedLaunch:
        poison = 0 if self._poison & NOISE else pattern(self._poison)  # of LDS, and of registers
        return SimulatedLaunch(
            program=self._executor.program,
            kernel=ctypes.addressof(abi),
            kernarg=ctypes.addressof(segment),
            kernarg_bytes=len(segment) - 1,
            grid=grid,
            block=block,
            order=ORDERS[self._order],
            lds_dynamic=lds_bytes,
            lds_kept=self.keep_lds,
            checked=self.checked,
            region=-1,
            seed=self._seed,
            poison=poison * 0x0001000100010001,
            limit_us=self._limit_us(grid, block),
        )


def _explained(launch: SimulatedLaunch, text: str) -> bytes:
    """The message with the instruction, cut to what the record holds."""
    message = launch.message.decode()
    return (f"{message}, in `{text}` of the assembly" if text else message).encode()[:255]


def _unsupported(kernel: str, launch: SimulatedLaunch, text: str) -> DeviceError:
    return DeviceError(
        f"kernel {kernel}: the simulator does not support `{text}` (assembly line {launch.at.line}): "
        f"{launch.message.decode()}",
        hint="the program may be right; verify it on another target",
        evidence={"kernel": kernel, "line": launch.at.line, "instruction": text, "unsupported": True},
    )
