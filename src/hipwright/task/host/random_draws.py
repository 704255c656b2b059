"""The random operators of a reference: in float64 they draw the numbers that the module itself draws.

Most operators draw other numbers in float64 than in float32 from the same generator. So the module's own run notes the
dtypes of each random operator (`DrawRecorder`), and the float64 run calls the operator in those dtypes and widens what
it returns (`NotedDraws`). Runs in the task host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.errors import TaskError
from hipwright.higher_order import OperatorMode

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.complex64, *FLOAT8)
aten = torch.ops.aten


def draws(func: Any) -> bool:
    """Whether an operator takes numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


@dataclass(frozen=True)
class DrawForm:
    """One call of a random operator: its name, and the dtypes of its arguments' and results' tensors in order."""

    op: str
    given: tuple[torch.dtype, ...]
    made: tuple[torch.dtype, ...]


class DrawRecorder(OperatorMode):
    """Notes the random operators of a run in its own dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[DrawForm] = []

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not draws(func):
            return func(*args, **kwargs)
        given = _dtypes((args, kwargs))
        out = func(*args, **kwargs)
        self.forms.append(DrawForm(str(func), given, _dtypes(out)))
        return out


class NotedDraws:
    """Draws in the dtypes of another run, call by call. Raises TaskError where the two runs differ."""

    def __init__(self, forms: Sequence[DrawForm]) -> None:
        self._forms = iter(forms)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result on float64 tensors: what it draws in the noted dtypes, as float64."""
        form = next(self._forms, None)
        if form is None or form.op != str(func):
            raise TaskError(f"the float64 reference draws by {func} where the module draws by {form and form.op}")
        given, spec = pytree.tree_flatten((args, kwargs))
        dtypes = iter(form.given)
        narrow = [leaf.to(next(dtypes)) if isinstance(leaf, torch.Tensor) else leaf for leaf in given]
        args_, kwargs_ = pytree.tree_unflatten(narrow, spec)
        kwargs_ = _with_dtype(func, kwargs_, form.made)
        out = func(*args_, **kwargs_)
        written = [n for n, one in enumerate(func._schema.arguments[: len(args)]) if _is_written(one)]
        for n in written:
            if args[n] is not args_[n]:
                args[n].copy_(args_[n])
        exact = _EXACT.get(func.overloadpacket)
        if exact is not None:
            return exact(out, args)
        return args[0] if 0 in written else pytree.tree_map(_widened, out)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _dtypes(value: Any) -> tuple[torch.dtype, ...]:
    return tuple(leaf.dtype for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _with_dtype(func: Any, kwargs: dict[str, Any], made: Sequence[torch.dtype]) -> dict[str, Any]:
    """The keywords with the dtype of the noted result, for an operator that can be told one."""
    named = any(argument.name == "dtype" for argument in func._schema.arguments)
    return {**kwargs, "dtype": made[0]} if named and made else kwargs


def _widened(value: Any) -> Any:
    if not (isinstance(value, torch.Tensor) and value.dtype in NARROW):
        return value
    return value.to(torch.complex128) if value.is_complex() else value.double()


def _dropout(out: Any, args: Any) -> Any:
    """native_dropout in float64 under the mask that was drawn."""
    x, p = args[:2]
    return x * out[1] * (0.0 if p == 1 else 1 / (1 - p)), out[1]


def _rrelu(out: Any, args: Any) -> Any:
    """rrelu_with_noise in float64 with the slopes that were drawn, which are 1 where nothing was."""
    return args[0] * args[1] if len(args) > 4 and args[4] else _widened(out)


_EXACT: dict[Any, Callable[[Any, Any], Any]] = {aten.native_dropout: _dropout, aten.rrelu_with_noise: _rrelu}
"""Operators that compute with what they draw: their result in float64."""
