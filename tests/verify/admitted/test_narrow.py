"""Asserts that keep a program to what was judged."""

from __future__ import annotations

import pytest

from hipwright.program import parse
from hipwright.program.lines import with_lines
from hipwright.verify.admitted.choice import UnjudgedSide
from hipwright.verify.admitted.narrow import guards
from tests.verify.admitted.programs import GIVEN, text, tracer

LARGE = ((40000, 40000),)
CASES = {
    "if rows > 1000:\n        cols = cols - 1": "rows > 1000",
    "cols = 1 if rows * cols > 10**6 else cols": "rows * cols > 10**6",
    "if cols > 10:\n        if rows > 1000: cols = 2": "rows > 1000",
}


@pytest.mark.parametrize("plan", CASES)
def test_a_comparison_of_the_plan(plan: str) -> None:
    """The assert stands before the statement, and the program declines the unjudged side alone."""
    _narrows(plan=plan, condition=CASES[plan].replace("**", " ** "))


def test_a_comparison_of_a_kernel() -> None:
    """A kernel's parameter becomes the plan's argument."""
    _narrows(kernel="if (cols * 2 > 5000) y[0] = 1;", condition="(cols * 2) > 5000")


def test_a_thread_index_becomes_a_bound() -> None:
    """Where the comparison has no words in the plan, a size is bounded by the largest that was judged."""
    added = _narrows(kernel="if (blockIdx.x > 100) y[0] = 1;", condition="blockIdx.x > 100")
    assert "x.shape[0] <= 33" in added


def _narrows(*, condition: str, plan: str = "y = y.contiguous()", kernel: str = "y[0] = x[0];") -> str:
    program, source = tracer(plan, kernel), text(plan, kernel)
    program.follow(GIVEN)
    side = next(side for side in program.follow(LARGE).sides if side == (side[0], True) and side[0].text == condition)
    unjudged = UnjudgedSide(side, LARGE, "too large")
    found = guards(source, [unjudged], program, [GIVEN], program.of)
    line, added = found[unjudged]
    narrowed = program.of(parse(with_lines(source, {line: added})))
    assert narrowed.follow(LARGE).refused
    assert not narrowed.follow(GIVEN).refused
    return added


def test_a_side_of_the_task_itself_stays() -> None:
    """A program keeps the shapes of its own task, judged or not."""
    program = tracer(plan="cols = 1 if rows > 1000 else cols")
    side = next(iter(program.follow(LARGE).sides))
    assert not guards(text(), [UnjudgedSide(side, LARGE, "not run", own=True)], program, [GIVEN], program.of)
