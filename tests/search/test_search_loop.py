"""The loop: budgets, duplicates, workers, determinism, faults, and reuse between runs."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from landscape import BEST, SPACE, TASK, Choice, Judge, begin, canonical, go_on, plan, source, write

from hipwright.archive import Archive, export, read_log, show
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.search import EngineSource, Proposal, ProposalRequest, new_run, run

# ---------------------------------------------------------------- budget, duplicates, exhaustion


@pytest.mark.parametrize("budget", [1, 2, 5, 24])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_budget_is_spent_and_never_overshot(archive: Archive, budget: int, workers: int) -> None:
    judge = Judge()
    result = begin(archive, judge, budget=budget, workers=workers)
    assert result.evaluations == len(judge.calls) == budget and result.reason == "budget"
    assert max(Counter(judge.calls).values()) == 1
    assert judge.most_at_once <= workers


class Batches(Judge):
    """Judges whole rounds; the first batch has a machine fault at its second program."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.batches: list[int] = []
        self.failed: set[str] = set()

    def evaluate_many(self, programs: Any) -> list[Evaluation]:
        self.batches.append(len(programs))
        found = [self.evaluate(program) for program in programs]
        if len(found) > 1 and programs[1].key not in self.failed:
            self.failed.add(programs[1].key)
            found[1] = msgspec.structs.replace(found[1], status="unscorable", fault="device", score=None)
        return found


def test_rounds_are_judged_in_one_batch(archive: Archive) -> None:
    judge = Batches(mark="batches")
    result = begin(archive, judge, budget=24)
    assert result.evaluations == 24 and sum(judge.batches) > 20 and max(judge.batches) > 1  # a round of one goes alone
    assert Counter(Counter(judge.calls).values()) == {1: 24 - len(judge.failed), 2: len(judge.failed)}
    assert not any(t.evaluation and t.evaluation.fault for t in read_log(archive.events("latest")).evaluated.values())
    one_by_one = begin(archive, Judge(mark="alone"), budget=24)
    assert result.program is not None and one_by_one.program is not None
    assert result.program.key == one_by_one.program.key


def test_the_first_program_is_the_engines_own(archive: Archive) -> None:
    for policy in ("best_of_n", "islands"):
        begin(archive, budget=1, policy=policy)
        (trial,) = show(archive, "latest").trials
        assert trial.operator == "default" and trial.choices == {k: c.default for k, c in SPACE.items()}


@pytest.mark.parametrize("policy", ["best_of_n", "islands"])
def test_a_small_space_is_exhausted_below_budget(archive: Archive, policy: str) -> None:
    tiny = {"BLOCK": SPACE["BLOCK"], "fuse": SPACE["fuse"]}
    judge = Judge()
    result = begin(archive, judge, budget=50, policy=policy, source=source(tiny))
    assert result.reason == "exhausted" and result.evaluations == len(judge.calls) == 10
    assert result.evaluation is not None and result.evaluation.score == BEST
    duplicates = [t for t in show(archive, "latest").trials if t.status == "duplicate"]
    assert duplicates and all(t.reason.startswith("same program as #") for t in duplicates)


def test_duplicates_inside_a_round_cost_nothing(archive: Archive) -> None:
    judge = Judge()
    result = begin(archive, judge, budget=3, source=source({"only": Choice((1,), 1)}))
    assert len(judge.calls) == 1 and result.reason == "exhausted"


def test_a_failing_source_is_recorded_and_costs_nothing(archive: Archive) -> None:
    def flaky(choices: Any) -> Program:
        if choices["vector"] == 2:
            raise KeyError("no template")
        return write(choices)

    result = begin(archive, budget=30, source=EngineSource(SPACE, flaky))
    assert result.evaluations == 30
    begin(archive, budget=5, source=EngineSource({"vector": Choice((2,), 2)}, flaky))
    trials = show(archive, "latest").trials
    assert all(t.status == "not proposed" and "KeyError: 'no template'" in t.message for t in trials)


def test_a_source_whose_provider_is_down_ends_the_run(archive: Archive) -> None:
    def down(choices: Any) -> Program:
        raise InfrastructureError("provider unreachable")

    with pytest.raises(InfrastructureError, match="unreachable"):
        begin(archive, source=EngineSource(SPACE, down))
    assert begin(archive, budget=1).reason == "budget"
    assert go_on(archive, name=archive.runs()[0].id).reason == "budget"


# ---------------------------------------------------------------- determinism


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_workers(archive: Archive) -> None:
    class Uneven(Judge):
        def evaluate(self, program: Program) -> Evaluation:
            time.sleep(random.uniform(0, 0.01))
            return super().evaluate(program)

    exports = []
    for workers in (1, 2, 4):
        begin(archive, Uneven(mark=f"judge-{workers}"), workers=workers)  # its own mark: nothing is reused
        exports.append(canonical(archive))
    assert exports[0] == exports[1] == exports[2]
    begin(archive, seed=8)
    assert canonical(archive) != exports[0]


def test_numbers_that_json_changes_do_not_change_the_outcome(archive: Archive) -> None:
    """JSON has no NaN: a live run must see the same values as a resumed one."""

    class Odd(Judge):
        def evaluate(self, program: Program) -> Evaluation:
            plain = super().evaluate(program)
            verdict: Any = {"target": "cpu", "verdict": {"status": "pass", "evidence": {"got": float("nan")}}}
            return Evaluation.from_dict({**plain.to_dict(), "targets": {"cpu": verdict}, "library": {"aten.mm": 1.0}})

    result = begin(archive, Odd(), budget=3)
    again = go_on(archive, Odd())
    assert result.evaluation is not None and again.evaluation == result.evaluation


def test_an_evaluation_that_cannot_be_stored_is_unscorable(archive: Archive) -> None:
    class Broken(Judge):
        def evaluate(self, program: Program) -> Evaluation:
            return Evaluation.from_dict({**super().evaluate(program).to_dict(), "message": "\ud800"})

    result = begin(archive, Broken(), budget=2)
    assert result.evaluations == 2 and result.program is None
    assert {t.status for t in show(archive, "latest").trials} == {"unscorable"}


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("fault", ["device", "toolchain", "service", "provider"])
def test_the_machines_faults_are_tried_again(archive: Archive, fault: Any) -> None:
    judge = Judge(fault=fault, faulty_calls=2)
    result = begin(archive, judge, budget=4)
    assert result.evaluations == 4 and len(judge.calls) == 12 and result.evaluation is not None
    assert show(archive, "latest").costs["retries"] == 8
    begin(archive, Judge(mark="healthy"), budget=4)
    healthy, broken = (export(archive, r.id, canonical=True) for r in reversed(archive.runs()))
    assert healthy == broken  # transient faults leave no trace in the outcome


def test_a_fault_that_stays_is_unscorable_and_never_reused(archive: Archive) -> None:
    result = begin(archive, Judge(fault="device", faulty_calls=3), budget=4)
    assert result.program is None and result.evaluation is None and result.evaluations == 4
    trials = show(archive, "latest").trials
    assert {(t.status, t.attempts, t.kept, t.score) for t in trials} == {("unscorable", 3, False, None)}
    second = begin(archive, Judge(), budget=4)
    assert second.cached == 0 and second.evaluation is not None


def test_the_candidates_own_failures_are_not_tried_again(archive: Archive) -> None:
    judge = Judge(fault="candidate", faulty_calls=1)
    begin(archive, judge, budget=4)
    assert len(judge.calls) == 4


def test_an_evaluator_that_raises_ends_the_run_and_it_can_be_resumed(archive: Archive) -> None:
    class Dies(Judge):
        def evaluate(self, program: Program) -> Evaluation:
            if len(self.calls) == 6:
                raise InfrastructureError("no sandbox")
            return super().evaluate(program)

    for workers in (1, 2):
        judge = Dies(mark=f"dies-{workers}")
        with pytest.raises(InfrastructureError, match="no sandbox"):
            begin(archive, judge, workers=workers)
        recorded = len(read_log(archive.events(archive.run("latest").id)).evaluated)
        assert 5 <= recorded <= 6
        healthy = Judge(mark=judge.mark)
        assert go_on(archive, healthy).reason == "budget" and len(healthy.calls) == 24 - recorded


# ---------------------------------------------------------------- reuse, identity


def test_evaluations_are_reused_between_runs_and_still_counted(archive: Archive) -> None:
    first = begin(archive)
    expected = canonical(archive)
    judge = Judge()
    second = begin(archive, judge)
    assert judge.calls == [] and second.cached == second.evaluations == 24 and first.cached == 0
    assert canonical(archive) == expected
    other = Judge(mark="judge-2")
    begin(archive, other)
    assert len(other.calls) == 24  # another evaluator's results are not its own


def test_a_run_is_resumed_only_with_its_own_task_and_evaluator(archive: Archive) -> None:
    begin(archive, stop_requested=iter([False] * 4 + [True] * 99).__next__)
    with pytest.raises(BadInput, match="another version of hipwright"):
        go_on(archive, Judge(mark="newer"))
    changed = type(TASK)(name="made_up", source="class Model: changed", workloads=TASK.workloads)
    from hipwright.search import resume

    with pytest.raises(BadInput, match="another task"):
        resume(archive, "latest", changed, evaluator=Judge(), source=source())
    with pytest.raises(ValueError, match="key of the task"):
        run(archive, plan(), changed, evaluator=Judge(), source=source())
    assert go_on(archive).reason == "budget"


def test_the_task_is_kept_with_the_run(archive: Archive) -> None:
    begin(archive, budget=1)
    assert archive.task(archive.run("latest").task) == TASK


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"budget": -3}, {"policy_name": "genius"}])
def test_a_run_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        plan(**wrong)


def test_new_runs_have_ids_that_sort_and_seeds_of_their_own() -> None:
    runs = [new_run(TASK, ("cpu",), budget=1) for _ in range(20)]
    assert len({r.id for r in runs}) == 20 and len({r.seed for r in runs}) == 20
    assert all(r.task == TASK.key for r in runs)


def test_the_listener_hears_progress(archive: Archive) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    begin(archive, budget=6, listener=lambda kind, data: heard.append((kind, data)))
    counts = Counter(kind for kind, _ in heard)
    assert counts["proposed"] == counts["evaluated"] == counts["decided"] == 6 and heard[-1][0] == "finished"
    done = [data["evaluations"] for kind, data in heard if kind == "evaluated"]
    assert done == [1, 2, 3, 4, 5, 6]
    best = next(data for kind, data in heard if kind == "decided" and data["best"])
    assert {"number", "score", "reason", "status"} <= set(best)


def test_proposals_are_made_one_after_another(archive: Archive) -> None:
    threads = set()

    class Watching(EngineSource):
        def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
            threads.add(threading.current_thread())
            return super().propose(ask, rng)

    begin(archive, workers=3, source=Watching(SPACE, write))
    assert threads == {threading.current_thread()}
