"""One input element left out: how often the verifier's cases notice it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipwright.audit.cases import task_path
from hipwright.audit.dropped_element import DroppedElement, dropped_elements
from hipwright.audit.verifiers import AuditSession, open_audit


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditSession]:
    with open_audit(seed=20, cache_folder=tmp_path_factory.mktemp("builds")) as opened:
        yield opened


def test_a_sum_notices_every_place(session: AuditSession) -> None:
    sums = dropped_elements(session.evaluator(task_path("row_sum")), places=2)
    assert len(sums) >= 3 and all(one.noticed == one.places == 2 for one in sums)


@pytest.mark.slow
def test_a_softmax_of_one_column_notices_none(session: AuditSession) -> None:
    narrow = [one for one in dropped_elements(session.evaluator(task_path("softmax_wide")), 2) if one.shapes[0][1] == 1]
    assert narrow and all(one.noticed == 0 for one in narrow)


def test_a_task_of_integers_has_no_rows(session: AuditSession) -> None:
    assert dropped_elements(session.evaluator(task_path("histogram")), places=1) == []


def test_a_row_says_its_interval() -> None:
    row = DroppedElement("given", ((2, 3),), 6, 4, 4).to_dict()
    assert row["shapes"] == [[2, 3]] and row["interval"][0] > 0.4 and row["interval"][1] == pytest.approx(1.0)
