"""Calls in a row on one state: what each must give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hipwright.verify.expected import rules
from tests.verify.conftest import Tasks

STATEFUL = ["batch_norm", "ema"]
STATELESS = ["row_sum", "scale_bias", "batch_norm_eval"]


def steps_of(tasks: Tasks, task: str) -> Any:
    oracle = tasks.oracle(task)
    return oracle.sequence(oracle.planned()[0].workload.name)


@pytest.mark.parametrize("task", STATELESS)
def test_a_task_without_a_state_costs_no_further_expectation(task: str, tasks: Tasks) -> None:
    steps = steps_of(tasks, task)
    assert [step.case.family for step in steps] == ["normal", "mutated", "given", "given", "given"]
    assert all(not step.carried for step in steps), "every buffer is written with the new state"


@pytest.mark.parametrize("task", STATEFUL)
def test_buffers_carry_over(task: str, tasks: Tasks) -> None:
    """The expectation of each call is the reference on the buffers that the call before it left."""
    steps = steps_of(tasks, task)
    oracle = tasks.oracle(task)
    state = steps[0].case.state
    for step in steps:
        state = {**step.case.state, "buffers": state["buffers"]}
        outputs, after, _ = oracle.handle.reference(step.case.inputs, state, dtype="native")
        state = {**state, "buffers": after}
        (rule,) = rules(step.case.expected.tree["outputs"])
        near = np.abs(outputs.to_f64() - rule.expected) <= rule.element
        assert near.all()
        for path, buffer in after.items():
            rule = step.case.expected.tree["buffers"][path]
            assert rule.evidence, f"{path} changes in every call"
            assert np.allclose(buffer.to_f64(), rule.expected, rtol=1e-5, atol=1e-6)


def test_the_second_state_leaves_what_is_carried(tasks: Tasks) -> None:
    carried = [step.carried for step in steps_of(tasks, "batch_norm")]
    names = {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
    assert carried == [None, names, names, None, None]
