"""What the engine cannot write stays a library call: its own faults do not leave a task without a program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from hipwright.engine import author, write
from hipwright.engine.authoring import Authored
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, OTHER_SIZES, PLAIN_PLAN
from hipwright.engine.partly import author_partly
from hipwright.errors import GuardFailed
from tests.engine.capturing import captured
from tests.engine.harness import compare, reference, run


class Chain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(24), torch.nn.Linear(24, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.relu(self.linear(self.norm(x))) * 2.0, -1)


MODEL, INPUTS = Chain(), [torch.randn(9, 24)]


def right(program: Any) -> None:
    got, _ = run(program, MODEL, INPUTS)
    expected, native, _ = reference(MODEL, INPUTS)
    compare(got, expected, native)


@pytest.mark.parametrize("given_up", ["layer_norm", "relu,softmax", "linear", EVERY_OPERATOR, PLAIN_PLAN])
def test_what_is_given_up_is_the_librarys(given_up: str) -> None:
    made = author(captured(MODEL, INPUTS), {GIVEN_UP: given_up})
    names = set(made.explanation["library"])
    assert names >= (set(given_up.split(",")) if "," in given_up or "_" in given_up else set())
    assert given_up not in (EVERY_OPERATOR, PLAIN_PLAN) or made.explanation["in_hip"] == 0
    right(made.program)


def test_other_sizes_are_refused_where_they_are_given_up() -> None:
    program = author(captured(MODEL, INPUTS), {GIVEN_UP: OTHER_SIZES}).program
    right(program)
    with pytest.raises(GuardFailed):
        run(program, MODEL, [torch.cat([one, one]) for one in INPUTS])


class Shifted(torch.nn.Module):
    """A constant of the graph is what a kernel or a library call reads; JSON has no infinity."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + torch.tensor([1.0, 2.0, -math.inf, 4.0]), -1)


@pytest.mark.parametrize("given_up", ["", "add", EVERY_OPERATOR, PLAIN_PLAN])
def test_constants_of_the_graph_are_read(given_up: str) -> None:
    model, x = Shifted(), torch.randn(3, 4)
    got, _ = run(write(captured(model, [x]), {GIVEN_UP: given_up}), model, [x])
    torch.testing.assert_close(got, model(x))


@pytest.mark.parametrize("guilty", [(), ("relu",), ("layer_norm", "softmax"), ("*",)])
def test_operators_at_which_the_engine_fails_are_found(guilty: tuple[str, ...]) -> None:
    graph = captured(MODEL, INPUTS)

    def faulty(graph: Any, choices: Mapping[str, Any]) -> Authored:
        given_up = str(choices.get(GIVEN_UP, ""))
        everything = {EVERY_OPERATOR: set(guilty) - {"*"}, PLAIN_PLAN: set(guilty)}
        if set(guilty) - everything.get(given_up, set(given_up.split(","))):
            raise KeyError("a fault of the engine's own")
        return author(graph, choices)

    made = author_partly(graph, faulty)
    expected = PLAIN_PLAN if guilty == ("*",) else ",".join(guilty)
    assert sorted(made.given_up.split(",")) == sorted(expected.split(","))
    assert bool(made.why) == bool(guilty)
    right(made.authored.program)


class GivenHalves(torch.nn.Module):
    """Two concatenations of different widths: kernels whose columns have one name and two ranges."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in (1, 2):
            x = x.reshape(x.shape[0], -1, 2 * step)
            a, b = x[..., :step], x[..., step:]
            x = torch.cat([a + b, a - b], -1)
        return x.reshape(x.shape[0], -1)


def test_conditions_on_columns_of_two_ranges_are_kept_apart() -> None:
    model, inputs = GivenHalves(), [torch.randn(5, 8)]
    got, _ = run(write(captured(model, inputs)), model, inputs)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)
