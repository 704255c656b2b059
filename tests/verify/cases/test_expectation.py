"""Expectations: the same whether a case's runs share one host or two, and values without budgets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hipwright.records import TolerancePolicy
from hipwright.task import TaskHandle
from hipwright.task.handle import open_source
from hipwright.verify import expectation
from hipwright.verify.expectation import Expectations
from hipwright.verify.expected import Expected, rules
from hipwright.verify.oracle import MUTATED, Oracle
from tests import warm

NORM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(12)
        self.linear = torch.nn.Linear(12, 5)

    def forward(self, x):
        y = torch.relu(self.linear(self.norm(x)))
        return y, y.argmax(-1)


def get_inputs():
    return [torch.randn(9, 12)]
"""
RELU = "torch.relu(self.linear(self.norm(x)))"
DROPOUT = NORM.replace(RELU, "torch.nn.functional.dropout(self.linear(x), 0.5, True)")
WRITES = NORM.replace("y = torch", "x += 1\n        y = torch")
SELECTS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.kthvalue(x, 2, 2)


def get_inputs():
    x = torch.zeros(4, 4, 4)
    x[0, 0] = torch.tensor([-1.0, 1.0, 1.0, 1.0])
    return [x]
"""
FORGETS = NORM.replace(RELU, "torch.sin(torch.arange(40.0) + 0 * x.sum())")


def opened(source: str) -> TaskHandle:
    return open_source("task", source, warm.host())


def described(found: Expected) -> list[Any]:
    """All that an expectation says, as values that compare."""
    fields = ("path", "spec", "expected", "element", "row", "lift", "judged")
    return [[getattr(rule, name) for name in fields] for rule in rules(found.tree)]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return np.array_equal(one, other, equal_nan=True) if isinstance(one, np.ndarray) else one == other


def made(handle: TaskHandle) -> Expected:
    state, inputs = handle.init_state(1), handle.inputs("given", 2)
    return Expectations(handle, TolerancePolicy(), 3).of(inputs, state)


@pytest.mark.parametrize(("source", "second"), [(NORM, 2), (WRITES, 0), (DROPOUT, 0)], ids=["plain", "writes", "draws"])
def test_a_second_host_changes_nothing(monkeypatch: pytest.MonkeyPatch, source: str, second: int) -> None:
    with opened(source) as handle:
        alone = described(made(handle))
        asked, run = [], handle._second.run
        monkeypatch.setattr(handle._second, "run", lambda *given: asked.append(given) or run(*given))
        monkeypatch.setattr(expectation, "LONG_RUN_S", 0.0)
        monkeypatch.setattr(expectation.os, "sched_getaffinity", lambda process: {0, 1})
        assert equal(described(made(handle)), alone)
        assert len(asked) == second
        monkeypatch.setattr(expectation.os, "sched_getaffinity", lambda process: {0})
        assert equal(described(made(handle)), alone) and len(asked) == second


def test_values_are_those_of_the_expectation() -> None:
    with opened(NORM) as handle:
        state, inputs = handle.init_state(1), handle.inputs("given", 2)
        expectations = Expectations(handle, TolerancePolicy(), 3)
        full = {rule.path: rule.expected for rule in rules(expectations.of(inputs, state).tree)}
        alone = {rule.path: rule.expected for rule in rules(expectations.values(inputs, state).tree)}
        assert full.keys() <= alone.keys()
        assert all(np.array_equal(full[path], alone[path]) for path in full)


def test_other_shapes_are_compared_with_one_run_on_other_inputs() -> None:
    with opened(NORM) as handle:
        oracle = Oracle(handle, seed=5)
        first, *others = [one.workload.name for one in oracle.planned()]
        assert others
        cases = [oracle.case(name, oracle.families(name)[0]) for name in (first, *others)]
        assert all("other_inputs" in case.rejects for case in cases if oracle.of_kind(case.workload))
        assert (first, MUTATED) in oracle._cases
        assert not any((name, MUTATED) in oracle._cases for name in others)


def test_a_result_that_forgets_its_inputs_proves_nothing_at_any_shape() -> None:
    with opened(FORGETS) as handle:
        oracle = Oracle(handle, seed=5)
        names = [one.workload.name for one in oracle.planned()]
        assert len(names) > 1
        assert all("other_inputs" not in oracle.case(name, oracle.families(name)[0]).rejects for name in names)


def test_an_index_into_a_cube_selects_what_the_task_gives_beside_it() -> None:
    """Along the first dimension the indices select zeros alone as well, but the task's values are along the last."""
    with opened(SELECTS) as handle:
        values, index = rules(made(handle).tree)
    assert index.gather is not None and index.gather.dim == 2 and not index.gather.others
    assert np.array_equal(index.gather.values, values.expected)
