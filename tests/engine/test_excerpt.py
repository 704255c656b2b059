"""Operators of a graph as a task file of their own: it runs, and has the operators, shapes, strides and dtypes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from hipwright.capture.graph import references
from hipwright.engine.excerpt import LIMIT, NoExcerpt, task_text
from tests.engine.capturing import captured
from tests.engine.harness import Op


class Branches(torch.nn.Module):
    """Views, a lookup, a concatenation, running statistics and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(11, 16), torch.nn.BatchNorm1d(16)
        self.register_buffer("scale", torch.rand(16))

    def forward(self, i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.table(i).transpose(1, 2)
        joined = torch.cat([found, x.log()], 2)
        kept = self.norm(joined) * self.scale[:, None]
        return torch.softmax(kept.flatten(1), -1), kept.topk(2, -1)[0]


INPUTS = [torch.randint(0, 11, (3, 5)), torch.rand(3, 7, 16).transpose(1, 2) + 0.1]


def opened(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(text, "task.py", "exec"), found)
    return found


@pytest.mark.parametrize(
    "names",
    [
        ("embedding",),
        ("cat", "log"),
        ("_native_batch_norm_legit_functional",),
        ("softmax",),
        ("topk",),
        ("log", "topk"),
    ],
)
def test_an_excerpt_is_a_task_with_the_same_operators(names: tuple[str, ...]) -> None:
    graph = captured(Branches(), INPUTS)
    chosen = [node.name for node in graph.nodes if node.name in names]
    assert len(chosen) == len(names), [node.name for node in graph.nodes]
    text = task_text(graph, names)
    assert len(text) < LIMIT and "/" not in text
    task = opened(text)
    model, inputs = task["Model"](), task["get_inputs"]()
    again = captured(model, inputs)
    ops = {node.op for node in graph.nodes if node.name in names}
    assert ops <= {node.op for node in again.nodes}
    outputs = model(*inputs)
    assert all(o.isfinite().all() for o in (outputs if isinstance(outputs, tuple) else (outputs,)))


def test_an_excerpts_inputs_lie_as_the_graphs_values_do() -> None:
    graph = captured(Branches(), INPUTS)
    inputs = opened(task_text(graph, ["log"]))["get_inputs"]()
    assert [(tuple(t.shape), t.stride(), t.dtype) for t in inputs] == [((3, 16, 7), (112, 1, 16), torch.float32)]
    assert (inputs[0] > 0).all()


def test_indices_stay_in_the_table() -> None:
    graph = captured(Branches(), INPUTS)
    inputs = opened(task_text(graph, ["embedding"]))["get_inputs"]()
    assert inputs[0].dtype == torch.int64 and int(inputs[0].max()) < 11


def test_sizes_are_read_from_arguments_so_that_shapes_stay_free() -> None:
    class Folded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x).reshape(x.shape[0] * x.shape[1], -1).sum(-1)

    graph = captured(Folded(), [torch.randn(3, 5, 7)])
    assert graph.symbols
    task = opened(task_text(graph, ["relu", "sum_1"]))
    again = captured(task["Model"](), task["get_inputs"]())
    assert len(again.symbols) == len(graph.symbols)


def test_overlapping_inputs_are_written_by_their_strides() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.randn(12).as_strided((4, 5), (2, 1))
    text = task_text(captured(Doubled(), [x]), ["mul"])
    (made,) = opened(text)["get_inputs"]()
    assert made.shape == (4, 5) and made.stride() == (2, 1)


def test_the_file_has_no_weights_and_a_large_one_is_refused() -> None:
    class Long(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(600):
                x = torch.sin(x) + 1
            return x

    graph = captured(Long(), [torch.randn(4)])
    with pytest.raises(NoExcerpt, match="characters"):
        task_text(graph, [node.name for node in graph.nodes])
    with pytest.raises(NoExcerpt, match="none of the operators"):
        task_text(graph, ["another"])
    assert list(references(graph.output)) and ast.parse(task_text(graph, ["sin_3"]))


def test_constants_of_an_excerpt_may_be_infinite() -> None:
    x, told = torch.randn(3, 2), torch.tensor([-torch.inf, torch.nan])
    graph = captured(Op(lambda x: torch.where(x > 0, x, torch.tensor([-torch.inf, torch.nan]))), [x])
    found = opened(task_text(graph, ["where"]))["Model"]()(torch.zeros(3, 2, dtype=torch.bool), x)
    torch.testing.assert_close(found, told.expand(3, 2), equal_nan=True)
