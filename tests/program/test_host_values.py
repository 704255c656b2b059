"""Which names of a plan are proved to be no tensor (program/lower/host_values.py); undefined conditions on them."""

from __future__ import annotations

import ast

import pytest
import torch

from hipwright.errors import GuardFailed
from hipwright.program.lower.host_values import host_value_names

from .support import plan_of


def proved(body: str, head: str = "self, x") -> set[str]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    function = ast.parse(f"def forward({head}):\n{lines}").body[0]
    assert isinstance(function, ast.FunctionDef)
    return set(host_value_names(function, {"BLOCK"})) - {"BLOCK"}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("n = x.shape[0]", {"n"}),
        ("a, b = x.shape", {"a", "b"}),
        ("n = x.numel()\nm = cdiv(n, BLOCK)\nk = min(m, 3) if n > 2 else -m", {"n", "m", "k"}),
        ("for i in range(3):\n    j = i * 2", {"i", "j"}),
        ("big = x.dtype == torch.float32 and x.ndim > 1", set()),  # torch.float32 is not followed
        ("t = x * 2\nn = t", set()),
        ("pair = (x, 3)\na, b = pair", set()),
        ("k = tuple((x, 1))\nfor w in k:\n    q = w", set()),
        ("m = max(x, 1)", set()),
        ("n = 0\nn = n + x", set()),  # one binding that may be a tensor is enough
        ("n = 0\nn += x", set()),
        ("n = 1\nfor n in (x, x):\n    pass", set()),
        ("n = [n for n in (x,)]", set()),
    ],
)
def test_what_is_proved(body: str, names: set[str]) -> None:
    assert proved(body) == names


def test_a_parameter_hides_a_knob() -> None:
    assert proved("n = BLOCK", head="self, BLOCK") == set()


@pytest.mark.parametrize("condition", ["6 % (n - 2) == 0", "6 // (n - 2) > 1", "6 / (n - 2) > 1"])
def test_a_guard_that_divides_by_zero_refuses_its_inputs(condition: str) -> None:
    """It says nothing of them: the caller's own form runs instead."""
    lowered, _ = plan_of(f"def forward(self, x):\n    n = x.shape[0]\n    assert {condition}\n    return x * 1\n")
    assert lowered.forward(torch.zeros(4)).shape == (4,)
    with pytest.raises(GuardFailed):
        lowered.forward(torch.zeros(2))
