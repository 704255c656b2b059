"""Runs a module in float64 whatever dtypes its code names. Runs in the task host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hipwright.errors import TaskError
from hipwright.higher_order import OperatorMode
from hipwright.task.host.modes import depthwise
from hipwright.task.host.modes.rounded_sums import RoundedSums
from hipwright.task.host.modes.ties import TieMarker
from hipwright.task.host.modes.value_checks import check_operands
from hipwright.task.host.random_draws import NARROW, NotedDraws, draws

_NAN_TO_NUM = (torch.ops.aten.nan_to_num, torch.ops.aten.nan_to_num_)


def _scaled(
    sums: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    *rest: Any,
    **more: Any,
) -> torch.Tensor:
    """What torch._scaled_mm makes of the sums: it has no float64 kernel. Scales are those of tensors, rows, columns."""
    if scale_result is not None or any(s.numel() > 1 and 1 not in s.shape for s in (scale_a, scale_b)):
        raise TaskError("a scaled product of this kind has no float64 form")
    out = sums * scale_a * scale_b
    return out if bias is None else out + bias


LARGEST = float(torch.finfo(torch.float32).max)


def _widen(value: Any) -> Any:
    if not (isinstance(value, torch.dtype) and value in NARROW):
        return value
    return torch.complex128 if value.is_complex else torch.float64


class _Operators(OperatorMode):
    """Dtype arguments of operators: x.half(), x.to(torch.float32), torch.zeros(..., dtype=torch.bfloat16).

    largest: what nan_to_num makes of Inf by default, the largest number of the dtype that the code itself has. noted:
    how the module itself draws random numbers. sums: moves the results of sums.
    """

    def __init__(
        self, choices: TieMarker | None, largest: float, noted: NotedDraws | None, sums: RoundedSums | None
    ) -> None:
        super().__init__()
        self._sums = sums
        self._choices = choices
        self._largest = largest
        self._noted = noted

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._noted is not None and draws(func):
            return self._noted.called(func, args, kwargs or {})
        check_operands(func, args, kwargs)
        args = tuple(map(_widen, args))  # no operator takes a list of dtypes
        kwargs = {name: _widen(value) for name, value in kwargs.items()}
        if func.overloadpacket in _NAN_TO_NUM:
            names = ("nan", "posinf", "neginf")
            given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
            bounds = {"posinf": self._largest, "neginf": -self._largest}
            kwargs = {**given, **{name: bounds[name] for name in bounds if given.get(name) is None}}
            args = args[:1]
        if func is torch.ops.aten._scaled_mm.default:
            return _scaled(self._called(torch.ops.aten.mm.default, args[:2], {}), *args[2:], **kwargs)
        return self._called(func, args, kwargs)

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result, marked and moved."""
        run = depthwise.called if self._choices is None else self._choices.called
        out = run(func, args, kwargs)
        if self._sums is not None:
            self._sums.called(func, args, out)
        return out


class _Literals(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """torch.tensor([...], dtype=torch.float32), which reaches no operator with its dtype."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.from_numpy):
            out = func(*args, **{**kwargs, **({"dtype": _widen(kwargs["dtype"])} if "dtype" in kwargs else {})})
            return out.to(_widen(out.dtype))
        return func(*args, **kwargs)


@contextmanager
def float64(
    choices: TieMarker | None = None,
    largest: float = LARGEST,
    noted: NotedDraws | None = None,
    sums: RoundedSums | None = None,
) -> Iterator[None]:
    """A context in which no operator makes floats narrower than float64.

    choices: marks indices chosen among equals. largest, noted, sums: see `_Operators`.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Operators(choices, largest, noted, sums), _Literals():
            yield
    finally:
        torch.set_default_dtype(before)


def widen(tensor: torch.Tensor, cache: dict[int, torch.Tensor]) -> torch.Tensor:
    """A float tensor as float64 (complex128) with the same strides, offset and sharing (by `cache`); else itself."""
    if tensor.dtype not in NARROW:
        return tensor
    if tensor.numel() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=_widen(tensor.dtype), device=tensor.device)
    storage = tensor.untyped_storage()
    if storage._cdata not in cache:
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
        cache[storage._cdata] = whole.to(_widen(tensor.dtype))
    return torch.as_strided(cache[storage._cdata], tensor.shape, tensor.stride(), tensor.storage_offset())
