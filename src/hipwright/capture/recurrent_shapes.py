"""Shapes of a recurrent operator's results, without its steps. Runs in the task host; imports torch.

On tensors without data torch walks through a recurrent operator step by step (torch/_decomp/decompositions_for_rnn.py),
which fixes the number of steps. The operator itself holds for any number, and its results' shapes are plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd, torch._C.DispatchKey.Meta)


@contextmanager
def steps_unwalked() -> Iterator[None]:
    """Within the block a recurrent operator on tensors without data returns empty results for any number of steps."""
    operators: dict[Any, Any] = {getattr(torch.ops.aten, name).input: shapes for name, shapes in _SHAPES.items()}
    kept = {op: (dict(op.py_kernels), decomposition_table[op]) for op in operators}
    try:
        for op, shapes in operators.items():
            _put(op, {**op.py_kernels, **dict.fromkeys(_KEYS, shapes)}, shapes)
        yield
    finally:
        for op, (kernels, decomposition) in kept.items():
            _put(op, kernels, decomposition)


def _put(op: Any, kernels: dict[Any, Any], decomposition: Any) -> None:
    """What runs for an operator on tensors without data: tracing takes one or the other (torch 2.13)."""
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
    decomposition_table[op] = decomposition


def _one(
    x: torch.Tensor,
    state: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """(y, the final states): y [steps, batch, directions * hidden], or with the first two the other way round."""
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    width = state.shape[-1] * (2 if bidirectional else 1)
    y = x.new_empty((steps, batch, width))
    return y.transpose(0, 1) if batch_first else y, torch.empty_like(state, memory_format=torch.contiguous_format)


def _two(x: torch.Tensor, states: Sequence[torch.Tensor], *rest: Any) -> tuple[torch.Tensor, ...]:
    """As `_one`, and the final cell states of an LSTM."""
    return *_one(x, states[0], *rest), torch.empty_like(states[1], memory_format=torch.contiguous_format)


_SHAPES: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "lstm": _two,
    "gru": _one,
    "rnn_tanh": _one,
    "rnn_relu": _one,
}
