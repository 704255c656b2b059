"""Plans that quantise by rows, by blocks and into caches: honest ones pass, wrong ones are refused.

A folder of tests/programs/quantised is a task and its plans. `python -m benchmarks quantised-variants` judges 744 more
honest ways to compute such tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.records import Evaluation, Program

FOLDER = Path(__file__).parents[1] / "programs/quantised"


def plans(kind: str) -> list[Any]:
    """The plans of a kind, with their names."""
    return [
        pytest.param(path, id=f"{path.parents[1].name}/{path.stem}") for path in sorted(FOLDER.glob(f"*/{kind}/*.py"))
    ]


class Tasks:
    """The tasks of the folders, each opened once."""

    def __init__(self, machine: Machine, opened: ExitStack) -> None:
        self.machine, self.opened = machine, opened
        self.benches: dict[str, Any] = {}

    def judged(self, path: Path) -> Evaluation:
        """The evaluation of a plan."""
        folder = path.parents[1]
        if folder.name not in self.benches:
            text = (folder / "task.py").read_text(encoding="utf-8")
            opening = self.machine.open_text(folder.name, text, seed=None, listener=silent)
            self.benches[folder.name] = self.opened.enter_context(opening)
        program = Program(text=path.read_text(encoding="utf-8"))
        evaluation: Evaluation = self.benches[folder.name].evaluator.evaluate(program, timed=False)
        return evaluation


@pytest.fixture(scope="module")
def tasks(made: Machine) -> Iterator[Tasks]:
    with ExitStack() as opened:
        yield Tasks(made, opened)


@pytest.mark.parametrize("path", plans("honest"))
def test_another_rounding_of_the_step_passes(path: Path, tasks: Tasks) -> None:
    found = tasks.judged(path)
    assert found.passed, (found.status, found.message)


@pytest.mark.parametrize("path", plans("wrong"))
def test_a_wrong_quantisation_is_refused(path: Path, tasks: Tasks) -> None:
    found = tasks.judged(path)
    assert found.status == "wrong_value" and found.fault == "candidate", (found.status, found.message)


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="a value is not judged where honest steps put it on either side of a tie")
@pytest.mark.parametrize("path", plans("accepted"))
def test_another_rule_of_rounding_is_refused(path: Path, tasks: Tasks) -> None:
    found = tasks.judged(path)
    assert found.status == "wrong_value", (found.status, found.message)


def test_there_are_forty_wrong_ones() -> None:
    """Of steps, scales, rounding and slots, with those of caches (tests/programs/state)."""
    state = FOLDER.parent / "state/wrong"
    assert len(plans("wrong")) + len(list(state.glob("*.py"))) >= 40
