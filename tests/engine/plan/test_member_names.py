"""Members whose names are no Python names: modules that were added under names of the model's author."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import write
from hipwright.engine.plan.spelling import self_path
from hipwright.program import parse
from hipwright.program.modelnew.export import export
from tests.engine.harness import captured, compare, reference, run

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.ones(5, 8)]
"""


class Named(nn.Module):
    """A parameter, and a module in a module, of such names."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = nn.Sequential()
        self.inner.add_module(name, nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.register_parameter(name, nn.Parameter(torch.randn(8)))
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * getattr(self, self.name)


@pytest.mark.parametrize("name", ["block1-0", "lambda", "a b", "1x1", "é-"])
def test_such_members_are_read(name: str) -> None:
    model, x = Named(name), torch.randn(5, 8)
    written = write(captured(model, [x]))
    got, _ = run(written, model, [x])
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)
    assert f"getattr(self.inner, {name!r})" in export(written, parse(written.text), TASK)


def test_paths_of_members() -> None:
    assert self_path("self.net.2.weight", {"net.2": 0}) == "self.net[0].weight"
    assert self_path("self.net.0.weight", {}) == "self.net[0].weight"
    assert self_path("self.block1.block1-0.f.weight", {}) == "self.block1['block1-0'].f.weight"
    assert self_path("x['mask.y']", {}) == "x['mask.y']"
