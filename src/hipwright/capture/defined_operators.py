"""Functions of torch whose operators say too little in a captured graph, for capture. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def operators_as_defined() -> Iterator[None]:
    """A context in which functions of torch are the operators by which torch defines them, where a captured graph would
    not say what they do: `torch.instance_norm`, `torch.nn.functional.linear_cross_entropy`, and batch norms without a
    momentum.
    """
    with _running_statistics_seen(), _batches_counted(), _losses_unchunked():
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
