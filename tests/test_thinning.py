"""What `make test` leaves out of a matrix (tests/conftest.py)."""

import itertools
from math import fsum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SLOWEST, TURN_SECONDS, not_in_turn, spread

pytest_plugins = ["pytester"]

MATRIX = """
import pytest

@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("n", range(9))
def test_many(n): pass

@pytest.mark.exhaustive
def test_long(): pass

def test_one(): pass
"""


@given(st.integers(1, 200), st.integers(1, 200))
def test_kept_places_are_spread_from_first_to_last(count: int, keep: int) -> None:
    found = sorted(spread(count, keep))
    assert len(found) == min(count, keep) and found[0] == 0
    if keep > 1:
        assert found[-1] == count - 1
        steps = {b - a for a, b in itertools.pairwise(found)}
        assert not steps or max(steps) - min(steps) <= 1


@pytest.mark.parametrize(
    ("args", "passed"),
    [((), 4), (("--all",), 11), (("test_matrix.py::test_many",), 9), (("-m", "exhaustive", "--all"), 1)],
)
def test_a_matrix_is_thinned_unless_all_is_asked_for(
    pytester: pytest.Pytester, args: tuple[str, ...], passed: int
) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    matrix\n    exhaustive\n")
    pytester.makepyfile(test_matrix=MATRIX)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", *args).assert_outcomes(passed=passed, deselected=None)


def test_the_slowest_tests_take_turns() -> None:
    """A part of their time for any state of the code, and every one has its turn."""
    listed = SLOWEST.read_text()
    seconds = {line.split()[1]: float(line.split()[0]) for line in listed.splitlines()}
    left = [not_in_turn(listed, str(seed)) for seed in range(300)]
    for names in left:
        run = round(fsum(seconds.values()) - fsum(seconds[name] for name in names), 6)  # a set's order varies
        assert TURN_SECONDS <= run < TURN_SECONDS + max(seconds.values())
    assert not set.intersection(*left)


def test_the_slowest_tests_exist() -> None:
    for line in SLOWEST.read_text().splitlines():
        file, _, name = line.split()[1].partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (SLOWEST.parent / file).read_text(), line
