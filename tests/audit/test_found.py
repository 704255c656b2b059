"""Outcomes: what is right, what is the wrong reason, what is an acceptance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hipwright.audit import suite
from hipwright.audit.cases import CorpusCase, all_cases
from hipwright.audit.found import ObservedVerdict, compare
from hipwright.audit.run import matrix, run
from hipwright.errors import DeviceError

HONEST = CorpusCase(form="program", kind="honest", name="good", task="row_sum")
HOSTILE = CorpusCase(
    form="program", kind="hostile", name="bad", task="row_sum", row="A3", checks=("values",), statuses=("wrong_value",)
)
DECOY = CorpusCase(
    form="program", kind="hostile", name="decoy", task="row_sum", row="B2", checks=("coverage",), statuses=("pass",)
)


def found(status: str, **more: Any) -> ObservedVerdict:
    fault = None if status == "pass" else "candidate"
    return ObservedVerdict(status=status, **{"fault": fault, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "what", "outcome"),
    [
        (HONEST, found("pass"), "right"),
        (HONEST, found("pass", coverage=0.0), "right"),
        (HONEST, found("wrong_value"), "rejected"),
        (HONEST, found("wrong_value", fault="service"), "void"),
        (HONEST, found("unscorable", fault="task"), "void"),
        (HOSTILE, found("wrong_value"), "right"),
        (HOSTILE, found("pass"), "accepted"),
        (HOSTILE, found("pass", coverage=0.7), "accepted"),
        (HOSTILE, found("pass", coverage=0.01), "wrong reason"),
        (HOSTILE, found("out_of_bounds"), "wrong reason"),
        (HOSTILE, found("wrong_value", message="in a second call"), "wrong reason"),
        (HOSTILE, found("unscorable", fault="device"), "void"),
        (HOSTILE, ObservedVerdict(not_run="no GPU"), "not run"),
        (DECOY, found("pass", coverage=0.0), "right"),
        (DECOY, found("pass", coverage=1.0), "accepted"),
        (DECOY, found("pass"), "accepted"),
    ],
)
def test_outcomes(case: CorpusCase, what: ObservedVerdict, outcome: str) -> None:
    assert compare(case, "v", what).outcome == outcome


class Scripted:
    """A verifier that says what it is told."""

    name = "scripted"

    def __init__(self, say: Any) -> None:
        self._say = say

    def judge(self, case: CorpusCase) -> ObservedVerdict:
        answer = self._say(case)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_verifier_that_accepts_everything_is_fooled() -> None:
    results = run(Scripted(lambda case: found("pass", coverage=1.0)), all_cases(), workers=3)
    assert [judged.case for judged in results] == list(all_cases())
    one = matrix(results)["scripted"]
    bad = sum(not case.honest for case in all_cases())
    assert (one.accepted, one.rejected, one.fooled) == (bad, 0, True)
    assert one.counts["honest"] == Counter(right=len(all_cases()) - bad)
    assert {judged.outcome for judged in one.but_right()} == {"accepted"}


def test_a_verifier_that_rejects_everything_is_fooled_too() -> None:
    one = matrix(run(Scripted(lambda case: found("wrong_value")), all_cases()))["scripted"]
    assert one.accepted == 0 and one.rejected == sum(case.honest for case in all_cases())
    told = one.to_dict()
    assert told["counts"]["honest"]["rejected"] == one.rejected and len(told["cases"]) == len(all_cases())


def test_a_broken_device_is_nobodys_mistake() -> None:
    one = matrix(run(Scripted(lambda case: DeviceError("gone")), all_cases()[:7]))["scripted"]
    assert not one.fooled and one.void == 7


def test_a_task_is_closed_once_after_its_last_case() -> None:
    judged, closed = [], []
    run(
        Scripted(lambda case: found("pass")),
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
