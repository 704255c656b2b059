"""Honest programs in other orders of summation are accepted, and the orders are what they say."""

from __future__ import annotations

import pytest
import torch

from benchmarks.honest.judged import judge
from benchmarks.honest.orders import ORDERS, Reordered
from benchmarks.honest.tasks import TASKS
from hipwright.task.host.load import TaskModule
from tests import warm

NAMES = {task.name: task for task in TASKS}


def test_there_are_hundreds_of_pairs_of_different_kinds() -> None:
    assert len(NAMES) == len(TASKS) and len(TASKS) * len(ORDERS) >= 400


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_gives_the_result_up_to_rounding_and_other_bits(order: str) -> None:
    x, w = torch.randn(8, 1000), torch.randn(24, 1000)
    norm, image, filters = torch.nn.LayerNorm(1000), torch.randn(2, 8, 9, 9), torch.randn(4, 8, 3, 3)
    with torch.no_grad():
        for fn in (
            lambda: torch.nn.functional.linear(x, w, w[:, 0]),
            lambda: torch.softmax(x @ w.t(), -1),
            lambda: norm(x).sum(-1),
            lambda: torch.nn.functional.conv2d(image, filters, padding=1, stride=2),
            lambda: x.var(0) + x.mean(0) + x.pow(2).sum(),
        ):
            want = fn()
            with Reordered(order, 1):
                got = fn()
            torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-4)
        with Reordered(order, 1):
            assert not torch.equal(torch.nn.functional.linear(x, w), torch.nn.functional.linear(x.flip(1), w.flip(1)))


@pytest.mark.parametrize("name", NAMES)
def test_every_task_runs(name: str) -> None:
    file = TaskModule(f"{name}.py", NAMES[name].source)
    assert file.model(0)(*file._names["get_inputs"]()) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"), [("floor", 1), ("remainder", 1), ("relu_of_variance", 1), ("sparse_relu", 2)]
)
def test_honest_programs_that_were_refused_are_accepted(name: str, seed: int) -> None:
    for pair in judge(name, NAMES[name].source, ORDERS, seed, warm.host()):
        assert pair.cases > 40 and not pair.refused, (pair.order, pair.refused)
