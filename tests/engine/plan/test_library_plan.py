"""Programs of library calls alone: the fallback of a set is right wherever the capture holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import write
from hipwright.engine.plan.library import library_program
from hipwright.engine.rewrite.specialise import specialise
from hipwright.program.sets import SetMember, combine
from tests.engine.harness import captured, leaves, run


class Mixed(torch.nn.Module):
    """Constants, several outputs, state, an updated buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)])

    def forward(self, x: torch.Tensor, extra: list[torch.Tensor]) -> Any:
        y = self.parts[1](self.parts[0](x)) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        top, where = y.max(dim=1)
        return {"y": y.clamp(max=float("inf")), "rest": (top, where, extra[0].softmax(-1).half())}


@pytest.mark.parametrize("rows", [5, 9])
def test_the_library_plan_is_the_module(rows: int) -> None:
    torch.manual_seed(0)
    model = Mixed()
    program = library_program(captured(model, [torch.randn(5, 6), [torch.randn(3, 4)]]))
    inputs = [torch.randn(rows, 6), [torch.randn(rows, 7)]]
    got, buffers = run(program, model, inputs)
    want = model(*inputs)
    for g, w in zip(leaves(got), leaves(want), strict=True):
        torch.testing.assert_close(g, w.detach())
    torch.testing.assert_close(buffers["parts.1.running_mean"], model.parts[1].running_mean)


def test_a_set_of_one_shape_and_the_library() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.GELU())
    graph = captured(model, [torch.randn(4, 32)])
    own = SetMember(program=write(specialise(graph)))
    program = combine([own, SetMember(program=library_program(graph))])
    for rows in (4, 7):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(run(program, model, [x])[0], model(x).detach(), rtol=1e-5, atol=1e-5)


class Mixer(torch.nn.Module):
    """Attention whose heads go side by side into a product, as in every transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(48, 48, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.view(x.shape[0], x.shape[1], 3, 16).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return self.out(mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], 48))


@pytest.mark.parametrize("rows", [4, 7])
def test_heads_of_the_librarys_attention_are_not_copied(rows: int) -> None:
    torch.manual_seed(0)
    model = Mixer()
    graph = captured(model, [torch.randn(4, 40, 48)])
    (attention,) = [n.name for n in graph.nodes if "attention" in n.op]
    (product,) = [n.name for n in graph.nodes if "linear" in n.op]
    program = write(graph, {f"call:{attention}": "library", f"call:{product}": "library"})
    assert ".reshape(" in program.text and "__global__" not in program.text and ".contiguous()" not in program.text
    x = torch.randn(rows, 33, 48)
    torch.testing.assert_close(run(program, model, [x])[0], model(x).detach())
