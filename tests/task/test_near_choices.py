"""Indices chosen among near values, as the task's host and the device judge them: other choices among those pass, also
where some of them are exact equals; an index of another value, and one that is given twice, do not.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.records import TolerancePolicy
from hipwright.task.device.compare import LeafComparison, blocks_of
from hipwright.task.device.expect import Expecting
from hipwright.task.device.model import DeviceFile
from hipwright.task.handle import open_source
from hipwright.tensors import tensor_leaves
from hipwright.torchio import from_torch, to_torch
from hipwright.verify.compare import compare_leaf
from hipwright.verify.expectation import Expectations
from hipwright.verify.expected import rules
from tests import warm

WORDS = 64
TASK = f"""
import torch


class Model(torch.nn.Module):
    def forward(self, scores):
        return torch.softmax(scores, dim=-1).sort(dim=-1, descending=True).indices


def get_inputs():
    scores = torch.linspace(0.0, -18.9, {WORDS}).repeat(3, 1)
    scores[0, 6:9] = -8.0
    scores[0, 9] = torch.nextafter(torch.tensor(-8.0), torch.tensor(0.0))
    scores[1, 20:23] = -8.0
    scores[2, -1] = -40.0
    scores[2, -2] = torch.nextafter(torch.tensor(-40.0), torch.tensor(0.0))
    return [scores]
"""
Judge = Callable[[torch.Tensor], bool]


def _on_the_host() -> tuple[torch.Tensor, Judge]:
    with open_source("task", TASK, warm.host()) as handle:
        state, inputs = handle.init_state(1), handle.inputs("given", 2)
        (rule,) = rules(Expectations(handle, TolerancePolicy(), 3).of(inputs, state).tree["outputs"])
    return to_torch(tensor_leaves(inputs)[0]), lambda got: compare_leaf(from_torch(got), rule).ok


def _on_the_device() -> tuple[torch.Tensor, Judge]:
    file = DeviceFile("task.py", TASK, torch.device("cpu"))
    args = file.inputs(2, None)
    state = {"params": {}, "buffers": {}}
    made = Expecting(file, args, state, seed=3, room=lambda: 1 << 40, spoil=lambda: None).make(strict=True)

    def judge(got: torch.Tensor) -> bool:
        check = LeafComparison(made.leaves[0])
        for block in blocks_of(got):
            check.add(block)
        return bool(check.result()["kind"] == "pass")

    return args[0], judge


@pytest.fixture(scope="module", params=[_on_the_host, _on_the_device], ids=["host", "device"])
def judged(request: pytest.FixtureRequest) -> tuple[torch.Tensor, Judge]:
    """(the best order of the words, what judges another)."""
    scores, judge = request.param()
    return scores.double().sort(dim=-1, descending=True, stable=True).indices, judge


def _with(order: torch.Tensor, row: int, moved: dict[int, int]) -> torch.Tensor:
    """The order with some words of a row in the places of others."""
    found = order.clone()
    for before, now in moved.items():
        found[row][order[row] == before] = now
    return found


@pytest.mark.parametrize(
    ("row", "moved"),
    [
        (0, {}),
        (0, {9: 8, 8: 9}),  # near, beside exact equals
        (0, {9: 6, 6: 9, 7: 8, 8: 7}),
        (1, {20: 22, 22: 20}),  # exact equals
        (2, {WORDS - 1: WORDS - 2, WORDS - 2: WORDS - 1}),  # as far apart as two at a distance of 40 round to one
    ],
)
def test_other_choices_among_near_values_pass(judged: tuple[torch.Tensor, Judge], row: int, moved: dict[int, int]):
    order, judge = judged
    assert judge(_with(order, row, moved))


@pytest.mark.parametrize(
    ("row", "moved"),
    [
        (0, {10: 11, 11: 10}),  # neighbours that differ
        (0, {0: 8}),
        (1, {20: 30, 30: 20}),  # another value's place among exact equals
        (1, {20: 21}),  # one of them twice
        (1, {22: WORDS}),
        (2, {WORDS - 3: WORDS - 1, WORDS - 1: WORDS - 3}),
    ],
)
def test_words_of_other_values_are_refused(judged: tuple[torch.Tensor, Judge], row: int, moved: dict[int, int]):
    order, judge = judged
    assert not judge(_with(order, row, moved))
