"""Calls that replay a graph of the GPU, where they are like calls before (docs/library.md).

A plan is Python: it launches its kernels one by one, and where they are short the processor is what takes the time. A
graph starts all of them at once. It is captured for one kind of call: device and stream, shapes, strides and dtypes of
the inputs, and the addresses of the state. `GraphedProgram` has the calls of one program, `forward.graphs` those of a
forward around several.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hipwright.api.live.device_graphs import DeviceGraphs, cuda_graphs
from hipwright.api.live.forward.reads import Read, answered

WARM_CALLS = 2
"""Plain calls of one kind before its graph is captured."""
GRAPHS = 8
"""Kinds of calls that are kept of one program; the one that was called longest ago is forgotten first."""
LARGEST = 64 << 20
"""Bytes of inputs and outputs together beyond which copying them costs more than launching one by one. The largest
inputs are read where they are until the others take less."""
KNOWN = 64
"""Sizes of inputs of which it is known which are read where they are."""
OVERLAPPING = "an input's elements share memory"
NEW, CAPTURES = "its kind is new", "the caller captures"

Call = tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]
"""What a program gives: (outputs, new values of buffers)."""
R = TypeVar("R")


class Capturable(Protocol):
    """A `ProgramCall` that can be captured. prepares: whether it packs its state, beside which a graph must not get
    old."""

    device: str
    prepares: bool

    def __call__(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Call:
        """As `ProgramCall`."""
        ...

    def packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Any:
        """What a call reads beside its arguments: it must live as long as a graph of the call."""
        ...


class _Around(threading.local):
    """held: what programs of this thread read beside their arguments, None where no graph around them is made."""

    held: list[Any] | None = None


_around = _Around()
_replaying = threading.Lock()
"""Graphs of one stream share memory: another's replay must not come before a result is copied."""


@contextmanager
def around() -> Iterator[list[Any]]:
    """A context in which programs launch their kernels into a graph around them, which is made, or about to be.

    Gives the list to which they add what must live as long as that graph.
    """
    before, held = _around.held, list[Any]()
    _around.held = held
    try:
        yield held
    finally:
        _around.held = before


@dataclass(eq=False)
class CallKind(Generic[R]):
    """Calls of one kind. state: of the last one, as far as its addresses do not say it; plain: calls launched one by
    one in this state; cleared: whether nothing more is to be known before it is captured; why: it never is. calls: of
    each program in a graph, by the table in which they are counted. reads: what the processor reads in each call.
    in_place: the places of inputs that its graph reads where they are; inputs: the graph's own, by their places."""

    state: tuple[Any, ...]
    storages: list[StorageWeakRef]
    in_place: tuple[int, ...]
    plain: int = 0
    cleared: bool = True
    why: str = ""
    replay: Callable[[], None] | None = None
    inputs: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    result: R | None = None
    packed: Any = None
    calls: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    reads: Sequence[Read] = ()

    def expired(self) -> bool:
        """Whether memory of its state was freed; another tensor may have the address afterwards."""
        return any(map(torch.UntypedStorage._expired, [one.cdata for one in self.storages]))


class GraphedCalls(ABC, Generic[R]):
    """Calls that replay graphs. replays, captures: how many; launched: plain calls, by reason.

    Inputs are copied into the graph's own, but for large ones whose addresses are part of the kind, and outputs out of
    it: what a call returns is the caller's. A call is launched plainly while the caller captures, until its kind was
    called `WARM_CALLS` times with this state, where its inputs overlap or its outputs are too large, where graphs keep
    too much memory, and where the capture failed. For several threads.
    """

    def __init__(self, graphs: DeviceGraphs | None, *, most: int, packs: bool) -> None:
        self.replays, self.captures, self.launched = 0, 0, Counter[str]()
        self._graphs, self._most, self._packs = graphs or cuda_graphs(), most, packs
        self._kinds: OrderedDict[tuple[Any, ...], CallKind[R]] = OrderedDict()
        self._in_place: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def _call(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> R:
        """Launches one by one."""

    @abstractmethod
    def _packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Any:
        """What must live as long as the graph of a call, where packs."""

    @abstractmethod
    def _tensors(self, result: R) -> Sequence[torch.Tensor]:
        """Those that are copied out of a graph."""

    @abstractmethod
    def _copied(self, result: R) -> R:
        """The result with copies of its tensors."""

    def __call__(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> R:
        """The call's result."""
        device, kind = next(iter((*inputs, *state.values()))).device, None
        if _around.held is not None or self._graphs.capturing(device):
            why = CAPTURES
        else:
            with self._lock:  # copying in, starting and copying out belong together
                kind = self._chosen(self._kind(device, inputs, state), inputs)
                why = kind.why or self._captured(kind, device, inputs, state)
                if not why:
                    return self._replayed(kind, inputs)
        self.launched[why] += 1
        return self._plain(kind, inputs, state)

    def _plain(self, kind: CallKind[R] | None, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> R:
        """A call that replays no graph. kind: None within another graph."""
        result = self._call(inputs, state)
        if _around.held is not None and self._packs:
            _around.held.append(self._packed(inputs, state))
        return result

    def _kind(
        self, device: torch.device, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> CallKind[R]:
        given, held, packs = tuple([(t.shape, t.stride(), t.dtype) for t in inputs]), state.values(), self._packs
        where = device.index, self._graphs.stream(device), *library_settings()
        in_place = self._places(given, inputs)
        read = [inputs[place].data_ptr() for place in in_place]
        key = (*where, given, tuple([one.data_ptr() for one in held]), *read)
        shapes, strides = [one.shape for one in held], [one.stride() for one in held]
        now = shapes, strides, [one.dtype for one in held], _versions(held, packs)
        kind = self._kinds.get(key)
        if kind is not None and kind.state == now and not (packs and kind.expired()):
            self._kinds.move_to_end(key)
            return kind
        self._kinds = OrderedDict((k, one) for k, one in self._kinds.items() if k != key and not one.expired())
        while len(self._kinds) >= self._most:
            self._kinds.popitem(last=False)
        why = OVERLAPPING if any(torch._debug_has_internal_overlap(one) for one in inputs) else ""
        storages = [StorageWeakRef(one.untyped_storage()) for one in held]
        kind = self._kinds[key] = self._made(now, storages, in_place)
        kind.why = why
        return kind

    def _places(self, given: tuple[Any, ...], inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The inputs of such sizes that a graph reads where they are."""
        if given not in self._in_place:
            if len(self._in_place) >= KNOWN:
                self._in_place.clear()
            self._in_place[given] = _in_place(inputs)
        return self._in_place[given]

    def _chosen(self, kind: CallKind[R], inputs: Sequence[torch.Tensor]) -> CallKind[R]:
        """The kind itself, or the one of its calls that decide alike by values of the arguments."""
        return kind

    def _made(self, now: tuple[Any, ...], storages: list[StorageWeakRef], in_place: tuple[int, ...]) -> CallKind[R]:
        """A kind that is new."""
        return CallKind(now, storages, in_place)

    def _captured(
        self, kind: CallKind[R], device: torch.device, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> str:
        """Captures a kind that is due. Why there is no graph of it, "" where there is."""
        if kind.replay is not None:
            return ""
        if kind.plain < WARM_CALLS or not kind.cleared:
            kind.plain += 1
            return NEW
        try:
            self._capture(kind, device, inputs, state)
        except Exception as error:  # whatever torch and the driver say: the plain call is always right
            kind.why = f"it cannot be captured: {type(error).__name__}: {str(error)[:200]}"
        return kind.why

    def _capture(
        self, kind: CallKind[R], device: torch.device, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> None:
        own = list(inputs)
        copied = [place for place in range(len(own)) if place not in kind.in_place]
        with torch.inference_mode(False), torch.no_grad():  # buffers that every later call may write
            for place in copied:
                t = inputs[place]
                own[place] = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)
            replay, result = self._graphs.capture(device, lambda: answered(lambda: self._call(own, state), kind.reads))
        size = _bytes([own[place] for place in copied]) + _bytes(self._tensors(result))
        if size > LARGEST:
            kind.why = f"inputs and outputs of {size >> 20} MiB would be copied"
            return
        if not self._graphs.reserve(device, size):
            kind.why = "graphs keep as much memory as they may"
            return
        weakref.finalize(kind, self._graphs.release, device, size)
        if self._packs:
            kind.packed = self._packed(inputs, state)
        kind.inputs, kind.result, kind.replay = [(place, own[place]) for place in copied], result, replay
        self.captures += 1

    def _replayed(self, kind: CallKind[R], inputs: Sequence[torch.Tensor]) -> R:
        assert kind.replay is not None and kind.result is not None
        self.replays += 1
        for table, calls in kind.calls:
            table["program_calls"] += calls
        with _replaying:
            for place, mine in kind.inputs:
                mine.copy_(inputs[place])
            kind.replay()
            return self._copied(kind.result)


class GraphedProgram(GraphedCalls[Call]):
    """A program that replays graphs of its calls."""

    def __init__(self, program: Capturable, graphs: DeviceGraphs | None = None, *, most: int = GRAPHS) -> None:
        super().__init__(graphs, most=most, packs=program.prepares)
        self._program = program

    @property
    def device(self) -> str:
        """The type of its tensors' device."""
        return self._program.device

    @property
    def prepares(self) -> bool:
        """Whether it packs its state."""
        return self._packs

    def apart(self) -> GraphedProgram:
        """The same program with graphs of its own, for another module."""
        return GraphedProgram(self._program, self._graphs, most=self._most)

    def _call(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Call:
        return self._program(inputs, state)

    def _packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Any:
        return self._program.packed(inputs, state)

    def _tensors(self, result: Call) -> Sequence[torch.Tensor]:
        return [*result[0], *result[1].values()]

    def _copied(self, result: Call) -> Call:
        outputs, buffers = result
        return [one.clone() for one in outputs], {name: one.clone() for name, one in buffers.items()}

    def __deepcopy__(self, memo: object) -> GraphedProgram:
        return self.apart()


def library_settings() -> tuple[Any, ...]:
    """What a caller may set that decides which kernels the library's own operators launch."""
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    tf32 = (
        (precision("generic", "all"), precision("cuda", "matmul"), precision("cuda", "conv"))
        if precision is not None
        else (torch._C._get_cublas_allow_tf32(), torch._C._get_cudnn_allow_tf32())
    )
    return (
        *tf32,
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_cudnn_sdp_enabled(),
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        torch._C._get_deterministic_algorithms(),
        torch._C._get_cudnn_deterministic(),
    )


def _versions(state: Iterable[torch.Tensor], packs: bool) -> list[int]:
    """Counts of changes in place, by which packed weights are known to be old; 0 where a tensor has none."""
    return [0 if one.is_inference() else one._version for one in state] if packs else []


def _in_place(inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """The places of the largest inputs, without which the others take LARGEST bytes at the most."""
    sizes = [one.numel() * one.element_size() for one in inputs]
    left, found = sum(sizes), list[int]()
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        if left <= LARGEST:
            break
        left -= sizes[place]
        found.append(place)
    return tuple(found)


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)
