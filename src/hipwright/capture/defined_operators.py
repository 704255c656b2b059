"""Functions of torch whose operators say too little in a captured graph, for capture. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from hipwright.higher_order import attention_dense, both_sides, loops_written_out


@contextmanager
def operators_as_defined() -> Iterator[None]:
    """A context in which functions of torch are the operators by which torch defines them, where a captured graph would
    not say what they do: `torch.instance_norm`, `torch.nn.functional.linear_cross_entropy`, batch norms without a
    momentum, `torch.cond`, `flex_attention`, loops that take functions, and tensors of numbers that tensors hold.
    """
    with ExitStack() as entered:
        for form in _AS_DEFINED:
            entered.enter_context(form())
        yield


@contextmanager
def _running_statistics_seen() -> Iterator[None]:
    """An instance norm that writes running statistics is what torch makes of it: a batch norm over N * C channels, with
    the statistics of each, whose means over N are written (at::native::instance_norm). Its schema does not say that.
    """
    whole = torch.instance_norm

    def instance_norm(
        input: Any,
        weight: Any,
        bias: Any,
        running_mean: Any,
        running_var: Any,
        use_input_stats: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Any:
        given = (running_mean, running_var)
        if not use_input_stats or any(one is None for one in given):
            return whole(input, weight, bias, *given, use_input_stats, momentum, eps, cudnn_enabled)
        n, c = input.shape[:2]
        of_each: list[Any] = [None if one is None else one.repeat(n) for one in (weight, bias, *given)]
        rows = input.reshape(1, n * c, *input.shape[2:])
        out = torch.batch_norm(rows, *of_each, True, momentum, eps, cudnn_enabled)
        for kept, each in zip(given, of_each[2:], strict=True):
            kept.copy_(each.view(n, c).mean(0))
        return out.view(input.shape)

    torch.instance_norm = instance_norm
    try:
        yield
    finally:
        torch.instance_norm = whole


@contextmanager
def _batches_counted() -> Iterator[None]:
    """A batch norm whose momentum is None keeps the mean of the statistics of all batches, of which it has the count as
    a buffer. Torch reads that on the host; here it stays a tensor, which weighs the batch's own statistics.
    """
    whole = _BatchNorm.forward

    def forward(self: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
        kept = (self.running_mean, self.running_var)
        counted = self.training and self.num_batches_tracked is not None and all(one is not None for one in kept)
        if self.momentum is not None or not counted:
            return whole(self, input)
        self._check_input_dim(input)
        self.num_batches_tracked.add_(1)
        found = [torch.zeros_like(one) for one in kept]
        out = torch.nn.functional.batch_norm(input, *found, self.weight, self.bias, True, 1.0, self.eps)
        for one, new in zip(kept, found, strict=True):
            wide = torch.promote_types(one.dtype, torch.float32)
            share = 1 / self.num_batches_tracked.to(wide)
            one.copy_(one.to(wide) * (1 - share) + new.to(wide) * share)
        return out

    _BatchNorm.forward = forward
    try:
        yield
    finally:
        _BatchNorm.forward = whole


@contextmanager
def _losses_unchunked() -> Iterator[None]:
    """A cross entropy of a linear layer is these two, of torch 2.13 on: in chunks it is an operator of its own, which
    no other has a form of.
    """
    functional = torch.nn.functional
    chunked = getattr(functional, "linear_cross_entropy", None)
    if chunked is None:
        yield
        return

    def linear_cross_entropy(*args: Any, **kwargs: Any) -> Any:
        return chunked(*args, **{**kwargs, "options": None})

    functional.linear_cross_entropy = linear_cross_entropy
    try:
        yield
    finally:
        functional.linear_cross_entropy = chunked


@contextmanager
def _numbers_stacked() -> Iterator[None]:
    """`torch.tensor` and `torch.as_tensor` of a list with tensors of no dimensions stack them: torch reads their
    memory, which a tracer's tensors have none of.
    """
    before = {name: getattr(torch, name) for name in ("tensor", "as_tensor")}

    def stacked(made: Any) -> Any:
        def make(data: Any, *args: Any, **kwargs: Any) -> Any:
            held = [one for one in tree_leaves(data) if isinstance(one, torch.Tensor)]
            alike = isinstance(data, (list, tuple)) and held and not any(one.ndim for one in held)
            if not alike or args or not kwargs.keys() <= {"dtype", "device"}:
                return made(data, *args, **kwargs)
            return _stack(data, before["tensor"]).detach().to(**kwargs)

        return make

    for name, made in before.items():
        setattr(torch, name, stacked(made))
    try:
        yield
    finally:
        for name, made in before.items():
            setattr(torch, name, made)


def _stack(data: Any, number: Any) -> torch.Tensor:
    """A nesting of numbers and tensors of no dimensions as one tensor. number: makes a tensor of a number."""
    if isinstance(data, (list, tuple)):
        return torch.stack([_stack(one, number) for one in data])
    return data if isinstance(data, torch.Tensor) else number(data)


@contextmanager
def _literals_known() -> Iterator[None]:
    """Small tensors that a forward makes of constants have their values while it is traced, and what is computed of
    these alone has: a count of elements, the sizes of a grid. Torch keeps those of one element, twice: its second
    place misses writes through a view.
    """
    before = fake_tensor.CONSTANT_NUMEL_LIMIT, proxy_tensor.CONSTANT_NUMEL_LIMIT
    fake_tensor.CONSTANT_NUMEL_LIMIT, proxy_tensor.CONSTANT_NUMEL_LIMIT = _SMALL, 0
    try:
        yield
    finally:
        fake_tensor.CONSTANT_NUMEL_LIMIT, proxy_tensor.CONSTANT_NUMEL_LIMIT = before


@contextmanager
def _places_known() -> Iterator[None]:
    """As `_literals_known`, of a `torch.arange` over constants, which is no constant in the graph: the dimensions that
    a loss is summed over.
    """
    whole = torch.arange

    def arange(*args: Any, **kwargs: Any) -> Any:
        out = whole(*args, **kwargs)
        if type(out) is fake_tensor.FakeTensor and all(type(one) is int for one in args) and out.numel() <= _SMALL:
            with proxy_tensor.disable_proxy_modes_tracing(), fake_tensor.unset_fake_temporarily():
                out.constant = whole(*args, dtype=out.dtype)
            out.fake_mode.fake_tensor_converter.add_constant_storage_mapping(out)
        return out

    torch.arange = arange
    try:
        yield
    finally:
        torch.arange = whole


_AS_DEFINED: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    _running_statistics_seen,
    _batches_counted,
    _losses_unchunked,
    both_sides,
    attention_dense,
    loops_written_out,
    _numbers_stacked,
    _literals_known,
    _places_known,
)
_SMALL = 64
"""Elements of a tensor of constants whose values are known while a forward is traced."""
_NARROW = torch.ops.aten.narrow.Tensor
_gathers = ContextVar("_gathers", default=False)


@contextmanager
def narrows_gathered() -> Iterator[None]:
    """A context in which torch.export's decompositions make a gather of a `narrow` that starts where a tensor says, at
    places counted from there: its size is known, but torch reads the start on the host.

    A gather is a copy, so no graph may write to such a narrow (`writes_to_narrows`).
    """
    if DispatchKey.CompositeImplicitAutograd not in _NARROW.py_kernels:
        _NARROW.py_impl(DispatchKey.CompositeImplicitAutograd)(_narrow)
    token = _gathers.set(True)
    try:
        yield
    finally:
        _gathers.reset(token)


def _narrow(input: Any, dim: int, start: Any, length: Any) -> Any:
    """at::narrow with a tensor as its start, in torch's tracers."""
    if start.ndim or start.is_floating_point() or start.is_complex() or start.dtype == torch.bool:
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    if not _gathers.get():
        return torch.narrow(input, dim, start.item(), length)
    first = start.to(input.device, torch.int64)
    first = torch.where(first < 0, first + input.shape[dim], first)
    return torch.index_select(input, dim, first + torch.arange(length, device=input.device))


def writes_to_narrows(graph: torch.fx.Graph) -> bool:
    """Whether a graph that is not made functional yet writes to a `narrow` that starts where a tensor says, or to a
    view of one."""
    held: set[Any] = set()
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.target is _NARROW or (schema is None and held.intersection(node.all_input_nodes)):
            held.add(node)  # without a schema: one of several results
        for place, argument in enumerate(schema.arguments if schema is not None else ()):
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is None or held.isdisjoint(tree_leaves(given)):
                continue
            if argument.alias_info.is_write:
                return True
            held.add(node)
    return False
