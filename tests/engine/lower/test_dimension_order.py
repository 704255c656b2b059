"""Operators that put dimensions in another order, as calls of a graph: decomposition would make them permutations."""

from __future__ import annotations

import pytest
import torch

from hipwright.capture.graph import Graph, Input, Meta, Node
from hipwright.engine import write
from tests.engine.harness import compare, run

SHAPE = (2, 3, 5, 7)


def meta(x: torch.Tensor) -> Meta:
    return Meta(dtype="float32", shape=tuple(x.shape), stride=x.contiguous().stride())


def with_operator(op: str, args: tuple[object, ...], out: torch.Tensor) -> Graph:
    """The graph of twice the result of one operator."""
    given = Input(name="x", kind="input", access="x", meta=meta(torch.empty(SHAPE)))
    moved = Node(name="moved", op=op, args=({"node": "x"}, *args), outs=(meta(out),))
    twice = Node(name="twice", op="aten.mul.Tensor", args=({"node": "moved"}, 2), outs=(meta(out),))
    return Graph(parameters=("x",), inputs=(given,), nodes=(moved, twice), output={"node": "twice"})


@pytest.mark.parametrize(
    "op, args",
    [
        ("aten.movedim.int", (0, 3)),
        ("aten.movedim.int", (-1, 1)),
        ("aten.movedim.intlist", ([0, 3], [2, 0])),
        ("aten.transpose.int", (0, 3)),
        ("aten.mT.default", ()),
        ("aten.permute.default", ([2, 0, 3, 1],)),
    ],
)
def test_the_order_of_dimensions(op: str, args: tuple[object, ...]) -> None:
    kind, overload = op.split(".")[1:]
    function = getattr(getattr(torch.ops.aten, kind), overload)
    x = torch.randn(SHAPE)
    expected = function(x, *args) * 2
    got, _ = run(write(with_operator(op, args, expected)), torch.nn.Module(), [x])
    compare([got], [expected.double()], [expected])
