"""How a search stops: requests, Ctrl-C, the clock, patience; and the confirmation of the winner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from landscape import Judge, begin, canonical, go_on

from hipwright.archive import Archive, show
from hipwright.errors import InfrastructureError
from hipwright.records import Evaluation, Program
from tests.load import Watch

# ---------------------------------------------------------------- stopping


def test_stop_requested_returns_what_was_found_and_resume_goes_on(archive: Archive) -> None:
    begin(archive)
    expected = canonical(archive)
    for workers in (1, 3):
        judge = Judge(mark=f"stopped-{workers}")
        result = begin(archive, judge, workers=workers, stop_requested=lambda judge=judge: len(judge.calls) >= 7)
        assert result.interrupted and result.reason == "interrupted"
        assert 7 <= result.evaluations < 24 and result.evaluations == len(judge.calls)
        assert result.evaluation is not None and result.evaluation.passed
        kinds = [e.kind for e in archive.events(archive.run("latest").id)]
        assert kinds[-1] == "interrupted" and "finished" not in kinds
        assert go_on(archive, judge).evaluations == 24
        assert canonical(archive) == expected


def test_ctrl_c_inside_an_evaluation(archive: Archive) -> None:
    class Pressed(Judge):
        def evaluate(self, program: Program) -> Evaluation:
            if len(self.calls) == 2:
                self.calls.append("ctrl-c")
                raise KeyboardInterrupt
            return super().evaluate(program)

    judge = Pressed()
    result = begin(archive, judge)
    assert result.interrupted and result.evaluations == 2
    assert result.evaluation is not None  # of a round that was not decided yet
    assert go_on(archive, judge).evaluations == 24


def test_max_minutes_ends_the_run_with_what_it_has(archive: Archive) -> None:
    for workers in (1, 2):
        judge = Judge(delay=0.02, mark=f"slow-{workers}")
        with Watch() as watch:
            result = begin(archive, judge, budget=1000, workers=workers, max_minutes=0.3 / 60)
        assert result.reason == "max_minutes" and not result.interrupted and watch.seconds < 3
        assert 0 < result.evaluations == len(judge.calls) < 1000
        trials = show(archive, "latest").trials
        assert all(t.reason for t in trials if t.status == "pass")  # evaluated programs were decided


def test_patience(archive: Archive) -> None:
    result = begin(archive, budget=200, settings={"patience": 3})
    assert result.reason == "patience" and result.evaluations < 200
    trials = show(archive, "latest").trials
    assert trials[-1].round - max(t.round for t in trials if t.best) == 3


def test_a_finished_run_is_not_taken_up_again(archive: Archive) -> None:
    first, judge = begin(archive), Judge()
    events = archive.events(first.run)
    assert go_on(archive, judge) == first and not judge.calls
    assert archive.events(first.run) == events


# ---------------------------------------------------------------- confirmation


def confirming(judge: Judge, reject: set[str]) -> Any:
    def confirm(program: Program) -> Evaluation:
        evaluation = judge.evaluate(program)
        if program.key in reject:
            return Evaluation.from_dict({**evaluation.to_dict(), "status": "wrong_value", "fault": "candidate"})
        return evaluation

    return confirm


def test_the_winner_is_verified_again_and_the_next_best_takes_its_place(archive: Archive) -> None:
    plain = begin(archive)
    judge = Judge()
    good = begin(archive, confirm=confirming(judge, set()))
    assert good.confirmed is True and good.best == plain.best and judge.calls == [good.best]

    second = Judge()
    fallen = begin(archive, confirm=confirming(second, {good.best}))
    assert fallen.confirmed is True and fallen.best != good.best and second.calls == [good.best, fallen.best]
    passed = sorted(t.score for t in show(archive, "latest").trials if t.score is not None)
    assert fallen.evaluation is not None and fallen.evaluation.score == passed[1]
    assert show(archive, "latest").summary.confirmed is True
    confirmed = [json.loads(line) for line in canonical(archive).splitlines() if '"kind":"confirmed"' in line]
    assert [(line["program"], line["passed"]) for line in confirmed] == [(good.best, False), (fallen.best, True)]


def test_when_none_passes_again_there_is_no_winner(archive: Archive) -> None:
    class Suspicious(set[str]):
        def __contains__(self, key: object) -> bool:
            return True

    result = begin(archive, budget=4, confirm=confirming(Judge(), Suspicious()))
    assert result.program is None and result.confirmed is None and result.reason == "budget"


def test_a_machine_fault_while_confirming_is_not_held_against_the_winner(archive: Archive) -> None:
    with pytest.raises(InfrastructureError, match="could not be verified again"):
        begin(archive, confirm=Judge(fault="device", faulty_calls=3).evaluate)
    judge = Judge()
    assert go_on(archive, judge, confirm=Judge().evaluate).confirmed is True and not judge.calls


def test_confirmation_is_not_repeated_on_resume(archive: Archive) -> None:
    again = Judge()
    confirm = confirming(again, {begin(archive).best})
    result = begin(archive, confirm=confirm, stop_requested=lambda: len(again.calls) >= 1)
    assert result.interrupted
    assert go_on(archive, confirm=confirm).confirmed is True
    assert len(again.calls) == len(set(again.calls)) == 2


def test_a_run_of_one_evaluation_is_judged_on_secret_inputs_at_once(archive: Archive) -> None:
    usual, secret = Judge(), Judge()
    result = begin(archive, usual, budget=1, confirm=secret.evaluate)
    assert result.confirmed is True and not usual.calls and secret.calls == [result.best]
    again = Judge()
    assert begin(archive, Judge(), budget=1, confirm=again.evaluate).confirmed is True
    assert again.calls == [result.best], "the evaluation of the earlier run is reused, and so it is verified again"


def test_a_kill_between_the_one_evaluation_and_its_confirmation_repeats_neither(archive: Archive) -> None:
    secret = Judge()
    stopped = begin(archive, budget=1, confirm=secret.evaluate, stop_requested=lambda: len(secret.calls) >= 1)
    assert stopped.interrupted
    assert go_on(archive, confirm=secret.evaluate).confirmed is True and len(secret.calls) == 1
