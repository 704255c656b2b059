"""Modules that ask whether they are exported or compiled are captured as they run for a caller who does neither."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.compiler import is_compiling

from hipwright.capture.forward import capture, exported


class Asks(torch.nn.Module):
    """Another result where it is exported."""

    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() if self.ask() else x.cos()


class Holds(torch.nn.Module):
    """A module that asks, as a part of another."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Asks(torch.compiler.is_exporting)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * 2


class Looks(torch.nn.Module):
    """It looks at values where it is not exported, which no trace can follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and (x > 0).all():
            return x
        return x.relu()


def operators(graph: dict[str, Any]) -> set[str]:
    return {node["op"].removeprefix("aten.").partition(".")[0] for node in graph["nodes"]}


ASKED = [
    pytest.param(Asks(torch.compiler.is_exporting), id="is_exporting"),
    pytest.param(Asks(torch.compiler.is_compiling), id="is_compiling"),
    pytest.param(Asks(is_compiling), id="imported by name"),
    pytest.param(Asks(lambda: torch.compiler.is_exporting() or torch.compiler.is_compiling()), id="either"),
    pytest.param(Holds(), id="in a part"),
]


@pytest.mark.parametrize("model", ASKED)
def test_the_answer_is_no(model: torch.nn.Module) -> None:
    found = operators(capture(model, [torch.rand(3, 4)]))
    assert "cos" in found and "sin" not in found
    program, _ = exported(model, [torch.rand(3, 4)])
    assert torch.equal(program.module()(torch.ones(2, 4)), model(torch.ones(2, 4)))
    assert "forward" not in vars(model) and not torch.compiler.is_exporting() and not torch.compiler.is_compiling()


def test_what_cannot_be_traced_so_is_traced_as_for_an_export() -> None:
    assert operators(capture(Looks(), [torch.randn(3, 4)])) == {"relu"}


def test_a_forward_of_the_instance_stays() -> None:
    model = Asks(torch.compiler.is_exporting)
    model.__dict__["forward"] = own = model.forward
    capture(model, [torch.rand(3, 4)])
    assert vars(model)["forward"] is own
