"""The corpus as a test suite for any verifier.

    import pytest
    from hipwright.audit import suite

    @pytest.mark.parametrize("case", suite.params(target="cuda"))
    def test_my_verifier(case):
        status = my_verifier(case.text, case.task_path.read_text())      # "pass", "wrong_value", ...
        suite.check(case, status)

`check` requires only what every verifier must do: accept an honest candidate, and give no credit to any other.
`strictly=True` also requires the status that the corpus names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.audit.cases import CorpusCase, select
from hipwright.audit.verdicts import ObservedVerdict, judge_case
from hipwright.records import Status

cases = select


def params(
    patterns: Sequence[str] = (), *, marks: Callable[[CorpusCase], Sequence[Any]] = lambda _: (), **chosen: str | None
) -> list[Any]:
    """`pytest.param` objects for parametrize, with ids. patterns, form, kind, target: as `cases.select`."""
    import pytest

    return [pytest.param(case, id=case.id, marks=marks(case)) for case in select(patterns, **chosen)]


def check(
    case: CorpusCase,
    status: Status | ObservedVerdict,
    *,
    coverage: float | None = None,
    message: str = "",
    strictly: bool = False,
) -> None:
    """Raises AssertionError when the verifier was wrong about the case.

    coverage: the share of the work that is the candidate's own, where the verifier reports it: a correct result of
    which nothing is its own earns nothing, and is no acceptance.
    """
    observed = (
        status
        if isinstance(status, ObservedVerdict)
        else ObservedVerdict(status=status, coverage=coverage, message=message)
    )
    judged = judge_case(case, "the verifier", observed)
    if judged.outcome in ("accepted", "rejected", "void"):
        raise AssertionError(f"{case.id} is {judged.outcome}: {judged.why}")
    if strictly and observed.status not in case.statuses:
        raise AssertionError(f"{case.id}: {judged.why}")
