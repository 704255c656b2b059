"""A candidate in a worker: its guarded state and inputs, one call of it, and the call's side effects. Imports torch.

The workers of all targets use it. A `CallableSubject` implements what differs between targets: how a candidate is
called, where its memory comes from, and how its faults are found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hipwright.errors import CandidateError, DeviceError, GuardFailed
from hipwright.tensors import Tree
from hipwright.verify.worker.program_subject import ProgramSubject
from hipwright.verify.worker.recorder import too_much_memory
from hipwright.verify.worker.reused_memory import MemoryUse
from hipwright.verify.worker.seeded import generator_state, seeded
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.trees import (
    address,
    difference,
    differing,
    guarded,
    named_tensors,
    numbers,
    on_device,
    refill,
    refillable,
    start_fetch,
    tensors_of,
)
from hipwright.verify.worker.unchanged import LaunchWatch, unchanged
from hipwright.verify.worker.written import WrittenInputs

Tensor = Any  # torch.Tensor, untyped here
POISON = 0xA5
MANY_BYTES = 64 << 20
FRESH = MemoryUse()


@dataclass(frozen=True)
class RunSetting:
    """The setting of a run: the order of threads (where that can be chosen), and the contents of fresh memory."""

    order: str = "forward"
    seed: int = 0
    poison: int = POISON

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> RunSetting:
        """From a call's header."""
        return cls(str(header.get("order", "forward")), int(header.get("seed", 0)), int(header.get("poison", POISON)))


class CallableSubject(Protocol):
    """A candidate that can be called. params, buffers: its state in guarded memory, by path."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def forward(self, *inputs: Any) -> Any:
        """The outputs."""

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor's whole storage in guarded memory, with the same strides."""

    def settle(self) -> None:
        """Waits for everything that it started. Raises CandidateError for its faults."""

    def deferred_settle(self, flags: Sequence[Tensor], staging: PinnedStaging | None) -> Callable[[], list[bool]]:
        """A function that does as `settle` and returns the values of these flags on the device, with one wait for all
        where possible.

        staging: copies the flags to the host with the other pending copies.
        """

    def stats(self) -> list[dict[str, Any]]:
        """One entry per launch so far, with argument_bytes."""


class WatchedCandidate:
    """One candidate with its own state. make: (setting, state table of device tensors) -> CallableSubject.

    staging: for a lowered plan's inputs and outputs; a candidate with host code may leave work on other streams.
    """

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
        self.table: Any  # on the device; only this class writes to it
        self._make = make
        self.table = on_device(table, device)
        self._setting: RunSetting | None = None
        self._kept: dict[str, Any] = {}
        self._inputs: Any = None
        self._watch: LaunchWatch | None = None

    def prepare(self, setting: RunSetting) -> CallableSubject:
        """Creates the subject and the state for this setting; kept while the setting is the same."""
        if setting != self._setting:
            if self._setting is not None and self.device != "cpu" and self._held() > MANY_BYTES:
                del self.subject
                gc.collect()  # a lowered plan refers to itself, and so keeps its copy of the state
            self._setting = self._inputs = None
            self.subject = self._make(setting, self.table)
            self._setting = setting
        return self.subject

    def _held(self) -> int:
        """Bytes of the state."""
        return sum(tensor.nbytes for tensor in tensors_of([self.table["params"], self.table["buffers"]]))

    def run(self, header: Mapping[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """One call on host tensors -> (info, outputs and state afterwards on the host).

        header: the keys of `RunSetting` and `MemoryUse`; carry: buffers stay as the last call left them; reuse: new
        values at the addresses of the last call's inputs; keep: a name under which `kept` finds the outputs again;
        draw: a seed for torch's generator; written: paths of the inputs that the task writes, which are part of the
        state afterwards ("buffers"). info: stats, aliases, inputs_changed, params_changed (leaf numbers);
        generator where there was a seed (`seeded.generator_state`).
        """
        return self.begin(header, inputs)()

    def begin(
        self, header: Mapping[str, Any], inputs: Tree, *, follows: bool = False
    ) -> Callable[[], tuple[dict[str, Any], Tree]]:
        """Enqueues one call and its checks; returns a function that waits for it and returns the result of `run`.

        follows: an earlier call has not been waited for (see `may_follow`).
        """
        self.prepare(RunSetting.of(header))
        staging = self._staged
        if staging is not None and not follows:
            staging.begin()
        originals = on_device(list(inputs), self.device, staging)
        given = self._place(originals, reuse=bool(header.get("reuse")))
        written = WrittenInputs(given, header.get("written") or ())
        self._watch = LaunchWatch(self._fixed(written, originals, beside=False)) if header.get("watch") else None
        use = MemoryUse.of(header)
        draw = None if header.get("draw") is None else int(header["draw"])
        before, outputs = self._enqueue(given, written, follows, carry=bool(header.get("carry")), use=use, draw=draw)
        drawn = {} if draw is None else {"generator": generator_state()}
        state = {**self.subject.buffers, **written.leaves}
        fetched = start_fetch({"outputs": outputs, "buffers": state}, self.device, staging)
        ended = self._deferred_result(before, given, self._fixed(written, originals), outputs, staging)
        if header.get("keep"):
            self._kept[str(header["keep"])] = outputs
        return lambda: ({**ended(), **drawn}, fetched())

    @property
    def may_follow(self) -> bool:
        """Whether another call may begin before the last one has been waited for: all of its results are being copied
        to the host, and two states fit on the device.
        """
        staging = self._staged
        return staging is not None and staging.fits and self._held() <= MANY_BYTES

    @property
    def _staged(self) -> PinnedStaging | None:
        return self._staging if isinstance(self.subject, ProgramSubject) else None

    def call(self, given: Any, originals: Any = None, written: Collection[str] = ()) -> tuple[dict[str, Any], Any]:
        """One call on device tensors, settled -> (info, outputs). originals: what `given` must hold afterwards, but for
        the inputs that the task writes.
        """
        self._watch = None
        inputs = WrittenInputs(given, written)
        before, outputs = self._enqueue(given, inputs)
        return self._deferred_result(before, given, self._fixed(inputs, originals), outputs)(), outputs

    def _enqueue(
        self,
        given: Any,
        written: WrittenInputs,
        follows: bool = False,
        *,
        carry: bool = False,
        use: MemoryUse = FRESH,
        draw: int | None = None,
    ) -> tuple[int, Any]:
        """(launches before it, outputs) of a call that is not waited for.

        carry: without a `reset` before it. draw: torch's seed for it.
        """
        if not carry:
            self.reset()
        if isinstance(self.subject, ProgramSubject):
            self.subject.begin_call(use, self._kept)
        before = len(self.subject.stats())
        with torch.no_grad():
            try:
                with unchanged(self.subject, written, self._watch), seeded(draw, self.device):
                    outputs = self.subject.forward(*given)
            except (CandidateError, DeviceError) as error:
                # the caller of the earlier call waits for the device
                if not (follows and isinstance(error, GuardFailed)):
                    self.subject.settle()  # a fault on the device is reported by the next call of its API
                if isinstance(error.__cause__, (MemoryError, torch.OutOfMemoryError)):
                    raise too_much_memory() from error
                raise
        return before, outputs

    def _deferred_result(
        self,
        before: int,
        given: Any,
        fixed: tuple[Any, Any],
        outputs: Any,
        staging: PinnedStaging | None = None,
    ) -> Callable[[], dict[str, Any]]:
        """A function that waits for a call, raises its faults, and returns its side effects: inputs and parameters that
        changed (of those `_fixed`), launches, aliases.

        All of that is enqueued here, so that one wait is enough.
        """
        subject = self.subject
        alike, flags = difference(*fixed)
        flags = self._watch.ever(flags) if self._watch else flags
        looked = subject.deferred_settle(flags, staging)
        info = {"stats": subject.stats()[before:], "aliases": self._aliases(outputs, given)}
        count = len(fixed[0][0])

        def ended() -> dict[str, Any]:
            found = numbers(alike, looked())
            if isinstance(subject, ProgramSubject):
                subject.check_prepared()
            inputs, params = [n for n in found if n < count], [n - count for n in found if n >= count]
            return {**info, "inputs_changed": inputs, "params_changed": params}

        return ended

    def _fixed(self, written: WrittenInputs, originals: Any, *, beside: bool = True) -> tuple[Any, Any]:
        """Inputs (where `originals` are known) and parameters, and what they must hold. beside: as in
        `WrittenInputs.fixed`, as it is now.
        """
        table = {path: self.table["params"][path] for path in self.subject.params}
        inputs: tuple[list[Any], list[Any]] = ([], [])
        if originals is not None:
            inputs = written.fixed(originals, beside=beside)
        return [inputs[0], self.subject.params], [inputs[1], table]

    def params_changed(self, subject: CallableSubject | None = None) -> list[int]:
        """Numbers of the parameters that have changed; of another subject with the same table, if given."""
        params = (subject or self.subject).params
        return differing(params, {path: self.table["params"][path] for path in params})

    def reset(self, carried: Collection[str] = ()) -> None:
        """Restores the buffers from the table, as an earlier call may have written them; not the carried ones."""
        buffers = {path: tensor for path, tensor in self.subject.buffers.items() if path not in carried}
        refill(buffers, {path: self.table["buffers"][path] for path in buffers}, look=self._remembers())

    def mutate(self, table: Tree, carried: Collection[str] = ()) -> None:
        """Writes new values to every parameter and buffer at its address. carried: buffers that stay as they are."""
        self.table = on_device(table, self.device)
        params = self.subject.params
        refill(params, {path: self.table["params"][path] for path in params}, look=self._remembers())
        self.reset(carried)

    def _remembers(self) -> bool:
        """Whether the candidate may notice by a tensor's version that it was written."""
        return not isinstance(self.subject, ProgramSubject) or self.subject.plan.prepares

    def kept(self, name: str) -> Tree:
        """The outputs of an earlier call as they are now."""
        return self.deferred_kept(name, waited=False)()

    def deferred_kept(self, name: str, *, waited: bool) -> Callable[[], Tree]:
        """A function that returns what `kept` does, as it is when called.

        waited: the device is waited for in between.
        """
        return start_fetch(self._kept[name], self.device, self._staged if waited else None)

    def _place(self, originals: Any, *, reuse: bool) -> Any:
        if reuse and self._inputs is not None and refillable(self._inputs, originals):
            refill(self._inputs, originals, keep_version=True, look=not isinstance(self.subject, ProgramSubject))
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
