"""Einsum equations whose operand is a vector: they are no attention over values."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine.rewrite.contractions import value_product
from tests.engine.harness import Op, captured, check


@pytest.mark.parametrize("equation", ["i,id->d", "i,d->id", "i,i->i"])
def test_weights_of_one_dimension(equation: str) -> None:
    """The positions of XLNet, times their frequencies."""
    second = torch.randn(9, 5) if equation == "i,id->d" else torch.randn(9 if equation == "i,i->i" else 5)
    given, model = [torch.randn(9), second], Op(lambda x, y: torch.einsum(equation, x.clamp(-3.0, 3.0), y))
    (node,) = (n for n in captured(model, given).nodes if n.op == "aten.einsum.default")
    shapes = [tuple(one.shape) for one in (given[0], second)]
    names = [operand["node"] for operand in node.args[1]]
    assert value_product(node, names[0], lambda name: shapes[names.index(name)]) is None
    check(model, given, library=["aten.einsum.default"])
