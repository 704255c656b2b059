"""Launch kernels of the `cpu` target in this process (a worker: the library holds the candidate's code).

The library's runtime runs every GPU thread as a fiber. What hardware would refuse or corrupt silently is raised as a
CandidateError with evidence: an access outside every buffer, a data race, a diverged barrier, an endless loop.
"""

from __future__ import annotations

import ctypes
import json
import struct
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from hipwright.device.cpu import abi
from hipwright.device.cpu.memory import Guarded, GuardedRegion, raw_bytes
from hipwright.device.poison import pattern
from hipwright.device.signature import SCALAR_FORMATS, Argument, KernelParam, KernelSignature
from hipwright.errors import CandidateError
from hipwright.records import Status
from hipwright.sandbox import crash_page

Order = Literal["forward", "reverse", "shuffle"]
LDS_LIMIT = 64 << 10  # bytes a block may use; 160 KiB on gfx950
MAX_THREADS = 1024
NULL_REACH = 1 << 32  # an address below this, where nothing of ours lies, comes from a null pointer
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class _Buffer:
    """A tensor argument: its guarded storage, and the memory to copy it back to."""

    index: int
    tensor: torch.Tensor
    region: GuardedRegion
    original: torch.Tensor | None


class CpuLauncher:
    """Runs the kernels of one shared library. One launch at a time; not for several threads.

    order: in which order threads, waves and blocks run between barriers; `seed` decides a shuffled one. poison: the
    byte that marks memory never written (`poison.pattern`). launch_limit_s: processor seconds a launch may take.
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
        self._memory = Guarded()
        self._note = crash_page()
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

    def stats(self) -> list[dict[str, Any]]:
        """One entry per finished launch: kernel, grid, block, seconds and the counts of `cpu_abi.COUNTS`.

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
        """Run a kernel to its end. Raises CandidateError with the evidence when it fails."""
        known = self._meta["kernels"].get(kernel)
        if known is None:
            raise self._error("launch_error", f"no kernel named {kernel}", kernel)
        self._check_geometry(kernel, known["lds"], grid, block, lds_bytes)
        params = self._params(kernel, known["params"], args)
        buffers = self._buffers(kernel, params, args)
        slots = self._slots(kernel, params, args, buffers)
        launch = self._describe(kernel, known, grid, block, lds_bytes, slots)
        regions = self._regions(buffers)
        launch.regions, launch.region_count = ctypes.addressof(regions), len(_distinct(buffers))
        self._leave_note(kernel, grid, block, running=True)
        started = time.perf_counter()
        self._library.hw_run(ctypes.byref(launch))
        seconds = time.perf_counter() - started
        self._leave_note(kernel, grid, block, running=False)
        if launch.status:
            nulls = [param.name for param, arg in zip(params, args, strict=True) if param.pointer and arg is None]
            raise self._failure(kernel, launch, buffers, params, nulls)
        self._check_red_zones(kernel, buffers, params)
        for buffer in buffers:
            if buffer.original is not None:
                buffer.original.copy_(raw_bytes(buffer.tensor)[: buffer.region.size])
        counts = dict(zip(abi.COUNTS, launch.counts, strict=True))
        self._stats.append({"kernel": kernel, "grid": list(grid), "block": list(block), "seconds": seconds, **counts})

    def _leave_note(
        self, kernel: str, grid: tuple[int, int, int], block: tuple[int, int, int], *, running: bool
    ) -> None:
        """Tell the parent what runs, should this process be killed in the middle (it reads it as WorkerDied.note)."""
        text = json.dumps({"kernel": kernel, "grid": grid, "block": block, "running": running}).encode() + b"\0"
        self._note[: len(text)] = text

    # ------------------------------------------------------------ before

    def _check_geometry(
        self, kernel: str, static_lds: int, grid: tuple[int, int, int], block: tuple[int, int, int], lds_bytes: int
    ) -> None:
        def refuse(message: str, **evidence: Any) -> CandidateError:
            return self._error("launch_error", message, kernel, grid=list(grid), block_size=list(block), **evidence)

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
            raise self._error("launch_error", f"{len(args)} arguments for {len(params)} parameters", kernel)
        return params

    def _buffers(self, kernel: str, params: Sequence[KernelParam], args: Sequence[Argument]) -> list[_Buffer]:
        moved: dict[int, torch.Tensor] = {}  # storage address -> its guarded copy
        buffers = []
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if not isinstance(arg, torch.Tensor):
                continue
            if not param.pointer:
                raise self._error("launch_error", f"argument {param.name} is a tensor, not a scalar", kernel)
            address = arg.untyped_storage().data_ptr()
            region = self._memory.find(address) if address else None
            if region is not None:
                buffers.append(_Buffer(index, arg, region, None))
                continue
            fresh = address not in moved
            inside = moved.setdefault(address, arg) if not fresh else moved.setdefault(address, self.guard(arg))
            tensor = torch.empty(0, dtype=arg.dtype).set_(
                inside.untyped_storage(), arg.storage_offset(), tuple(arg.shape), arg.stride()
            )
            found = self._memory.find(inside.untyped_storage().data_ptr())
            assert found is not None  # it was allocated a line ago
            buffers.append(_Buffer(index, tensor, found, raw_bytes(arg) if fresh and found.size else None))
        return buffers

    def _slots(
        self, kernel: str, params: Sequence[KernelParam], args: Sequence[Argument], buffers: list[_Buffer]
    ) -> ctypes.Array[ctypes.c_char]:
        addresses = {buffer.index: buffer.tensor.data_ptr() or buffer.region.start for buffer in buffers}
        packed = []
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if param.pointer:
                if arg is not None and index not in addresses:
                    raise self._error("launch_error", f"argument {param.name} must be a tensor or None", kernel)
                packed.append(struct.pack("<Q", addresses.get(index, 0)))
            else:
                packed.append(self._scalar(kernel, param, arg))
        return ctypes.create_string_buffer(b"".join(packed) + bytes(8))

    def _scalar(self, kernel: str, param: KernelParam, value: Argument) -> bytes:
        if isinstance(value, torch.Tensor) or value is None:
            raise self._error("launch_error", f"argument {param.name} must be a number", kernel)
        try:
            if param.kind == "bfloat16":
                raw = bytes(torch.tensor(float(value), dtype=torch.bfloat16).view(torch.uint8).tolist())
            elif param.kind.startswith("float"):
                raw = struct.pack("<" + SCALAR_FORMATS[param.kind], float(value))
            elif param.kind == "bool":
                raw = struct.pack("<?", bool(value))
            else:
                raw = struct.pack("<" + SCALAR_FORMATS[param.kind], int(value))
        except (struct.error, OverflowError) as error:
            raise self._error("launch_error", f"{value!r} does not fit argument {param.name}", kernel) from error
        return raw.ljust(8, b"\0")

    def _describe(
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
            seed=self._seed,
            poison=pattern(self._poison) * 0x0001000100010001,
            limit_us=int(self._limit_s * 1e6),
        )

    def _regions(self, buffers: list[_Buffer]) -> ctypes.Array[abi.BufferRegion]:
        distinct = _distinct(buffers)
        rows = [
            abi.BufferRegion(b.region.start, b.region.size, min(b.tensor.dtype.itemsize, 8), b.index, 0)
            for b in distinct
        ]
        return (abi.BufferRegion * max(len(rows), 1))(*rows)

    # ------------------------------------------------------------ after

    def _check_red_zones(self, kernel: str, buffers: list[_Buffer], params: Sequence[KernelParam]) -> None:
        for buffer in buffers:
            stray = buffer.region.stray()
            if stray is not None:
                where = _element(buffer, buffer.region.start + stray)
                name = params[buffer.index].name
                raise self._error(
                    "out_of_bounds",
                    f"a write outside {name}, near element {where}",
                    kernel,
                    argument=name,
                    argument_index=buffer.index,
                    element=where,
                    kind="write",
                )

    def _failure(
        self,
        kernel: str,
        launch: abi.LaunchRecord,
        buffers: list[_Buffer],
        params: Sequence[KernelParam],
        nulls: Sequence[str],
    ) -> CandidateError:
        status = abi.STATUS[launch.status]
        evidence: dict[str, Any] = {"block": list(launch.at.block), "thread": list(launch.at.thread)}
        message = launch.message.decode()
        if launch.at.line:
            evidence["line"] = launch.at.line
        if launch.status in (1, 4) or launch.address:
            evidence |= {"kind": abi.KINDS[launch.at.access], "address": hex(launch.address)}
            near_null = bool(nulls) and launch.address < NULL_REACH
            place = {"null": list(nulls)} if near_null else self._place(launch, buffers, params)
            evidence |= place
            if launch.bytes:
                evidence["bytes"] = launch.bytes
        if launch.status == 4 or launch.other.line:
            evidence["other"] = _party(launch.other, with_access=launch.status == 4)
        return self._error(status, f"{message}{_told(evidence)}", kernel, **evidence)

    def _place(self, launch: abi.LaunchRecord, buffers: list[_Buffer], params: Sequence[KernelParam]) -> dict[str, Any]:
        if launch.region < 0:
            names = {abi.LDS: "LDS", abi.STACK: "stack", abi.MODULE: "module variable"}
            return {"buffer": names.get(launch.region, "none")}
        region = _distinct(buffers)[launch.region].region
        same = [b for b in buffers if b.region.start == region.start]
        buffer = same[0]
        return {
            "argument": params[buffer.index].name,
            "argument_index": buffer.index,
            "element": _element(buffer, launch.address),
            "elements": list(buffer.tensor.shape),
        }

    def _error(self, status: Status, message: str, kernel: str, **evidence: Any) -> CandidateError:
        return CandidateError(
            f"kernel {kernel}: {message}", status=status, stage="launch", evidence={"kernel": kernel, **evidence}
        )


def _distinct(buffers: list[_Buffer]) -> list[_Buffer]:
    """One argument for each different storage."""
    return list({buffer.region.start: buffer for buffer in reversed(buffers)}.values())[::-1]


def _element(buffer: _Buffer, address: int) -> int:
    """The element that an address falls into, counted from the argument's own pointer."""
    origin = int(buffer.tensor.data_ptr()) or buffer.region.start
    return (address - origin) // int(buffer.tensor.dtype.itemsize)


def _party(party: abi.Party, *, with_access: bool) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if with_access:
        told = {"block": list(party.block), "thread": list(party.thread), "kind": abi.KINDS[party.access]}
    return {**told, **({"line": party.line} if party.line else {})}


def _told(evidence: Mapping[str, Any]) -> str:
    """The evidence in words, for the message."""
    words = [f"block {tuple(evidence['block'])} thread {tuple(evidence['thread'])}"]
    if "null" in evidence:
        words.append(f"{evidence['kind']} through a null pointer argument ({' or '.join(evidence['null'])})")
    elif "argument" in evidence:
        words.append(f"{evidence['kind']} of {evidence['argument']}[{evidence['element']}]")
    elif "buffer" in evidence:
        words.append(f"{evidence['kind']} of {evidence['buffer']} memory")
    if "line" in evidence:
        words.append(f"line {evidence['line']}")
    if "thread" in (other := evidence.get("other", {})):
        words.append(f"against a {other['kind']} by block {tuple(other['block'])} thread {tuple(other['thread'])}")
    return ": " + ", ".join(words)
