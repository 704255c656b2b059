"""Operators of torch that take functions (flex_attention, cond, scan): what modes and tracers see are the ordinary
operators of their dense forms. Imports torch.

torch refuses them under a mode that does not ask for them, and gives them to one that does as one call, without what
runs inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import wraps
from importlib import import_module
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten


def _cond(pred: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Any) -> Any:
    return (true if pred else false)(*operands)


def _scan(function: Callable[..., Any], init: Any, xs: Any, additional: Any) -> Any:
    from torch._higher_order_ops.scan import generic_scan

    return generic_scan(function, init, xs, additional_inputs=additional)


def _subgraph(function: Callable[..., Any], _: Any, *operands: Any) -> Any:
    return function(*operands)


_FORMS: dict[str, Callable[..., Any]] = {"cond": _cond, "scan": _scan, "invoke_subgraph": _subgraph}
"""Dense forms by the names of operators whose own forms refuse to run under any mode."""


class OperatorMode(TorchDispatchMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """A mode that is given ordinary operators alone (`_call`): of an operator that takes functions, those that its
    dense form runs, each in its turn.
    """

    supports_higher_order_operators = True
    _inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._run(func, args, kwargs)
        if self._inside:  # below autograd, where operators come whole
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._call(func, args, kwargs)

    def _run(self, func: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
        dense = _FORMS.get(str(func)) or func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if dense is None:
            return func(*args, **kwargs)
        before, self._inside = self._inside, True
        try:
            with self:
                return dense(*args, **kwargs)
        finally:
            self._inside = before

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result; the mode is left while this runs."""
        return func(*args, **kwargs)


def _steps(combine_fn: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any) -> Any:
    """A scan, with what its steps give stacked at the end."""
    kept, rows = tuple(init), []
    for row in range(xs[0].shape[0]):
        found = tuple(combine_fn(*kept, *(x[row] for x in xs), *additional_inputs))
        kept = found[: len(kept)]
        rows.append(found[len(kept) :])
    return (*kept, *(None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)))


def _rows(function: Callable[..., Any], xs: Any, args: Any) -> Any:
    """A map: all rows at once where torch.vmap can, else one after the other."""
    places = (*(0 for _ in xs), *(None for _ in args))
    try:
        return torch.vmap(function, places)(*xs, *args)
    except RuntimeError:  # random numbers, values that decide a branch
        found = [tree_flatten(function(*row, *args)) for row in zip(*xs, strict=True)]
        return tree_unflatten(
            [torch.stack(leaves) for leaves in zip(*(flat for flat, _ in found), strict=True)], found[0][1]
        )


def _while(
    condition: Callable[..., Any], body: Callable[..., Any], carried: Any, additional_inputs: Any, *_: Any
) -> Any:
    """A loop that goes on while a tensor says so."""
    carried = tuple(carried)
    while bool(condition(*carried, *additional_inputs)):
        carried = tuple(body(*carried, *additional_inputs))
    return carried


def _halves(combine_fn: Callable[..., Any], xs: Any, additional_inputs: Any) -> Any:
    """A scan of an associative function, by halves."""
    from torch._higher_order_ops.associative_scan import generic_associative_scan

    return generic_associative_scan(combine_fn, xs, additional_inputs=additional_inputs)


def _on_all(scan: Callable[..., Any]) -> Callable[..., Any]:
    """torch's own, of values one by one on every device."""

    @wraps(scan)
    def associative_scan(
        combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
    ) -> Any:
        return scan(combine_fn, xs, dim, reverse, "generic")

    return associative_scan


_LOOPS: dict[str, tuple[str, Callable[..., Any]]] = {
    "scan": ("scan_op", _steps),
    "map": ("map_impl", _rows),
    "while_loop": ("while_loop_op", _while),
    "associative_scan": ("associative_scan_op", _halves),
}
"""Loops by the module of torch that has them: the operator's name there, and its form."""


@contextmanager
def loops_written_out() -> Iterator[None]:
    """A context in which the loops of torch that take functions are the operators of their steps: torch itself compiles
    each call first, and a captured graph holds a graph of the step.
    """

    def at_once(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def form(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, *args, **kwargs: of(*args, **kwargs)

    with ExitStack() as replaced:
        parts = import_module("torch._higher_order_ops.utils")
        _put(replaced, parts, "_maybe_compile_and_run_fn", at_once)
        _put(replaced, parts, "_hop_compile_and_call", lambda function, args, *_, **__: function(*args))
        for name, (operator, of) in _LOOPS.items():
            with suppress(ImportError):  # an older torch
                module = import_module(f"torch._higher_order_ops.{name}")
                _put(replaced, module, "_maybe_compile_and_run_fn", at_once)
                if name == "associative_scan":  # of values one by one: torch has that on a GPU alone
                    _put(replaced, module, name, _on_all(module.associative_scan))
                if hasattr(module, operator):
                    _put(replaced, type(getattr(module, operator)), "__call__", form(of))
        yield


def _put(replaced: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Sets an attribute, if there is one of the name, until the stack is left."""
    if (before := getattr(owner, name, None)) is not None:
        setattr(owner, name, value)
        replaced.callback(setattr, owner, name, before)


_process = ExitStack()


def in_this_process(*contexts: AbstractContextManager[Any]) -> None:
    """Enters contexts for as long as the process lives."""
    for context in contexts:
        _process.enter_context(context)


@contextmanager
def attention_dense() -> Iterator[None]:
    """A context in which `flex_attention` is its dense form, the one that it has without torch.compile: products, the
    functions of scores and of masks over all scores at once (torch.vmap), and a softmax.

    torch itself compiles the call to reach the same operators, once for every shape.
    """
    try:
        from torch._higher_order_ops.flex_attention import sdpa_dense
        from torch.nn.attention import flex_attention as module
    except ImportError:  # torch before 2.5
        yield
        return
    set_here = {"flex_attention_hop": sdpa_dense, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True}
    before = {name: getattr(module, name) for name in set_here if hasattr(module, name)}
    if len(before) < len(set_here):  # an older torch compiles every call: flex_attention is refused there
        yield
        return
    for name, value in set_here.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def both_sides() -> Iterator[None]:
    """A context in which `torch.cond` by a tensor computes both sides and chooses between their results, also where the
    tensor has no values: torch lets no side write, and asks for results of the same shapes and types.
    """
    whole = torch.cond

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if not isinstance(pred, torch.Tensor):
            return whole(pred, true_fn, false_fn, operands)
        if pred.dtype != torch.bool or pred.numel() != 1:
            raise RuntimeError("torch.cond takes a boolean of one element")
        sides, nesting = zip(*(tree_flatten(side(*operands)) for side in (true_fn, false_fn)), strict=True)
        chosen = [torch.where(pred.reshape(()), *pair) for pair in zip(*sides, strict=True)]
        return tree_unflatten(chosen, nesting[0])

    torch.cond = cond
    try:
        yield
    finally:
        torch.cond = whole
