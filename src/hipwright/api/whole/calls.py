"""The calls of a model's parts in one forward: numbered, with their times, operators and arguments. Imports torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.utils import _pytree as pytree

from hipwright.api.whole.load import LoadedModel
from hipwright.measure.cost import op_seconds, tensor_bytes
from hipwright.measure.estimate import least_seconds, library_seconds
from hipwright.program.lower.trace import OpTrace, spec
from hipwright.records import content_key
from hipwright.targets import Architecture

WARM_UP, REPEATS = 2, 5
_RANGE = "hipwright call "
_PLAIN = bool | int | float | str | tuple | torch.dtype | None
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_NUMBERING = re.compile("idx|index|layer|number")
"""In the names of attributes that say which of a model's equal parts one is."""


@dataclass
class SeenCall:
    """One call of a part. path: "" for the model itself. parent: the number of the call around it, -1 without.

    first, last: the range of its operators in the forward's. signature: equal for calls of parts of one class with
    equal sizes and arguments. bytes: of its arguments, results and parameters, once each.
    """

    path: str
    kind: str
    parent: int
    first: int
    last: int = 0
    signature: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class CapturedCall:
    """The arguments of one call as they were, with strides: copies, which later writes of the forward do not reach."""

    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass
class Seen:
    """The calls of one forward in the order in which they begin, and its operators (`OpTrace`)."""

    calls: list[SeenCall] = field(default_factory=list)
    ops: list[dict[str, Any]] = field(default_factory=list)


Begin = Callable[[str, torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]


@contextmanager
def watched(model: torch.nn.Module, begin: Begin, end: Callable[[Any], None]) -> Iterator[None]:
    """A context in which each call of a part calls begin(path, part, args, kwargs), then end(result)."""
    hooks = []

    def starting(path: str) -> Any:
        return lambda part, args, kwargs: begin(path, part, args, kwargs)

    try:
        for path, part in model.named_modules():
            hooks.append(part.register_forward_pre_hook(starting(path), with_kwargs=True))
            hooks.append(part.register_forward_hook(lambda _part, _args, result: end(result)))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def seen_calls(loaded: LoadedModel) -> Seen:
    """The calls and operators of one forward, without gradients."""
    seen, around = Seen(), list[int]()

    def begin(path: str, part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = SeenCall(path, type(part).__name__, around[-1] if around else -1, len(trace.ops))
        call.signature, call.bytes = _signature(part, args, kwargs), _bytes((args, kwargs)) + _held(part)
        around.append(len(seen.calls))
        seen.calls.append(call)

    def end(result: Any) -> None:
        call = seen.calls[around.pop()]
        call.last, call.bytes = len(trace.ops), call.bytes + _bytes(result)

    with torch.no_grad(), watched(loaded.model, begin, end), OpTrace() as trace:
        loaded.model(*loaded.args, **loaded.kwargs)
    seen.ops = trace.ops
    return seen


def captured_calls(loaded: LoadedModel, numbers: Collection[int]) -> dict[int, CapturedCall]:
    """The arguments of the calls of these numbers, from one more forward."""
    found: dict[int, CapturedCall] = {}
    count = 0

    def begin(path: str, part: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal count
        if count in numbers:
            found[count] = CapturedCall(path, *pytree.tree_map_only(torch.Tensor, _copied, (args, kwargs)))
        count += 1

    with torch.no_grad(), watched(loaded.model, begin, lambda _: None):
        loaded.model(*loaded.args, **loaded.kwargs)
    return found


def likeness(part: torch.nn.Module, call: CapturedCall) -> str:
    """A key that is equal for calls of parts that are alike, from their classes to their plain attributes and the whole
    numbers among the arguments, but for attributes that number them (`layer_idx`)."""
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    whole = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dtype in _WHOLE]
    values = [one.cpu().contiguous().numpy().tobytes() for one in whole]
    return content_key("alike", _signature(part, call.args, call.kwargs), str(_plain_attributes(part)), *values)


def _plain_attributes(part: torch.nn.Module) -> list[list[tuple[str, str]]]:
    """Of a part and all within it, in order: plain values, and functions by their names."""
    found = []
    for one in part.modules():
        own: list[tuple[str, str]] = [("", type(one).__qualname__)]
        for name, value in sorted(vars(one).items()):
            if isinstance(value, _PLAIN) and not (type(value) is int and _NUMBERING.search(name)):
                own.append((name, repr(value)))
            elif isinstance(value, FunctionType | BuiltinFunctionType):
                own.append((name, value.__qualname__))
        found.append(own)
    return found


def first_calls(loaded: LoadedModel, paths: Collection[str]) -> dict[str, int]:
    """The number of the first call of each of these parts, from one more forward; without those that are not called."""
    found: dict[str, int] = {}
    count = 0

    def begin(path: str, part: Any, args: Any, kwargs: Any) -> None:
        nonlocal count
        if path in paths:
            found.setdefault(path, count)
        count += 1

    with torch.no_grad(), watched(loaded.model, begin, lambda _: None):
        loaded.model(*loaded.args, **loaded.kwargs)
    return found


# ---------------------------------------------------------------- times


def estimated(seen: Seen, architecture: Architecture) -> list[float]:
    """ESTIMATE of each call's seconds on a GPU, its operators one after the other as eager launches them."""
    costs = [library_seconds(architecture, op) for op in seen.ops]
    return [sum(costs[call.first : call.last]) for call in seen.calls]


def least(seen: Seen, architecture: Architecture) -> list[float]:
    """The seconds that a single kernel would need for each call at the roofline: ESTIMATE."""
    return [least_seconds(architecture, call.bytes, seen.ops[call.first : call.last]) for call in seen.calls]


def operator_counts(seen: Seen) -> list[int]:
    """Operators of each call that move or compute something."""
    works = [op_seconds(op) > 0.0 for op in seen.ops]
    return [sum(works[call.first : call.last]) for call in seen.calls]


def profiled(loaded: LoadedModel, count: int, *, device: bool) -> list[float]:
    """Seconds of each call by torch.profiler, of REPEATS forwards: of its kernels on the device in the median forward,
    or of the processor at least, to which other processes only add. count: calls in one forward."""
    from torch.profiler import ProfilerActivity, profile

    def forward() -> None:
        loaded.model(*loaded.args, **loaded.kwargs)
        if device:
            torch.cuda.synchronize()

    ranges: list[Any] = []
    numbers = iter(range(count * REPEATS))

    def begin(path: str, part: Any, args: Any, kwargs: Any) -> None:
        ranges.append(record_function(f"{_RANGE}{next(numbers, -1)}"))
        ranges[-1].__enter__()

    with torch.no_grad():
        for _ in range(WARM_UP):
            forward()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device else [])]
        with (
            watched(loaded.model, begin, lambda _: ranges.pop().__exit__(None, None, None)),
            profile(activities=activities) as found,
        ):
            for _ in range(REPEATS):
                forward()
    spent: dict[int, float] = {}
    for event in found.events():
        if event.name.startswith(_RANGE) and not _is_on_device(event):
            spent[int(event.name.removeprefix(_RANGE))] = event.device_time_total if device else event.cpu_time_total
    turns = [[spent.get(n + count * turn, 0.0) / 1e6 for n in range(count)] for turn in range(REPEATS)]
    if device and not any(turn[0] for turn in turns):
        return by_events(loaded, count)
    return _median_turn(turns) if device else _least_turn(turns)


def _least_turn(turns: Sequence[Sequence[float]]) -> list[float]:
    """Each call's least time over the forwards `turns`; a call's is never less than the sum of its parts'."""
    return [min(times) for times in zip(*turns, strict=True)]


def _median_turn(turns: list[list[float]]) -> list[float]:
    """One forward's times, so that those of parts add up."""
    return sorted(turns, key=lambda one: one[0])[len(turns) // 2]


def by_events(loaded: LoadedModel, count: int) -> list[float]:
    """Seconds of each call between events on the stream, for a device on which the profiler sees no kernels; where the
    processor launches slower than the device computes, the gaps are in it."""
    turns: list[list[float]] = []
    for _ in range(REPEATS):
        events: list[tuple[Any, Any]] = []
        around: list[int] = []

        def begin(
            path: str, part: Any, args: Any, kwargs: Any, events: list[Any] = events, around: list[int] = around
        ) -> None:
            around.append(len(events))
            events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            events[-1][0].record()

        def end(_: Any, events: list[Any] = events, around: list[int] = around) -> None:
            events[around.pop()][1].record()

        with torch.no_grad(), watched(loaded.model, begin, end):
            loaded.model(*loaded.args, **loaded.kwargs)
            torch.cuda.synchronize()
        turns.append([first.elapsed_time(last) / 1e3 for first, last in events[:count]])
    return _median_turn(turns)


def _is_on_device(event: Any) -> bool:
    """Whether this is the range's shadow among the device's own events, which counts the gaps too."""
    return bool(event.device_type != torch.autograd.DeviceType.CPU)


# ---------------------------------------------------------------- what a call is


def _signature(part: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    leaves, structure = pytree.tree_flatten((args, kwargs))
    given = [spec(leaf) if isinstance(leaf, torch.Tensor) else repr(leaf)[:200] for leaf in leaves]
    held = [(name, tuple(t.shape), str(t.dtype)) for name, t in (*part.named_parameters(), *part.named_buffers())]
    return content_key("call", f"{type(part).__module__}.{type(part).__qualname__}", str([held, str(structure), given]))


def _bytes(value: Any) -> int:
    return sum(tensor_bytes(spec(t)) for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor))


def _held(part: torch.nn.Module) -> int:
    return sum(t.numel() * t.element_size() for t in (*part.parameters(), *part.buffers()))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the tensor's strides and offset."""
    storage = tensor.detach().untyped_storage().clone()
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
