"""Backward passes: graphs below autograd, the split into forward and backward, programs verified against autograd."""

from __future__ import annotations

import ast
import copy
from typing import Any

import pytest
import torch

from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.engine import author
from hipwright.engine.training import gradient_task, inlined, program
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.records import Program, TensorSpec
from hipwright.task.host.load import TaskModule
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.cpu import build as cpu
from tests.engine.harness import CACHE, compare, leaves, run

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Gradients(torch.nn.Module):
    """Outputs and gradients of a module, as a task that asks autograd for them."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, grad: torch.Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.inner(x)
            found = torch.autograd.grad(y, [x, *self.inner.parameters()], grad)
        return y.detach(), *found


class Chain(torch.nn.Module):
    """Broadcasts whose gradients are reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(3, 1))
        self.shift = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(x * self.scale + self.shift)
        return torch.tanh(y.mul_(2.0)) * torch.sigmoid(x)


def modules() -> dict[str, tuple[torch.nn.Module, tuple[int, ...]]]:
    return {
        "layer_norm": (torch.nn.LayerNorm(24), (10, 24)),
        "rms_norm": (torch.nn.RMSNorm(24), (10, 24)),
        "group_norm": (torch.nn.GroupNorm(2, 6), (4, 6, 5, 3)),
        "batch_norm": (torch.nn.BatchNorm2d(5), (4, 5, 3, 3)),
        "batch_norm_eval": (torch.nn.BatchNorm2d(5).eval(), (4, 5, 3, 3)),
        "softmax": (torch.nn.Softmax(dim=-1), (7, 33)),
        "log_softmax": (torch.nn.LogSoftmax(dim=1), (7, 33)),
        "gelu": (torch.nn.GELU(), (7, 9)),
        "chain": (Chain(), (5, 3, 8)),
        "linear": (torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 4)), (5, 6)),
    }


LIBRARY = {"aten.mm.default", "aten.addmm.default"}


def check(model: torch.nn.Module, inputs: list[Any], other: list[Any] | None = None) -> Graph:
    """The engine's program for a module that computes gradients, against the same in float64."""
    graph = Graph.from_json(Graph.from_dict(capture(model, inputs)).to_json())
    made = author(graph)
    program = made.program
    for case in [inputs, *([other] if other else [])]:
        wide = [i.double() if i.is_floating_point() else i for i in case]
        exact, native = copy.deepcopy(model).double()(*wide), copy.deepcopy(model)(*case)
        got, _ = run(program, copy.deepcopy(model), case)
        try:
            compare(got, exact, native)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{program.text}") from problem
    kept = {entry["op"] for entry in made.explanation["library"].values()}
    assert kept <= LIBRARY, kept
    return graph


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("name", list(modules()))
def test_gradients_are_written_in_hip(name: str) -> None:
    model, shape = modules()[name]
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    x = torch.randn(shape)
    larger = torch.randn(shape[0] + 3, *shape[1:])
    graph = check(Gradients(model), [x, torch.randn_like(model(x))], [larger, torch.randn_like(model(larger))])
    assert graph.dynamic


# ---------------------------------------------------------------- programs with forward and backward

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.fc = torch.nn.Linear(width, 5)

    def forward(self, x, target):
        y = self.fc(torch.nn.functional.gelu(self.norm(x)))
        return torch.nn.functional.cross_entropy(y, target), torch.softmax(y, dim=-1)

def get_inputs():
    return [torch.randn(6, 8), torch.randint(0, 5, (6,))]

def get_init_inputs():
    return [8]
"""


def spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stride=tensor.stride())


def trained(source: str) -> tuple[TaskModule, Program, list[str]]:
    """(the gradient task, the program with forward and backward, the gradients' names)."""
    file = TaskModule("task.py", source)
    inputs = file.inputs(0)
    outputs = [spec(t) for t in leaves(file.model(0)(*inputs))]
    text, tangents = gradient_task(source, [spec(i) for i in inputs], outputs)
    made = TaskModule("gradients.py", text)
    graph = Graph.from_dict(capture(made.model(0), made.inputs(0)))
    return made, program(graph, tangents), tangents


def test_a_task_gets_a_program_with_a_backward() -> None:
    made, both, tangents = trained(TASK)
    whole = inlined(both, tangents)
    model = made.model(1)
    for seed in (0, 1):
        inputs = made.inputs(seed)
        got, _ = run(whole, copy.deepcopy(model), inputs)
        wide = [i.double() if i.is_floating_point() else i for i in inputs]
        compare(got, copy.deepcopy(model).double()(*wide), copy.deepcopy(model)(*inputs))
    assert list(got) == ["out", "x", "self.norm.weight", "self.norm.bias", "self.fc.weight", "self.fc.bias"]


def test_backward_runs_on_what_forward_saved() -> None:
    """The two functions themselves, as a shipped operator calls them; inputs are saved as they are."""
    made, both, _ = trained(TASK)
    parsed = parse(both.text)
    model, inputs = made.model(1), made.inputs(1)
    build = cpu.build(parsed.hip, parsed.defines({}), wave=64, checked=True, cache=CACHE, unsafe=True)
    assert build.ok, build.log
    launcher = CpuLauncher(str(CACHE.path(build.blob)), parsed.signatures, wave=64)
    plan = lower(parsed, {}, state_table(model), launcher)
    with torch.no_grad():
        outputs, saved = plan.forward_saved(*inputs[:2])
        grads = plan.backward(tuple(inputs[2:]), saved)
    assert any(item is inputs[0] for item in saved)
    want = model(*inputs)
    for name, value in grads.items():
        torch.testing.assert_close(value, want[name])
    torch.testing.assert_close(outputs, want["out"])


def test_what_is_saved_is_little() -> None:
    """Of a chain of pointwise operators only the input is kept, not what lies between."""
    source = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sigmoid(x) * torch.exp(x * 0.5) + 1).sum(-1)

def get_inputs():
    return [torch.randn(6, 8)]
"""
    _, both, _ = trained(source)
    forward = parse(both.text).functions["forward"]
    assert ast.unparse(forward.body[-1]).endswith("(x,))")


class Scatter(torch.nn.Module):
    """One element of each row that the index has."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, value: torch.Tensor) -> Any:
        return x.scatter(1, index[:, None], 2.5), (x * 2).scatter(0, index[None, :3], value[None])


def test_one_element_a_row_is_a_comparison() -> None:
    for rows in (5, 3):  # as many rows as the index has, and more
        check(Scatter(), [torch.randn(5, 4), torch.randint(0, 4, (rows,)), torch.randn(3)])
