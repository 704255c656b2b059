"""Operators that torch traces only where their shapes are given (`capture.fake_operators`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import write
from hipwright.program.lower.trace import OpTrace
from tests.engine.harness import Op, captured, leaves, run


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("tensors", [True, False])
def test_a_loss_that_torch_does_not_trace_stays_a_library_call(tensors: bool, reduction: str) -> None:
    """Its result has a fixed shape; only what its gradient reads depends on values."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        sizes: Any = [(20,) * 4, (5,) * 4]
        if tensors:
            sizes = [target.new_full((4,), size[0]) for size in sizes]
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), target, *sizes, reduction=reduction) * 2

    inputs = [torch.randn(20, 4, 6), torch.randint(1, 6, (4, 5))]
    graph = captured(Op(loss), inputs)
    assert any(node.op.startswith("aten.ctc_loss.") for node in graph.nodes)
    program = write(graph)
    found = leaves(run(program, Op(loss), inputs)[0])[0]
    assert found.shape == ((4,) if reduction == "none" else ()) and torch.allclose(found, loss(*inputs))


def test_an_operator_without_shapes_of_its_own_is_traced_on_zeros() -> None:
    def counts(elements: int) -> torch.Tensor:
        return torch.histogram(torch.empty(elements, device="meta"), bins=7)[0]

    with OpTrace() as seen:
        found = counts(20)
    assert found.is_meta and found.shape == (7,) and seen.ops[-1]["out"][0]["shape"] == [7]
    with pytest.raises(NotImplementedError), OpTrace():
        counts(1 << 27)  # zeros would fill the memory


@pytest.mark.parametrize("labels", [(4, 5), (20,)])
def test_shapes_that_follow_from_the_operands_need_no_values(labels: tuple[int, ...]) -> None:
    """Labels one after the other are as many as their lengths say, which no zeros do."""
    given = torch.empty(20, 4, 6, device="meta")
    target, lengths = (torch.empty(shape, dtype=torch.int64, device="meta") for shape in (labels, (4,)))
    with OpTrace() as seen:
        found = torch._ctc_loss(given, target, lengths, lengths)[0]
    assert found.is_meta and found.shape == (4,) and seen.ops[-1]["out"][0]["shape"] == [4]
