"""What a refused program may give up to: every operator as a library call, with the engine's lowering and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipwright.api.task_engine import task_engine
from hipwright.engine import write
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, PLAIN_PLAN
from hipwright.events import silent
from hipwright.machine import Machine, machine

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(("cpu",), unsafe=False, cache=tmp_path_factory.mktemp("builds")) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_plan_of_library_calls_is_right(example: Path, made: Machine) -> None:
    with made.open(example, seed=11, listener=silent) as bench:
        graph = task_engine(bench).graph
        for given_up in (EVERY_OPERATOR, PLAIN_PLAN):
            found = bench.evaluator.evaluate(write(graph, {GIVEN_UP: given_up}), timed=False)
            assert found.passed, (given_up, found.status, found.message)
            assert found.coverage == 0.0
