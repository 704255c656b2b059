"""Kernels that differ in names only are written once, and launched from every place."""

from __future__ import annotations

import re

import torch

from hipwright.engine import explain, write
from hipwright.engine.emit.shared import launched
from tests.engine.harness import captured, compare, reference, run


class Stacked(torch.nn.Module):
    """Layers of one shape, one of another width, and one with another epsilon."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(24) for _ in range(layers))
        self.maps = torch.nn.ModuleList(torch.nn.Linear(24, 24) for _ in range(layers))
        self.other = torch.nn.LayerNorm(24, eps=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, linear in zip(self.norms, self.maps, strict=True):
            x = x + torch.relu(linear(norm(x)))
        return self.other(x)


def entries(text: str) -> int:
    return len(re.findall(r'^extern "C" __global__', text, re.MULTILINE))


def test_the_number_of_layers_adds_no_kernels() -> None:
    few, many = (write(captured(Stacked(layers), [torch.randn(5, 24)])).text for layers in (3, 12))
    assert entries(few) == entries(many) > 1
    assert len(re.findall(r"^    \w+\[.*\]\(", many, re.MULTILINE)) > 3 * entries(many)


def test_a_shared_kernel_is_right_for_each_layer_and_named_with_all_its_operators() -> None:
    torch.manual_seed(0)
    model, x = Stacked(4), torch.randn(5, 24)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    graph = captured(model, [x])
    program = write(graph)
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)
    kernels = explain(graph)["kernels"]
    assert len({one["name"] for one in kernels}) == len(kernels) == entries(program.text)
    norms = [one for one in kernels if any("layer_norm" in node for node in one["nodes"])]
    assert len(norms) >= 2 and max(len(one["nodes"]) for one in norms) >= 3, "one epsilon is another kernel"


def test_only_launches_are_renamed() -> None:
    plan = "def forward(self, relu_2):\n    relu_2[4, 64](relu_2, x)\n    relu_20[4, 64](relu_2)\n    return relu_2"
    assert launched(plan, {"relu_2": "relu"}) == plan.replace("    relu_2[4", "    relu[4")
    assert launched(plan, {}) == plan
