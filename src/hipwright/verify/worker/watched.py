"""A candidate in memory: state and inputs that are watched, one call of it, and what the call did. Imports torch.

Shared by the workers of all targets. What differs between them is the `CallableSubject`: how a candidate is called,
where its memory comes from, and how one learns that it misbehaved.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hipwright.digest import digests
from hipwright.errors import CandidateError, DeviceError, GuardFailed
from hipwright.program import Parsed
from hipwright.program.lower.closures import lower
from hipwright.tensors import Tree
from hipwright.verify.worker.recorder import LaunchRecorder, too_much_memory
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.trees import (
    address,
    difference,
    differing,
    fetching,
    guarded,
    named_tensors,
    numbers,
    on_device,
    read,
    refill,
    tensors_of,
)

Tensor = Any  # torch.Tensor, untyped here
POISON = 0xA5
MANY_BYTES = 64 << 20


@dataclass(frozen=True)
class RunSetting:
    """Under what a candidate runs: the order of threads (where that can be chosen), and what fresh memory holds."""

    order: str = "forward"
    seed: int = 0
    poison: int = POISON

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> RunSetting:
        """As a call's header has it."""
        return cls(str(header.get("order", "forward")), int(header.get("seed", 0)), int(header.get("poison", POISON)))


class CallableSubject(Protocol):
    """A candidate that can be called. params, buffers: its state in watched memory, by path."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def forward(self, *inputs: Any) -> Any:
        """The outputs."""

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor's whole storage in watched memory, same strides."""

    def settle(self) -> None:
        """Wait for everything it started. Raises CandidateError for what went wrong in it."""

    def looking(self, flags: Sequence[Tensor], staging: PinnedStaging | None) -> Callable[[], list[bool]]:
        """What does as `settle`, and tells what these flags on the device say; one wait for all, where that is
        possible. staging: what takes the flags to the host now, with all else that is asked of the device."""

    def stats(self) -> list[dict[str, Any]]:
        """One entry per launch so far, with argument_bytes."""


class SubjectLauncher(Protocol):
    """What is asked of device.cpu.CpuLauncher, device.gpu.GpuLauncher and program.trace.NoopLauncher alike."""

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Sequence[Any]) -> None:
        """Run one kernel."""

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        """A contiguous tensor of undefined contents."""


class WatchedCandidate:
    """One candidate over state of its own. make: (setting, state table of device tensors) -> Subject. staging: for a
    lowered plan's inputs and outputs; a candidate with host code may leave work on other streams."""

    def __init__(
        self,
        make: Callable[[RunSetting, Tree], CallableSubject],
        table: Tree,
        device: str = "cpu",
        staging: PinnedStaging | None = None,
    ) -> None:
        self.device = device
        self._staging = staging
        self.subject: CallableSubject
        self.table: Any  # on the device; nobody but this class writes to it
        self._make = make
        self.table = on_device(table, device)
        self._setting: RunSetting | None = None
        self._kept: dict[str, Any] = {}
        self._inputs: Any = None

    def prepare(self, setting: RunSetting) -> CallableSubject:
        """Subject and state for this setting; kept while it stays the same."""
        if setting != self._setting:
            if self._setting is not None and self.device != "cpu" and self._held() > MANY_BYTES:
                del self.subject
                gc.collect()  # a lowered plan holds itself, and with it its copy of the state
            self._setting = self._inputs = None
            self.subject = self._make(setting, self.table)
            self._setting = setting
        return self.subject

    def _held(self) -> int:
        """Bytes of the state."""
        return sum(tensor.nbytes for tensor in tensors_of([self.table["params"], self.table["buffers"]]))

    def run(self, header: Mapping[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """One call on host tensors -> (info, outputs and buffers on the host).

        header: `RunSetting`'s keys; reuse: new values at the addresses of the last call's inputs; keep: a name under
        which `kept` finds the outputs again. info: stats, aliases, inputs_changed, params_changed (leaf numbers).
        """
        return self.begin(header, inputs)()

    def begin(
        self, header: Mapping[str, Any], inputs: Tree, *, follows: bool = False
    ) -> Callable[[], tuple[dict[str, Any], Tree]]:
        """Enqueue one call, with all that is looked at after it -> what waits for it and gives what `run` does.

        follows: one begun before has not been waited for (see `may_follow`).
        """
        self.prepare(RunSetting.of(header))
        staging = self._staged
        if staging is not None and not follows:
            staging.begin()
        originals = on_device(list(inputs), self.device, staging)
        given = self._place(originals, reuse=bool(header.get("reuse")))
        before, outputs = self._begun(given, follows)
        fetched = fetching({"outputs": outputs, "buffers": self.subject.buffers}, self.device, staging)
        ended = self._ending(before, given, originals, outputs, staging)
        if header.get("keep"):
            self._kept[str(header["keep"])] = outputs
        return lambda: (ended(), fetched())

    @property
    def may_follow(self) -> bool:
        """Whether another call may begin before the last one has been waited for: all of its results are on their way
        to the host, and two states do not fill the device."""
        staging = self._staged
        return staging is not None and staging.fits and self._held() <= MANY_BYTES

    @property
    def _staged(self) -> PinnedStaging | None:
        return self._staging if isinstance(self.subject, ProgramSubject) else None

    def call(self, given: Any, originals: Any = None) -> tuple[dict[str, Any], Any]:
        """One call on device tensors, settled -> (info, outputs). originals: what `given` must still hold after."""
        before, outputs = self._begun(given)
        return self._ending(before, given, originals, outputs)(), outputs

    def _begun(self, given: Any, follows: bool = False) -> tuple[int, Any]:
        """(launches before it, outputs) of a call that is not waited for."""
        self.reset()
        before = len(self.subject.stats())
        with torch.no_grad():
            try:
                outputs = self.subject.forward(*given)
            except (CandidateError, DeviceError) as error:
                if not (follows and isinstance(error, GuardFailed)):  # who goes before it will wait for the device
                    self.subject.settle()  # a fault on the device shows first in whatever is called next
                if isinstance(error.__cause__, (MemoryError, torch.OutOfMemoryError)):
                    raise too_much_memory() from error
                raise
        return before, outputs

    def _ending(
        self, before: int, given: Any, originals: Any, outputs: Any, staging: PinnedStaging | None = None
    ) -> Callable[[], dict[str, Any]]:
        """What waits for a call, raises its faults, and tells what it did: inputs (where `originals` are known) and
        parameters that no longer hold what they were given, launches, aliases.

        All of that is asked of the device here, so that one wait is enough.
        """
        subject = self.subject
        given_, originals = ([], []) if originals is None else (given, originals)
        table = {path: self.table["params"][path] for path in subject.params}
        alike, flags = difference([given_, subject.params], [originals, table])
        looked = subject.looking(flags, staging)
        told = {"stats": subject.stats()[before:], "aliases": self._aliases(outputs, given)}
        count = len(list(tensors_of(given_)))

        def ended() -> dict[str, Any]:
            found = numbers(alike, looked())
            if isinstance(subject, ProgramSubject):
                subject.check_prepared()
            inputs, params = [n for n in found if n < count], [n - count for n in found if n >= count]
            return {**told, "inputs_changed": inputs, "params_changed": params}

        return ended

    def params_changed(self, subject: CallableSubject | None = None) -> list[int]:
        """Numbers of the parameters that no longer hold what they were given; of another subject of the same table."""
        params = (subject or self.subject).params
        return differing(params, {path: self.table["params"][path] for path in params})

    def reset(self) -> None:
        """Buffers as the table has them: an earlier call may have written them."""
        buffers = self.subject.buffers
        refill(buffers, {path: self.table["buffers"][path] for path in buffers}, look=self._remembers())

    def mutate(self, table: Tree) -> None:
        """Give every parameter and buffer new values at its old address."""
        self.table = on_device(table, self.device)
        params = self.subject.params
        refill(params, {path: self.table["params"][path] for path in params}, look=self._remembers())
        self.reset()

    def _remembers(self) -> bool:
        """Whether the candidate may tell by a tensor's version that it was written."""
        return not isinstance(self.subject, ProgramSubject) or self.subject.plan.prepares

    def kept(self, name: str) -> Tree:
        """The outputs of an earlier call as they are now."""
        return self.keeping(name, waited=False)()

    def keeping(self, name: str, *, waited: bool) -> Callable[[], Tree]:
        """`kept`, as they are now, once it is called. waited: the device will be waited for in between."""
        return fetching(self._kept[name], self.device, self._staged if waited else None)

    def _place(self, originals: Any, *, reuse: bool) -> Any:
        if reuse and self._inputs is not None:
            refill(self._inputs, originals, quietly=True, look=not isinstance(self.subject, ProgramSubject))
        else:
            self._inputs = guarded(originals, self.subject.guard)
        return self._inputs

    def _aliases(self, outputs: Any, inputs: Any) -> list[list[str]]:
        """[output leaf, what it shares memory with], named as the task host names them."""
        holders: dict[int, list[str]] = {}
        groups = list(named_tensors(inputs, "inputs"))
        groups += [(f"params.{path}", tensor) for path, tensor in self.subject.params.items()]
        groups += [(f"buffers.{path}", tensor) for path, tensor in self.subject.buffers.items()]
        for name, tensor in groups:
            holders.setdefault(address(tensor), []).append(name)
        found = []
        for path, tensor in named_tensors(outputs, "output"):
            if tensor.numel():
                found += [[path, holder] for holder in holders.get(address(tensor), [])]
                holders.setdefault(address(tensor), []).append(path)
        return found


class ProgramSubject:
    """A lowered plan: no code of the candidate's runs on the host, all memory comes from the launcher.

    record: note every launch; timing does without.
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
    ) -> None:
        self.inner: Any = launcher
        self.recorder = LaunchRecorder(launcher, parsed.signatures, limit_bytes) if record else None
        self.params = guarded(table["params"], self.guard)
        self.buffers = guarded(table["buffers"], self.guard)
        state = {**table, "params": self.params, "buffers": self.buffers}
        self.plan = lower(parsed, knobs, state, self.recorder or launcher, device=device)
        self.forward = self.plan.forward
        self._packed: tuple[int, list[int]] = (-1, [])  # runs of prepare, and what the packed tensors held after a call

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy that the launcher watches, where it watches at all."""
        return self.inner.guard(tensor) if hasattr(self.inner, "guard") else _copy(tensor)

    def settle(self) -> None:
        """Launchers that run ahead are waited for, and red zones looked at."""
        for name in ("sync", "check_zones"):
            if hasattr(self.inner, name):
                getattr(self.inner, name)()

    def looking(self, flags: Sequence[Tensor], staging: PinnedStaging | None = None) -> Callable[[], list[bool]]:
        """What does as `settle`, and tells what the flags say."""
        if hasattr(self.inner, "deferred_check"):
            told: Callable[[], list[bool]] = self.inner.deferred_check(flags, staging.download if staging else None)
            return told

        def look() -> list[bool]:
            self.settle()
            return read(flags)

        return look

    def check_prepared(self) -> None:
        """Raise CandidateError when a call changed what prepare packed: that would be state between calls."""
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
        """The recorder's; nothing without one."""
        return self.recorder.stats() if self.recorder else []


def _copy(tensor: Tensor) -> Tensor:
    """A copy of the tensor's whole storage, same strides and offset."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).clone()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        raw.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
