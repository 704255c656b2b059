"""Outcomes: as expected, for the wrong reason, accepted, rejected."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hipwright.audit import suite
from hipwright.audit.cases import CorpusCase, all_cases
from hipwright.audit.confusion import confusion_matrices, run_corpus
from hipwright.audit.verdicts import ObservedVerdict, judge_case
from hipwright.errors import DeviceError

HONEST = CorpusCase(form="program", kind="honest", name="good", task="row_sum")
HOSTILE = CorpusCase(
    form="program", kind="hostile", name="bad", task="row_sum", row="A3", checks=("values",), statuses=("wrong_value",)
)
DECOY = CorpusCase(
    form="program", kind="hostile", name="decoy", task="row_sum", row="B2", checks=("coverage",), statuses=("pass",)
)


def verdict(status: str, **more: Any) -> ObservedVerdict:
    fault = None if status == "pass" else "candidate"
    return ObservedVerdict(status=status, **{"fault": fault, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "what", "outcome"),
    [
        (HONEST, verdict("pass"), "right"),
        (HONEST, verdict("pass", coverage=0.0), "right"),
        (HONEST, verdict("wrong_value"), "rejected"),
        (HONEST, verdict("wrong_value", fault="service"), "void"),
        (HONEST, verdict("unscorable", fault="task"), "void"),
        (HOSTILE, verdict("wrong_value"), "right"),
        (HOSTILE, verdict("pass"), "accepted"),
        (HOSTILE, verdict("pass", coverage=0.7), "accepted"),
        (HOSTILE, verdict("pass", coverage=0.01), "wrong reason"),
        (HOSTILE, verdict("out_of_bounds"), "wrong reason"),
        (HOSTILE, verdict("wrong_value", message="in a second call"), "wrong reason"),
        (HOSTILE, verdict("unscorable", fault="device"), "void"),
        (HOSTILE, ObservedVerdict(not_run="no GPU"), "not run"),
        (DECOY, verdict("pass", coverage=0.0), "right"),
        (DECOY, verdict("pass", coverage=1.0), "accepted"),
        (DECOY, verdict("pass"), "accepted"),
    ],
)
def test_outcomes(case: CorpusCase, what: ObservedVerdict, outcome: str) -> None:
    assert judge_case(case, "v", what).outcome == outcome


class ScriptedVerifier:
    """A verifier with given verdicts."""

    name = "scripted"

    def __init__(self, say: Any) -> None:
        self._say = say

    def judge(self, case: CorpusCase) -> ObservedVerdict:
        answer = self._say(case)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_verifier_that_accepts_everything_fails() -> None:
    results = run_corpus(ScriptedVerifier(lambda case: verdict("pass", coverage=1.0)), all_cases(), workers=3)
    assert [judged.case for judged in results] == list(all_cases())
    one = confusion_matrices(results)["scripted"]
    bad = sum(not case.honest for case in all_cases())
    assert (one.accepted, one.rejected, one.failed) == (bad, 0, True)
    assert one.counts["honest"] == Counter(right=len(all_cases()) - bad)
    assert {judged.outcome for judged in one.unexpected()} == {"accepted"}


def test_a_verifier_that_rejects_everything_fails() -> None:
    one = confusion_matrices(run_corpus(ScriptedVerifier(lambda case: verdict("wrong_value")), all_cases()))["scripted"]
    assert one.accepted == 0 and one.rejected == sum(case.honest for case in all_cases())
    told = one.to_dict()
    assert told["counts"]["honest"]["rejected"] == one.rejected and len(told["cases"]) == len(all_cases())


def test_device_faults_count_for_nobody() -> None:
    one = confusion_matrices(run_corpus(ScriptedVerifier(lambda case: DeviceError("gone")), all_cases()[:7]))[
        "scripted"
    ]
    assert not one.failed and one.void == 7


def test_a_task_is_closed_once_after_its_last_case() -> None:
    judged, closed = [], []
    run_corpus(
        ScriptedVerifier(lambda case: verdict("pass")),
        all_cases(),
        listener=lambda one: judged.append(one.case.task),
        done=lambda case: closed.append((case.task, len(judged))),
    )
    assert sorted(task for task, _ in closed) == sorted(set(judged))
    for task, when in closed:
        assert task not in judged[when:]


def test_the_suite_for_others() -> None:
    params = suite.params(form="program", kind="hostile", target="cuda")
    assert params and all(param.id == param.values[0].id for param in params)
    suite.check(HONEST, "pass")
    suite.check(HOSTILE, "out_of_bounds")
    suite.check(DECOY, "pass", coverage=0.0)
    with pytest.raises(AssertionError, match="rejected"):
        suite.check(HONEST, "wrong_value")
    with pytest.raises(AssertionError, match="accepted"):
        suite.check(HOSTILE, "pass")
    with pytest.raises(AssertionError, match="not wrong_value"):
        suite.check(HOSTILE, "out_of_bounds", strictly=True)
