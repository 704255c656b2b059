"""Programs with state and workspace, several calls in a row, in a GPU's worker."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.audit.cases import CorpusCase, select
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.sequences.call_sequence import KEPT, SequencedCall
from hipwright.verify.verification import Gate, Verification
from tests.verify.conftest import Tasks
from tests.verify.gpu.judged_programs import verdict_of
from tests.verify.gpu.test_gpu_worker import loaded
from tests.verify.test_reply import CASE, INFO, TREE, X

NAMES = (
    "workspace_*",
    "running_statistics",
    "ema_*",
    "alternating_buffers",
    "packs_a_changing_buffer",
    "packs_the_count",
    "own_copy_in_place",
)
CASES = select(NAMES, form="program")


@pytest.mark.parametrize("gate", ["full", "fast"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_calls_leave_behind_is_judged(case: CorpusCase, gate: Gate, tasks: Tasks, worker: CandidateWorker) -> None:
    verdict = verdict_of(case.text, tasks.oracle(case.task), worker, gate=gate)
    assert verdict.status in case.statuses, verdict.message
    assert case.message_matches(verdict.message), verdict.message
    assert not verdict.passed or verdict.checks["calls_on_one_state"] == 5


STEPS = [SequencedCall(CASE, {"keep": KEPT}), SequencedCall(CASE, {"reuse": True}, frozenset())]


@pytest.mark.parametrize("kept", [None, X, {}, {"outputs": X, "more": X}, [X]])
def test_what_was_kept_is_looked_at(kept: Any) -> None:
    with pytest.raises(Rejected) as caught:
        loaded(({"runs": [INFO, INFO, {}]}, [TREE, TREE, kept])).sequence(STEPS)
    assert caught.value.verdict.status == "hack"


@pytest.mark.parametrize("runs", [[], [INFO], [INFO, INFO]])
def test_a_sequence_has_all_of_its_replies(runs: list[Any]) -> None:
    judge: Any = Verification.__new__(Verification)
    judge.judge, judge.checks = (lambda *_: None), {}
    with pytest.raises(Rejected) as caught:
        judge.judge_sequence(STEPS, loaded(({"runs": runs}, [TREE] * len(runs))).sequence(STEPS))
    assert caught.value.verdict.status == "hack"
