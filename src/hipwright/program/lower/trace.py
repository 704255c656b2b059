"""Traces the library operators and launches of a plan, without running a kernel. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from hipwright.errors import CandidateError
from hipwright.higher_order import OperatorMode
from hipwright.program.lower.arguments import Argument, Dim3
from hipwright.program.lower.closures import lower
from hipwright.program.lower.live_bytes import LiveBytes
from hipwright.program.lower.table import to_device
from hipwright.program.lower.unshaped import UNSHAPED
from hipwright.program.parsed import Parsed
from hipwright.program.updates import Updates
from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor, Tree
from hipwright.torchio import tensors_of

_MOST_ZEROS = 1 << 26  # elements
SPECS = (HostTensor, TensorSpec, torch.Tensor)
"""What stands for a tensor in a state table or among inputs."""


class NoopLauncher:
    """A launcher whose kernels do nothing and whose new tensors hold `poison` bytes; `launches` records the launches.

    updates: marks the arguments that a launch reads and replaces.
    """

    def __init__(self, *, device: str = "cpu", poison: int = 0xA5, updates: Updates | None = None) -> None:
        self.device = device
        self.poison = poison
        self.launches: list[dict[str, Any]] = []
        self._updates = updates

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Records a launch: {"kernel", "grid", "block", "lds", "args": [spec or scalar]}; "updated" in a spec."""
        described = [spec(a) if isinstance(a, torch.Tensor) else a for a in args]
        for number, updated in enumerate(self._updates.replaced(kernel, args) if self._updates is not None else []):
            if updated:
                described[number]["updated"] = True
        record = {"kernel": kernel, "grid": list(grid), "block": list(block), "lds": lds_bytes, "args": described}
        self.launches.append(record)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A contiguous tensor full of poison bytes (no contents on the meta device)."""
        out = torch.empty(shape, dtype=dtype, device=self.device)
        if self.device != "meta" and out.numel():
            out.view(-1).view(torch.uint8).fill_(self.poison)
        if self._updates is not None:
            self._updates.allocated(out)
        return out


class OpTrace(OperatorMode):
    """Records every operator that torch dispatches inside the block.

    ops: [{"op": "aten.addmm.default", "in": [spec, ...], "out": [spec, ...]}], tensors in order, lists flattened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[dict[str, Any]] = []

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs the operator and records its inputs and outputs."""
        try:
            out = func(*args, **kwargs)
        except NotImplementedError:
            shaped: Callable[..., Any] = UNSHAPED.get(func, partial(_on_zeros, func))
            out = shaped(*args, **kwargs)
        ins = [spec(t) for t in tensors_of((args, kwargs or {}))]
        self.ops.append({"op": str(func), "in": ins, "out": [spec(t) for t in tensors_of(out)]})
        return out


def _on_zeros(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What an operator without shapes of its own gives on meta tensors: the shapes of its result on zeros.

    Raises as the operator does where there are no meta tensors, or too many elements.
    """
    tensors = list(tensors_of((args, kwargs)))
    if not any(t.is_meta for t in tensors) or sum(t.numel() for t in tensors) > _MOST_ZEROS:
        return func(*args, **kwargs)

    def zeros(leaf: Any) -> Any:
        return torch.zeros_like(leaf, device="cpu") if isinstance(leaf, torch.Tensor) else leaf

    def meta(leaf: Any) -> Any:
        return torch.empty_like(leaf, device="meta") if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(meta, func(*tree_map(zeros, args), **tree_map(zeros, kwargs)))


class CallTrace(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """Records the library calls of a plan, and the operators that each dispatches.

    calls: [{"name": "lstm", "ops": [...]}] for those that dispatch anything; one call may dispatch several.
    """

    def __init__(self, ops: OpTrace) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self._ops = ops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the call and records the operators that it dispatches."""
        before = len(self._ops.ops)
        out = func(*args, **(kwargs or {}))
        ops = [op for op in self._ops.ops[before:] if not _is_poison(op)]
        if ops:
            self.calls.append({"name": getattr(func, "__name__", str(func)).partition(".")[0], "ops": ops})
        return out


def trace(
    parsed: Parsed, knobs: Mapping[str, int], table: Tree, inputs: Sequence[Any], *, meta: bool = True
) -> dict[str, Any]:
    """Runs the plan with kernels replaced by no-ops; returns {"ops", "calls", "launches", "live", "prepare": {"ops",
    "launches"}}; live: the most bytes that what `forward` makes holds at once.

    meta=True runs on meta tensors: shapes only, without data or cost; on small tensors of zeros, else of ones, where an
    operator of the library reads values (the windows of istft, which must not be zeros). Operators in `prepare` are
    separate. Allocations appear in "ops" as the operators that implement them. Raises what `lower` and
    `LoweredPlan.forward` raise.
    """
    if not meta:
        return _traced(parsed, knobs, table, inputs, "cpu")
    try:
        return _traced(parsed, knobs, table, inputs, "meta")
    except CandidateError:
        specs = tree_leaves([table, list(inputs)], is_leaf=lambda leaf: isinstance(leaf, SPECS))
        if sum(prod(one.shape) for one in specs if isinstance(one, SPECS)) > _MOST_ZEROS:
            raise
    with contextlib.suppress(CandidateError):
        return _traced(parsed, knobs, _filled(table, 0), _filled(list(inputs), 0), "cpu")
    return _traced(parsed, knobs, _filled(table, 1), _filled(list(inputs), 1), "cpu")


def _filled(tree: Tree, value: int) -> Any:
    """A nesting with tensors of one value in the place of its own."""

    def filled(leaf: Any) -> Any:
        return torch.full_like(to_device(leaf, "meta"), value, device="cpu") if isinstance(leaf, SPECS) else leaf

    return tree_map(filled, tree, is_leaf=lambda leaf: isinstance(leaf, SPECS))


def _traced(
    parsed: Parsed, knobs: Mapping[str, int], table: Tree, inputs: Sequence[Any], device: str
) -> dict[str, Any]:
    launcher = NoopLauncher(device=device, updates=Updates(parsed.signatures))
    plan = lower(parsed, knobs, table, launcher, allow_random=True, device=device)
    given = [to_device(item, device) for item in inputs]
    with torch.no_grad():
        with OpTrace() as before:
            plan.prepare()
        prepare_launches, launcher.launches = launcher.launches, []
        with OpTrace() as during, CallTrace(during) as outer, LiveBytes() as living:
            plan.forward(*given)
    return {
        "ops": [op for op in during.ops if not _is_poison(op)],
        "calls": outer.calls,
        "launches": launcher.launches,
        "live": living.most,
        "prepare": {"ops": [op for op in before.ops if not _is_poison(op)], "launches": prepare_launches},
    }


def _is_poison(op: dict[str, Any]) -> bool:
    """Whether an operator is NoopLauncher's own fill, which is no work of the plan."""
    return bool(op["op"] == "aten.fill_.Scalar" and op["out"][0]["dtype"] == "uint8")


def spec(tensor: Any) -> dict[str, Any]:
    """{"dtype", "shape", "stride"} of a tensor."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
    }
