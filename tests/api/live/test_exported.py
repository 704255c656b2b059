"""Live modules and functions as tasks: the text computes what they compute, and says where it holds."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.module import OptimizedModule
from hipwright.errors import BadInput, HipwrightError, TaskError
from tests.api.live.modules import Convolved, Recalled, same

x33 = torch.randn(3, 3, 9, 9)


def recalled(fn: Any, *args: Any, **kwargs: Any) -> tuple[OptimizedModule, Recalled]:
    live = live_task(fn, args, kwargs, "subject")
    program = Recalled(live)
    return OptimizedModule(fn, live, program), program


@pytest.mark.parametrize("training", [False, True])
def test_a_module_with_buffers_and_nested_results(training: bool) -> None:
    module = Convolved().train(training)
    twin = copy.deepcopy(module)
    made, program = recalled(module, x33, scale=3.0)
    with torch.no_grad():
        for x in (x33, torch.randn(5, 3, 11, 7)):
            found = made(x, scale=3.0)
            assert same(found, twin(x, scale=3.0)) and found["rest"][2] is x
    assert program.calls == 2 and not made.fallbacks
    assert same(module.state_dict(), twin.state_dict()), "buffers are written"
    assert module.training is training


def test_a_function_and_what_it_closes_over() -> None:
    weight = torch.randn(5)

    def gated(x: torch.Tensor, power: int = 2) -> torch.Tensor:
        return torch.softmax((x * weight) ** power, -1).masked_fill(x > 0, -math.inf)

    made, program = recalled(gated, torch.randn(3, 5))
    x = torch.randn(4, 5)
    assert torch.equal(made(x), gated(x)) and program.calls == 1
    weight.mul_(2)
    assert torch.equal(made(x), gated(x)) and program.calls == 2


def test_modules_of_torch_and_tied_parameters() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    made, program = recalled(layer, torch.randn(2, 5, 16))
    tied = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    other, again = recalled(tied, torch.randn(2, 4))
    with torch.no_grad():
        x = torch.randn(3, 7, 16)
        assert same(made(x), layer(x)) and program.calls == 1
        tied[0].weight.mul_(3)
        y = torch.randn(3, 4)
        assert same(other(y), tied(y)) and again.calls == 1


def test_a_branch_on_a_size_is_a_condition() -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] <= 4 else x + 1

    made, program = recalled(branching, torch.randn(3, 5))
    assert "assert x.shape[0] <= 4" in made._live.task.text
    with pytest.warns(UserWarning, match="declines these sizes"):
        assert torch.equal(made(torch.ones(6, 5)), torch.full((6, 5), 2.0))
    assert program.calls == 0


def test_the_text_does_not_depend_on_weights_or_training() -> None:
    texts = set()
    for steps in range(2):
        torch.manual_seed(steps)
        module = Convolved()
        for _ in range(3 * steps):
            module(x33)
        texts.add(live_task(module.eval(), (torch.randn(3, 3, 9, 9),), {}, "same").task.text)
    assert len(texts) == 1


@pytest.mark.parametrize(
    "fn, args, error, said",
    [
        (lambda x: x if x.sum() > 0 else -x, (torch.ones(3),), TaskError, "cannot capture"),
        (lambda x: x.view(-1), (torch.ones(3, 2),), TaskError, "view of an argument"),
        (lambda x: x.add_(1), (torch.ones(3),), TaskError, "writes into its input"),
        (lambda x: x, (torch.ones(3),), TaskError, "computes nothing"),
        (lambda n: n, (3,), BadInput, "no example input is a tensor"),
        (lambda x: x.sum().item(), (torch.ones(3),), TaskError, "cannot capture|no tensor"),
        (lambda x, y: x * 2, (torch.ones(3), torch.zeros(3, dtype=torch.uint32)), HipwrightError, "uint32"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_a_hint(
    fn: Any, args: Any, error: type[HipwrightError], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        live_task(fn, args, {}, "refused")
    assert raised.value.hint, raised.value.message
