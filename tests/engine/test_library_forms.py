"""What a refused program may give up to: every operator as a library call, with the engine's lowering and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hipwright.api.task_engine import task_engine
from hipwright.capture.graph import Graph, Mutation
from hipwright.engine import write
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, PLAIN_PLAN
from hipwright.events import silent
from hipwright.machine import Machine, machine
from hipwright.task.handle import writes_seen

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


UNWRITTEN = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, mean, var):
        return torch.ops.aten._native_batch_norm_legit.default(x, None, None, mean, var, False, 0.1, 1e-5)[0]

def get_inputs():
    return [torch.randn(4, 5, 6).half(), torch.randn(5).half(), torch.rand(5).half() + 0.5]
"""


@pytest.mark.slow
def test_what_the_reference_does_not_write_no_plan_writes(made: Machine, tmp_path: Path) -> None:
    """A schema says that the statistics are written, and a batch norm that does not train leaves them."""
    task = tmp_path / "unwritten.py"
    task.write_text(UNWRITTEN)
    with made.open(task, seed=11, listener=silent) as bench:
        assert bench.handle.written == ()
        graph = task_engine(bench).graph
        for choices in ({}, {GIVEN_UP: EVERY_OPERATOR}, {GIVEN_UP: PLAIN_PLAN}):
            found = bench.evaluator.evaluate(write(graph, choices), timed=False)
            assert found.passed, (choices, found.status, found.message)


def test_writes_that_were_seen_stay() -> None:
    mutations = tuple(Mutation(access=one, node="n") for one in ("x", "ys[1]", "z", "self.count"))
    graph = Graph(parameters=("x", "ys", "z"), inputs=(), nodes=(), output=None, mutations=mutations).to_dict()
    seen = Graph.from_dict(writes_seen(graph, ("inputs[1][1]", "inputs[2]")))
    assert [one.access for one in seen.mutations] == ["ys[1]", "z", "self.count"]
    assert writes_seen(graph, ("inputs[0]", "inputs[1][0]", "inputs[2]")) is graph
