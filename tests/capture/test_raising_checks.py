"""Checks that only raise are no branches: a module that makes them has a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.capture.forward import capture
from hipwright.capture.raising_checks import _goes_on
from hipwright.errors import TaskError
from hipwright.task.host.load import TaskModule

FILE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, index):
        {check}
        return torch.relu(x)[index] * 2
def get_inputs():
    return [torch.rand(6, 4), torch.randint(0, 6, (5,))]
"""
RAISING = {
    "if": "if (x < 0).any():\n            raise ValueError('negative')",
    "not": "if not (x >= 0).all():\n            raise ValueError('negative')",
    "or": "if index.max() >= x.shape[0] or index.min() < 0:\n            raise IndexError(index)",
    "with a message": "if torch.isnan(x).any():\n            what = 'nan'\n            raise ValueError(what)",
    "assert": "assert torch.isfinite(x).all(), 'finite'",
    "assert not": "assert not torch.isnan(x).any()",
    "assert both": "assert (x >= 0).all() and (x <= 1).all()",
    "over lines": "assert (\n            (x >= 0).all()\n        )",
    "item": "if (x < 0).any().item():\n            raise ValueError('negative')",
}
BRANCHES = {
    "another result": "if (x < 0).any():\n            return x[index]",
    "raises otherwise": "if (x >= 0).all():\n            x = x + 1\n        else:\n            raise ValueError",
    "mixed": "if (x < 0).any() and not (x > 2).any():\n            raise ValueError('negative')",
    "of a number": "if x.max().item() > 1.5:\n            raise ValueError('large')",
    "caught": "try:\n            assert (x > 0).all()\n        except AssertionError:\n            x = -x",
    "outside a check": "x = x * bool((x > 0).any())",
}


def module(tmp_path: Path, check: str) -> tuple[torch.nn.Module, list[Any]]:
    path = tmp_path / "task.py"
    path.write_text(FILE.format(check=check))
    task = TaskModule(path.name, path.read_text())
    return task.model(0), task.inputs(0, None)


@pytest.mark.parametrize("name", RAISING)
def test_a_check_that_raises_is_no_branch(name: str, tmp_path: Path) -> None:
    model, inputs = module(tmp_path, RAISING[name])
    usual = torch.Tensor.__bool__, torch.Tensor.item
    graph = capture(model, inputs)
    assert {"aten.relu.default", "aten.index.Tensor"} <= {node["op"] for node in graph["nodes"]} and graph["dynamic"]
    assert (torch.Tensor.__bool__, torch.Tensor.item) == usual
    bad = [torch.full((6, 4), float("nan")) if name in ("with a message", "assert not") else -inputs[0], inputs[1] + 9]
    with pytest.raises((ValueError, IndexError, AssertionError)):  # as ever, outside a capture
        model(*bad)


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_values_is_refused_with_its_statement(name: str, tmp_path: Path) -> None:
    model, inputs = module(tmp_path, BRANCHES[name])
    with pytest.raises(TaskError, match=r"line [56]: .*depends on the values of a tensor"):
        capture(model, inputs)


def test_torchs_own_checks_are_among_them() -> None:
    class Loss(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gaussian_nll_loss(x, y, var)

    graph = capture(Loss(), [torch.randn(8, 4), torch.randn(8, 4), torch.rand(8, 4)])
    assert any(node["op"] == "aten.log.default" for node in graph["nodes"])


def test_checks_of_a_step_with_gradients_are_among_them() -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if (x < 0).any():
                raise ValueError("negative")
            with torch.enable_grad():
                loss = (x @ self.weight).square().sum()
            return torch.autograd.grad(loss, self.weight)[0]

    assert capture(Step(), [torch.rand(8, 4)])["nodes"]


def test_a_check_that_a_caller_catches_is_a_branch(tmp_path: Path) -> None:
    text = FILE.format(check="x = self.tried(x)").replace(
        "    def forward",
        "    def checked(self, x):\n        if (x < 0).any():\n            raise ValueError\n        return x\n"
        "    def tried(self, x):\n        try:\n            return self.checked(x)\n        except ValueError:\n"
        "            return -x\n    def forward",
    )
    task = TaskModule("caught.py", text)
    with pytest.raises(TaskError, match="depends on the values of a tensor"):
        capture(task.model(0), task.inputs(0, None))


def test_a_statement_without_source_is_no_check() -> None:
    assert _goes_on(eval("__import__('sys')._getframe()")) is None
