"""torch's loops that take functions: scan, map, while_loop and associative_scan become the operators of their steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from hipwright.engine import author
from hipwright.errors import TaskError
from hipwright.higher_order import loops_written_out
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, reference, run


def steps(x: Any) -> Any:
    def step(kept: Any, row: Any) -> Any:
        kept = torch.tanh(kept * 0.5 + row)
        return kept, kept * 2

    last, rows = scan(step, torch.zeros_like(x[:, 0]), x, dim=1)
    return last + rows.sum(1)


def backwards(x: Any) -> Any:
    return scan(lambda kept, row: (kept + row, kept * row), torch.zeros_like(x[0]), x, reverse=True)[1]


def rows(x: Any) -> Any:
    return map_rows(lambda row, scale: (row * scale).softmax(-1), x, x.mean())


def with_a_branch(x: Any) -> Any:
    return map_rows(lambda row: torch.where(row.sum() > 0, row, -row).cumsum(0), x)


def counted(x: Any) -> Any:
    return while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, y.sin() + y), (torch.tensor(0), x))[1]


def running(x: Any) -> Any:
    return associative_scan(lambda a, b: a * 0.5 + b, x, dim=1, combine_mode="generic")


@pytest.mark.parametrize("function", [steps, backwards, rows, with_a_branch, counted, running])
def test_a_loop_is_a_program(function: Callable[..., Any]) -> None:
    model, x = Op(function), torch.randn(4, 6, 5)
    before = type(torch.ops.higher_order.scan).__call__
    graph = captured(model, [x])
    assert type(torch.ops.higher_order.scan).__call__ is before
    assert all(node.op.startswith(("aten.", "getitem")) for node in graph.nodes)
    with loops_written_out():
        expected, native, _ = reference(model, [x])
    torch.testing.assert_close(native, model(x), rtol=1e-5, atol=1e-5, msg="torch's own, compiled")
    compare(run(author(graph, {}).program, model, [x])[0], expected, native)


def test_a_map_holds_for_all_counts_of_rows() -> None:
    assert captured(Op(rows), [torch.randn(4, 6, 5)]).symbols


def test_a_loop_that_values_end_is_refused_by_its_statement() -> None:
    model = Op(lambda x: while_loop(lambda y: y.sum() < 9.0, lambda y: (y + 1,), (x,))[0])
    with pytest.raises(TaskError, match=r"what runs next depends on the values of a tensor"):
        captured(model, [torch.rand(4)])


def test_a_scan_of_values_one_by_one_needs_no_gpu() -> None:
    x, module = torch.randn(2, 5), sys.modules["torch._higher_order_ops.associative_scan"]
    with loops_written_out():
        found = module.associative_scan(torch.add, x, 1, combine_mode="pointwise")
    torch.testing.assert_close(found, x.cumsum(1))
