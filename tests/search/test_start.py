"""A run that begins with the caller's program: judged first, first parent, not counted; the better of both wins."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from landscape import SPACE, TARGETS, TASK, Judge, source, write

from hipwright.archive import Archive, export, show
from hipwright.records import Evaluation, Expansion, Program
from hipwright.search import POLICIES, ProposalRequest, SearchView, new_run, resume, run
from hipwright.search.start import StartSource
from hipwright.search.view import START

FAST = write({"BLOCK": 256, "UNROLL": 4, "fuse": True, "vector": 4})
SLOW = write({"BLOCK": 1024, "UNROLL": 8, "fuse": False, "vector": 1, "order": "waves"})
WRONG = write({"vector": 8, "fuse": False})


def begun(archive: Archive, start: Program, judge: Judge, **options: Any) -> Any:
    options = {"budget": 12, "policy_name": "islands", "seed": 1, **options}
    return run(
        archive, new_run(TASK, TARGETS, **options), TASK, evaluator=judge, source=StartSource(source(), start, "k.cu")
    )


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("start", [FAST, SLOW, WRONG], ids=["fast", "slow", "wrong"])
def test_every_policy_judges_it_first_and_answers_with_the_better(
    archive: Archive, policy: str, start: Program
) -> None:
    judge = Judge()
    found = begun(archive, start, judge, policy_name=policy)
    trials = show(archive, found.run).trials
    assert trials[0].operator == START and trials[0].program == start.key == judge.calls[0]
    assert trials[1].operator == "default" and trials[1].choices == {key: one.default for key, one in SPACE.items()}
    assert found.evaluations == 13 and found.reason == "budget"
    scores = [one.score for one in trials if one.status == "pass" and one.score]
    assert found.evaluation is not None and found.evaluation.score <= min(scores) * 1.021  # the estimate's margin
    assert (found.program == start) is (start is FAST)


@pytest.mark.parametrize("start", [FAST, SLOW, WRONG], ids=["fast", "slow", "wrong"])
def test_a_budget_of_one_judges_the_engines_answer_too(archive: Archive, start: Program) -> None:
    secret: list[str] = []
    judge = Judge()

    def confirm(program: Program) -> Evaluation:
        secret.append(program.key)
        return judge.evaluate(program)

    name = new_run(TASK, TARGETS, budget=1, seed=1)
    found = run(archive, name, TASK, evaluator=judge, source=StartSource(source(), start, "k.cu"), confirm=confirm)
    assert [one.operator for one in show(archive, found.run).trials] == [START, "default"]
    assert found.confirmed and secret == [found.best]
    assert found.evaluations == 2


def test_the_same_run_again_is_the_same_and_goes_on_after_a_stop(archive: Archive) -> None:
    judge = Judge(mark="a")
    first = begun(archive, SLOW, judge)
    again = begun(archive, SLOW, Judge(mark="b"))
    assert export(archive, first.run, canonical=True) == export(archive, again.run, canonical=True)
    stopped = run(
        archive,
        new_run(TASK, TARGETS, budget=12, seed=1),
        TASK,
        evaluator=(stops := Judge(mark="c")),
        source=StartSource(source(), SLOW, "k.cu"),
        stop_requested=lambda: len(stops.calls) >= 3,
    )
    assert stopped.interrupted
    ended = resume(archive, stopped.run, TASK, evaluator=stops, source=StartSource(source(), SLOW, "k.cu"))
    assert export(archive, ended.run, canonical=True) == export(archive, first.run, canonical=True)


KNOBBED = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void k(float* y) { y[threadIdx.x] = BLOCK; }
'''
BLOCK = knob(64, choices=[64, 128, 256])
FIXED = knob(1, choices=[1])


def forward(self, x):
    y = torch.empty_like(x)
    k[1, BLOCK](y)
    return y
"""


def test_half_of_the_children_of_a_start_with_knobs_are_the_start_with_one_knob_changed() -> None:
    program = Program(text=KNOBBED)
    starts = StartSource(source(), program, "k.cu")
    parent = starts.propose(
        ProposalRequest(Expansion(number=0, operator=START), (), SearchView(1, 9)), random.Random(0)
    )
    ask = ProposalRequest(Expansion(number=2, operator="mutate", parents=(program.key,)), (parent,), SearchView(1, 9))
    made = [starts.propose(ask, random.Random(seed)) for seed in range(200)]
    turned = [one for one in made if one.program.text == KNOBBED]
    assert 70 < len(turned) < 130
    assert {json.dumps(one.program.knobs) for one in turned} == {'{"BLOCK": 128}', '{"BLOCK": 256}'}
    assert {one.notes["author"] for one in turned} == {"start"}
    child = ProposalRequest(ask.expansion, (turned[0],), ask.view)
    onward = [starts.propose(child, random.Random(seed)).program for seed in range(50)]
    before = turned[0].program.knobs["BLOCK"]
    assert all(one.knobs["BLOCK"] != before for one in onward if one.text == KNOBBED)
