"""The calls of a forward with the same plain arguments, and their graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from hipwright.api.live.device_graphs import DeviceGraphs
from hipwright.api.live.forward.argument_reads import ArgumentReads
from hipwright.api.live.forward.results import Forwarded
from hipwright.api.live.forward.watch import watched
from hipwright.api.live.graphed import GRAPHS, NEW, WARM_CALLS, CallKind, GraphedCalls, around
from hipwright.api.live.module import OptimizedModule

BRANCHES = 4
"""Graphs of calls that differ in what the processor reads from their arguments alone."""
DECIDES = "the processor reads values of its arguments, which often differ"
PATIENCE = GRAPHS
"""New calls in a row during which no program within captures calls of its own."""


@dataclass(frozen=True, eq=False)
class Signature:
    """Arguments without their tensors. leaves: None where one is; plain: the others, with their types."""

    structure: Any
    leaves: tuple[tuple[type, Any] | None, ...]

    @classmethod
    def of(cls, structure: Any, leaves: Sequence[Any]) -> Signature:
        """Of the leaves of (args, kwargs)."""
        plain = [None if isinstance(leaf, torch.Tensor) else (type(leaf), leaf) for leaf in leaves]
        return cls(structure, tuple(plain))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self.leaves == other.leaves and self.structure == other.structure

    __hash__ = None  # type: ignore[assignment]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> Any:
        """(args, kwargs) with these tensors."""
        left = iter(tensors)
        return pytree.tree_unflatten([next(left) if one is None else one[1] for one in self.leaves], self.structure)


@dataclass(eq=False)
class ForwardKind(CallKind[Forwarded]):
    """Calls of a forward. argument_reads: what a call reads from its arguments, None where nothing; branches: the calls
    that read something else there; root: of which this is one."""

    argument_reads: ArgumentReads | None = None
    branches: list[ForwardKind] = field(default_factory=list)
    root: ForwardKind | None = None


class GraphedForward(GraphedCalls[Forwarded]):
    """A module's calls with one signature. refused: why the kind of the last plain call is never captured.

    The last plain call of a kind before its capture is watched (`watch.watched`). sets: (the tensor that a call has
    set, by its state before; what else has changed). Where `PATIENCE` calls in a row were new, drop-ins replay graphs
    of their own.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        signature: Signature,
        sets: tuple[Callable[[Mapping[str, torch.Tensor]], str], Callable[[], str]],
        drop_ins: Sequence[OptimizedModule],
        graphs: DeviceGraphs | None,
    ) -> None:
        super().__init__(graphs, most=GRAPHS, packs=any(one.prepares for one in drop_ins))
        self.refused = ""
        self._module, self._signature, self._sets = module, signature, sets
        self._tables = [one.__dict__ for one in drop_ins]
        self._read: list[Any] = []
        self._new = 0

    def _call(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Forwarded:
        args, kwargs = self._signature.arguments(inputs)
        return Forwarded.of(self._module._call_impl(*args, **kwargs))

    def _packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Any:
        return self._read

    def _tensors(self, result: Forwarded) -> Sequence[torch.Tensor]:
        return result.tensors

    def _copied(self, result: Forwarded) -> Forwarded:
        return result.copied()

    def _made(
        self, now: tuple[Any, ...], storages: list[StorageWeakRef], in_place: tuple[int, ...]
    ) -> CallKind[Forwarded]:
        return ForwardKind(now, storages, in_place, cleared=False)

    def _chosen(self, kind: CallKind[Forwarded], inputs: Sequence[torch.Tensor]) -> CallKind[Forwarded]:
        assert isinstance(kind, ForwardKind)
        if kind.why or kind.argument_reads is None:
            return kind
        for branch in (kind, *kind.branches):
            if branch.argument_reads is not None and branch.argument_reads.hold(inputs):
                return branch
        if len(kind.branches) < BRANCHES:
            return ForwardKind(kind.state, kind.storages, kind.in_place, WARM_CALLS - 1, cleared=False, root=kind)
        kind.why = DECIDES
        return kind

    def _plain(
        self, kind: CallKind[Forwarded] | None, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> Forwarded:
        self.refused = kind.why if kind is not None else ""
        if kind is None or kind.why:  # parts replay graphs of their own, or the caller's graph has all
            return self._call(inputs, state)
        self._new += 1
        with around() if self._new <= PATIENCE else nullcontext():
            if kind.plain >= WARM_CALLS:
                return self._watched(kind, inputs, state)
            result = self._call(inputs, state)
        self._refuse(kind, self._sets[0](state))
        return result

    def _watched(
        self, kind: CallKind[Forwarded], inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> Forwarded:
        device = next(iter((*inputs, *state.values()))).device
        held = list(state.values())
        try:
            result, seen = watched(lambda: self._call(inputs, state), device, inputs, held, Forwarded.all_leaves)
        except Exception as error:  # the watch's own, or the module's, which the call below raises again
            kind.why = f"it cannot be watched: {type(error).__name__}: {str(error)[:200]}"
            self._decided(kind, None)
            return self._call(inputs, state)
        self._refuse(kind, seen.why or self._sets[0](state) or self._sets[1]())
        kind.reads, kind.cleared = seen.reads, True
        self._decided(kind, seen.argument_reads)
        return result

    def _decided(self, kind: CallKind[Forwarded], argument_reads: ArgumentReads | None) -> None:
        """Keeps a branch by what it reads."""
        assert isinstance(kind, ForwardKind)
        kind.argument_reads = argument_reads
        if kind.root is None:
            return
        if kind.why or argument_reads is None:
            kind.root.why = kind.why or DECIDES
        else:
            kind.root.branches.append(kind)

    def _refuse(self, kind: CallKind[Forwarded], why: str) -> None:
        """Counts the call as one of a kind that is never captured, where there is a reason."""
        if why:
            kind.why = self.refused = why
            self.launched += Counter({why: 1})
            self.launched -= Counter({NEW: 1})

    def _replayed(self, kind: CallKind[Forwarded], inputs: Sequence[torch.Tensor]) -> Forwarded:
        self._new = 0
        return super()._replayed(kind, inputs)

    def _capture(
        self,
        kind: CallKind[Forwarded],
        device: torch.device,
        inputs: Sequence[torch.Tensor],
        state: Mapping[str, torch.Tensor],
    ) -> None:
        before = [table["program_calls"] for table in self._tables]
        with around() as self._read:
            super()._capture(kind, device, inputs, state)
        for table, count in zip(self._tables, before, strict=True):
            if made := table["program_calls"] - count:
                kind.calls.append((table, made // 2))  # one before the capture, one in it
                table["program_calls"] = count
        if kind.result is not None:
            kind.result = kind.result._replace(value=None)
