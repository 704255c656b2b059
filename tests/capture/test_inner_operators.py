"""Operators of torch's own passes, without a public name, are captured as those that they consist of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import author
from hipwright.errors import TaskError
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, reference, run

aten = torch.ops.aten
MASK, ROWS = torch.tensor([True, False, True]), torch.tensor([2, 7, 0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: aten._chunk_cat([x, x * 2], 0, 2),
        lambda x: aten._unsafe_index(x, [ROWS.clamp(max=2)]),
        lambda x: aten._safe_softmax(x, -1),
        lambda x: aten._unsafe_masked_index(x, MASK, [ROWS], 0.0),
        lambda x: aten._unsafe_masked_index_put_accumulate(x, MASK, [ROWS], x[:3]),
    ],
)
def test_a_graph_has_public_operators(function: Callable[[torch.Tensor], Any]) -> None:
    graph = captured(Op(function), [torch.randn(4, 3)])
    assert graph.nodes and not [
        node.op for node in graph.nodes if node.op.startswith(("aten._chunk", "aten._safe", "aten._unsafe_"))
    ]


class KeptStatistics(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.InstanceNorm1d(3, track_running_stats=True)

    def forward(self, x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        torch.nn.functional.instance_norm(x, mean, var, use_input_stats=True)
        return self.norm(x), mean * 2, torch.nn.functional.instance_norm(x)


def test_an_instance_norm_says_what_it_writes() -> None:
    """Its schema does not, and the first call's result is not even read."""
    graph = captured(KeptStatistics(), [torch.randn(2, 3, 7), torch.randn(3), torch.rand(3)])
    assert {m.access for m in graph.mutations} == {
        "mean",
        "var",
        "self.norm.running_mean",
        "self.norm.running_var",
    }
    assert sum("instance_norm" in node.op for node in graph.nodes) == 1, "the one without statistics"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_batch_norm_without_a_momentum_weighs_by_its_count(dtype: torch.dtype) -> None:
    before = torch.nn.BatchNorm1d.forward
    model = torch.nn.BatchNorm1d(5, momentum=None, dtype=dtype)
    x = torch.randn(4, 5, dtype=dtype) + 1
    graph = captured(model, [x])
    assert torch.nn.BatchNorm1d.forward is before
    for _ in range(3):  # weights of 1, 1/2 and 1/3
        expected, _, exact = reference(model, [x])
        found, state = run(author(graph, {}).program, model, [x])
        native = model(x)
        compare(found, expected, native)
        buffers = dict(model.named_buffers())
        compare([state[name] for name in buffers], list(exact.values()), list(buffers.values()))
        x = x * 2


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyLoss"), reason="torch has it from 2.13 on")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_cross_entropy_in_chunks_is_a_layer_and_a_loss(reduction: str) -> None:
    options = torch.nn.LinearCrossEntropyOptions()

    def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.nn.functional.linear_cross_entropy(
            x, weight, target, reduction=reduction, options=options
        )
        return found

    before = torch.nn.functional.linear_cross_entropy
    inputs = [torch.randn(9, 5), torch.randn(4, 5), torch.arange(9) % 4]
    graph = captured(Op(loss), inputs)
    names = {node.op.split(".")[0] + "." + node.op.split(".")[1] for node in graph.nodes}
    assert "aten.linear" in names and all(name.startswith("aten.") for name in names), names
    assert torch.nn.functional.linear_cross_entropy is before


def test_a_narrow_that_starts_where_a_tensor_says_is_a_gather() -> None:
    """Its size is known; torch reads the start on the host, and a start below zero counts from the end."""
    model = Op(lambda x, start, small: (x.narrow(1, start, 2) * 2, torch.narrow(x, 0, small, x.shape[0] - 2)))
    x = torch.randn(6, 5)
    graph = captured(model, [x, torch.tensor(0), torch.tensor(0, dtype=torch.uint8)])
    assert graph.symbols and not any("narrow" in node.op for node in graph.nodes)
    program = author(graph, {}).program
    for start, small in [(0, 0), (3, 2), (-2, 1), (-5, 1)]:
        inputs = [x, torch.tensor(start), torch.tensor(small, dtype=torch.uint8)]
        expected, _, _ = reference(model, inputs)
        compare(run(program, model, inputs)[0], expected, model(*inputs))


@pytest.mark.parametrize(
    "write",
    [
        lambda rows: rows.zero_(),
        lambda rows: rows[0].mul_(2),
        lambda rows: rows.unbind(0)[1].fill_(1),
        lambda rows: torch._foreach_mul_([rows], 2.0),
    ],
)
def test_a_write_to_a_narrow_that_starts_where_a_tensor_says_is_refused(write: Callable[[torch.Tensor], Any]) -> None:
    """A gather is a copy: the graph would lose the write to the tensor that is narrowed."""

    def forward(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        held = x * 1
        write(held.narrow(0, start, 2))
        return held

    with pytest.raises(TaskError, match="a write to a narrow"):
        captured(Op(forward), [torch.randn(4, 3), torch.tensor(1)])
