"""A lowered plan in a worker: its guarded state, the memory of its calls, and what `prepare` may depend on.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from hipwright.digest import digests
from hipwright.errors import CandidateError
from hipwright.program import Parsed
from hipwright.program.lower.closures import lower
from hipwright.tensors import Tree
from hipwright.verify.worker.recorder import LaunchRecorder
from hipwright.verify.worker.reused_memory import MemoryUse, ReusedMemory
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.trees import address, bits, guarded, read, tensors_of

Tensor = Any  # torch.Tensor, untyped here


class SubjectLauncher(Protocol):
    """The common interface of device.cpu.CpuLauncher, device.gpu.GpuLauncher and program.trace.NoopLauncher."""

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Sequence[Any]) -> None:
        """Runs one kernel."""

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        """A contiguous tensor of undefined contents."""


class ProgramSubject:
    """A lowered plan: no code of the candidate runs on the host, and all memory comes from the launcher.

    record: record every launch; timing does without. draws: whether the plan may call random operators.
    """

    def __init__(
        self,
        parsed: Parsed,
        knobs: Mapping[str, int],
        table: Tree,
        launcher: SubjectLauncher,
        device: str = "cpu",
        *,
        limit_bytes: int = 0,
        record: bool = True,
        draws: bool = False,
    ) -> None:
        self.inner: Any = launcher
        self.memory = ReusedMemory(launcher.empty)
        self.recorder = LaunchRecorder(launcher, self.memory, parsed.signatures, limit_bytes) if record else None
        self.params = guarded(table["params"], self.guard)
        self.buffers = guarded(table["buffers"], self.guard)
        state = {**table, "params": self.params, "buffers": self.buffers}
        self.plan = lower(parsed, knobs, state, self.recorder or launcher, allow_random=draws, device=device)
        self.forward = self.plan.forward
        packed_from = {id(tensor) for tensor in self.plan.prepared_from}
        self._packed_buffers = {path: tensor for path, tensor in self.buffers.items() if id(tensor) in packed_from}
        self._packed_values: dict[str, Tensor] = {}  # of those buffers when the call began
        # runs of prepare, and digests of the packed tensors after a call
        self._packed: tuple[int, list[int]] = (-1, [])

    def begin_call(self, use: MemoryUse, kept: Any) -> None:
        """Decides what the next call finds in its memory and in LDS. kept: outputs of earlier calls that must last."""
        held = {address(tensor) for tensor in tensors_of([kept, self.plan.prepared])}
        self.memory.begin(use, held)
        if hasattr(self.inner, "keep_lds"):
            self.inner.keep_lds = use.contents != "fresh"
        self._packed_values = {path: tensor.clone() for path, tensor in self._packed_buffers.items()}

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy in guarded memory, where the launcher guards memory."""
        return self.inner.guard(tensor) if hasattr(self.inner, "guard") else _copy(tensor)

    def settle(self) -> None:
        """Waits for launchers that run asynchronously, and checks red zones."""
        for name in ("sync", "check_zones"):
            if hasattr(self.inner, name):
                getattr(self.inner, name)()

    def deferred_settle(
        self, flags: Sequence[Tensor], staging: PinnedStaging | None = None
    ) -> Callable[[], list[bool]]:
        """A function that does as `settle` and returns the flags' values."""
        if hasattr(self.inner, "deferred_check"):
            settle: Callable[[], list[bool]] = self.inner.deferred_check(flags, staging.download if staging else None)
            return settle

        def look() -> list[bool]:
            self.settle()
            return read(flags)

        return look

    def check_prepared(self) -> None:
        """Raises CandidateError when a call changed what prepare packed, which would be state between calls, or a
        buffer that it was packed from, which makes it stale.
        """
        for path, before in self._packed_values.items():
            if (bits(before) != bits(self._packed_buffers[path])).any():
                raise CandidateError(
                    f"prepare reads the buffer self.{path}, which forward changes: what prepare returns is stale from "
                    "the next call on; read the buffer in forward instead",
                    status="input_mutated",
                )
        held = digests(list(tensors_of(self.plan.prepared)), 1)
        runs, before = self._packed
        self._packed = self.plan.prepare_runs, held
        if runs == self.plan.prepare_runs and held != before:
            name = next(n for n, (a, b) in enumerate(zip(before, held, strict=True)) if a != b)
            raise CandidateError(
                f"tensor {name} of what prepare returns was written by a call: that would be state between "
                "calls; make memory for kernels to write in forward",
                status="input_mutated",
            )

    def stats(self) -> list[dict[str, Any]]:
        """The recorder's entries; none without one."""
        return self.recorder.stats() if self.recorder else []


def _copy(tensor: Tensor) -> Tensor:
    """A copy of the tensor's whole storage, with the same strides and offset."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).clone()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        raw.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
