"""Draws apart from the values: their order, and what they are given in place of values."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F

from hipwright.engine import write
from tests.engine.harness import Op, captured, run


def drawn(text: str) -> list[str]:
    """The random operators that the plan calls, in order."""
    return re.findall(r"aten\.(bernoulli|multinomial|rand_like|native_dropout)\.", text[text.index("def forward") :])


def crossed(x: torch.Tensor) -> Any:
    """A kernel could serve what comes before the first draw and after the second."""
    first = x * torch.bernoulli(torch.sigmoid(x))
    second = torch.rand_like(x)
    return torch.tanh(second) + 1, first + torch.tanh(x) * second, F.dropout(first.sum(-1), 0.5)


def test_draws_stay_in_the_modules_order() -> None:
    text = write(captured(Op(crossed), [torch.randn(4, 8)])).text
    assert drawn(text) == ["bernoulli", "rand_like", "native_dropout"]


def test_a_draw_that_waits_for_a_view_stays_before_the_next() -> None:
    """Views come last among the steps, so that the second draw could run while the first waits."""
    model = Op(lambda x: (torch.multinomial(x.t(), 2), torch.rand_like(x) * 2))
    text = write(captured(model, [torch.rand(4, 8)])).text
    assert "x_0.t()" in text
    assert drawn(text) == ["multinomial", "rand_like"]


def test_values_are_the_modules_for_one_seed() -> None:
    x = torch.randn(4, 8)
    program = write(captured(Op(crossed), [x]))
    torch.manual_seed(5)
    wanted = crossed(x)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    got, _ = run(program, Op(crossed), [x], draws=True)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_draw_reads_no_values() -> None:
    """What it takes of a tensor is its form: the values that a kernel computes are not stored for it."""
    graph = captured(Op(lambda x: torch.tanh(F.dropout(x.exp() + 1, 0.5))), [torch.randn(4, 8)])
    text = write(graph).text
    assert "_form = torch.empty(" in text and text.count("__global__") == 1
    whole = write(graph, {"draw:native_dropout": "library"}).text
    assert "_form" not in whole and whole.count("__global__") == 2
