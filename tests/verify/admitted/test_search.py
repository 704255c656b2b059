"""Shapes found for both sides of a comparison."""

from __future__ import annotations

import pytest

from hipwright.verify.admitted.side_search import SideSearch
from tests.verify.admitted.programs import GIVEN, SPACE, tracer

TESTS = [
    "cols == 641",
    "cols != 300",
    "rows * cols > 20000",
    "rows * rows > 5000",
    "cols % 97 == 13",
    "cols // 64 > 100",
    "cdiv(rows, 64) > 5",
    "cdiv(rows, 11) > 6",  # three points on one line
    "cols >> 5 >= 40",
    "rows > 1024",
    "cols < 7",
    "rows == cols",
    "next_pow2(cols) > 512",
    "3 * rows + 5 * cols == 1614",
]


@pytest.mark.parametrize("test", TESTS)
def test_both_sides_are_found(test: str) -> None:
    """Equalities, products, remainders, quotients and steps are solved within the budget of one program."""
    program = tracer(plan=f"cols = 1 if {test} else cols")
    (condition,) = [one for one in program.follow(GIVEN).compared if one.text == test]
    for outcome in (True, False):
        search = SideSearch(SPACE, program.follow, 80)
        found = GIVEN if (condition, outcome) in program.follow(GIVEN).sides else None
        found = found or next(search.shapes_for((condition, outcome), [GIVEN]), None)
        assert found is not None, outcome
        assert (condition, outcome) in program.follow(found).sides


def test_a_boundary_is_met_exactly() -> None:
    """The smallest size at which a step function flips is among the shapes that are found."""
    program = tracer(kernel="if (gridDim.x > 5) y[0] = 1;")
    (condition,) = [one for one in program.follow(GIVEN).compared if one.text == "gridDim.x > 5"]
    sizes = {shapes[0][0] for shapes in SideSearch(SPACE, program.follow, 200).shapes_for((condition, True), [GIVEN])}
    assert 321 in sizes


def test_a_side_that_no_shape_takes() -> None:
    """The search ends within its budget."""
    program = tracer(plan="cols = 1 if rows < 0 else cols")
    (condition,) = program.follow(GIVEN).compared
    assert not list(SideSearch(SPACE, program.follow, 80).shapes_for((condition, True), [GIVEN]))
