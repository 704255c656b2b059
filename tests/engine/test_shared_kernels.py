"""Kernels that differ in names only are written once, and launched from every place."""

from __future__ import annotations

import re

import torch

from hipwright.engine import explain, write
from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.emit.shared import launched, shared_names
from hipwright.engine.emit.tree import Statement
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


def kernel(name: str, *lines: str) -> KernelFunction:
    parameters = [KernelParameter("float*", "out"), KernelParameter("const float*", f"{name}_in")]
    return KernelFunction(name, f"{name}: title", "BLOCK", parameters, [Statement(line) for line in lines])


def test_names_of_locals_make_no_other_kernel() -> None:
    first = kernel("a", "const float add_1 = a_in[0];", "float best_1 = sqrtf(add_1);", "out[0] = best_1 + add_1;")
    same = kernel("b", "const float add_9 = b_in[0];", "float best = sqrtf(add_9);", "out[0] = best + add_9;")
    swapped = kernel("c", "const float add_9 = c_in[0];", "float best = sqrtf(add_9);", "out[0] = add_9 + best;")
    assert shared_names([first, same, swapped]) == {"b": "a"}


def test_what_is_no_local_keeps_its_name() -> None:
    members = [kernel(f"k{n}", f"const int {n} = 3;", f"out[{n}] = threadIdx.{n};") for n in "xy"]
    calls = [kernel(f"k{n}", f"const float {n} = 1.0f;", f"out[0] = {n}({n});") for n in ("sinf", "cosf")]
    knobs = [kernel(f"k{n}", f"const float t = k{n}_in[{n}];", "out[0] = t;") for n in ("ROWS", "COLS")]
    assert shared_names([*members, *calls, *knobs]) == {}
