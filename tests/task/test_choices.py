"""Indices chosen among equals are marked, others are not, and marks reach no operator that computes with them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.events import silent
from hipwright.machine import machine
from hipwright.records import Program
from hipwright.task.host.double_precision import float64
from hipwright.task.host.modes.ties import TieMarker

ROWS = [[1.0, 5.0, 3.0, 5.0], [0.0, 0.0, 0.0, 2.0], [1.0, 2.0, 3.0, 4.0]]


def chosen(function: Any, rows: Any = ROWS, dtype: str = "float32") -> Any:
    given_rows = torch.tensor(rows, dtype=torch.float64)
    with float64(TieMarker(dtype, [given_rows])):
        return function(given_rows * 1.0)


@pytest.mark.parametrize(
    ("function", "marked"),
    [
        (lambda x: x.argmax(-1), [True, False, False]),
        (lambda x: x.max(1).indices, [True, False, False]),
        (lambda x: x.max(1, keepdim=True).indices, [[True], [False], [False]]),
        (lambda x: x.min(1).indices, [False, True, False]),
        (lambda x: torch.topk(x, 2).indices, [[True, True], [False, True], [False, False]]),
        (lambda x: torch.topk(x, 2).indices.unsqueeze(0)[0], [[True, True], [False, True], [False, False]]),
        (lambda x: torch.topk(x, 2).indices.to(torch.int32), [[True, True], [False, True], [False, False]]),
        (lambda x: x.argsort(1), [[False, False, True, True], [True, True, True, False], [False] * 4]),
        (lambda x: x.t().topk(1, dim=0).indices[0], [True, False, False]),
        (lambda x: x.argmax().reshape(1), [True]),
        (lambda x: torch.kthvalue(x, 2).indices, [False, True, False]),
    ],
)
def test_what_was_chosen_among_equals_is_marked(function: Any, marked: Any) -> None:
    index = chosen(function)
    assert (index >= (12 if index.shape == (1,) and marked == [True] else 4)).tolist() == marked


def test_nearly_equal_is_equal_to_within_the_dtypes_rounding() -> None:
    rows = [[1.0, 1.0 + 1e-7, 0.5, 0.0]]
    assert chosen(lambda x: x.argmax(-1), rows).item() == ~1  # told apart from a choice among the same values
    assert chosen(lambda x: x.argmax(-1), rows, "float64").item() == 1
    underflown = [[1.0, 1e-60, 0.0, 1e-50]]  # all of these are zero in float32
    assert (chosen(lambda x: torch.topk(x, 2).indices, underflown) < 0).tolist() == [[False, True]]


def test_infinities_are_equal_to_themselves_only() -> None:
    inf = float("inf")
    assert chosen(lambda x: x.argmax(-1), [[inf, 1.0], [inf, inf]]).tolist()[0] == 0
    assert chosen(lambda x: x.argmax(-1), [[inf, 1.0], [inf, inf]]).tolist()[1] >= 2
    assert chosen(lambda x: x.argmin(-1), [[-inf, 1.0], [2.0, 1.0]]).tolist() == [0, 1]


def test_inputs_nobody_has_rounded() -> None:
    rows = torch.tensor(ROWS, dtype=torch.float64)
    with float64(TieMarker("float32", [rows])):
        assert int(rows.argmax(-1).max()) < 4
        assert int(rows.t().argmax(0).max()) < 4


def test_who_computes_with_an_index_gets_the_true_one() -> None:
    def values(x: torch.Tensor) -> torch.Tensor:
        index = torch.topk(x, 2).indices
        return x.gather(1, index) + x[torch.arange(3)[:, None], index] + index

    assert chosen(values)[:, 0].tolist() == [5.0 + 5.0 + 1, 2.0 + 2.0 + 3, 4.0 + 4.0 + 3]


@given(st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=6), st.integers(1, 5))
def test_topk_marks_exactly_the_repeated_values(rows: list[list[int]], k: int) -> None:
    values, index = chosen(lambda x: torch.topk(x, k), [[float(v) for v in row] for row in rows])
    for row, picked, places in zip(rows, values.tolist(), index.tolist(), strict=True):
        assert [row.count(int(v)) > 1 for v in picked] == [place >= 5 for place in places]


TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.topk(torch.softmax(x, -1), 2, -1)

def get_inputs():
    return [torch.randn(40, 24)]

def get_init_inputs():
    return []
"""
PROGRAM = """
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void unused(float* x) {{ x[0] = 0.0f; }}
'''

def forward(self, x):
    p = torch.softmax(x, -1)
    values, index = torch.topk({source}, 2, -1)
    return values, {index}
"""


@pytest.mark.slow
def test_another_choice_among_equals_passes_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """The same top 2, searched from the other end: other indices wherever the second largest underflows."""
    (tmp_path / "task.py").write_text(TASK)
    honest = PROGRAM.format(source="torch.flip(p, [-1])", index="torch.rsub(index, x.shape[-1] - 1)")
    wrong = PROGRAM.format(source="p", index="torch.remainder(torch.add(index, 1), x.shape[-1])")
    with machine(("cpu",), unsafe=False) as made, made.open(tmp_path / "task.py", seed=5, listener=silent) as bench:
        found = bench.evaluator.evaluate(Program(text=honest))
        assert found.status == "pass", str(found.targets["cpu"].verdict.message)
        assert bench.evaluator.evaluate(Program(text=wrong)).status == "wrong_value"
