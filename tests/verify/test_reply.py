"""Any reply of a worker that runs hostile code becomes a verdict or a WorkerError, never a crash or a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import BadInput, CandidateError, TaskError, WorkerError
from hipwright.records import Program
from hipwright.sandbox import Limits, WorkerDied
from hipwright.tensors import HostTensor
from hipwright.verify import VerificationCase, checked_trace
from hipwright.verify.candidate import CandidateSession, Rejected, judge
from hipwright.verify.expected import Expected
from hipwright.verify.tolerance import kernelbench_rule

X = HostTensor.of(np.arange(6, dtype=np.float32).reshape(2, 3))
CASE = VerificationCase("2x3", "given", 1, [X], {}, Expected({"outputs": kernelbench_rule("output", X), "buffers": {}}))
STAT = {
    "kernel": "k",
    "grid": [1, 1, 1],
    "block": [64, 1, 1],
    "argument_bytes": 8,
    "read_bytes": 4,
    "write_bytes": 4,
    "lds_bytes_moved": 0,
    "barriers": 0,
    "wave_ops": 0,
    "atomics": 0,
    "float_atomics": 0,
    "seconds": 0.1,
}
INFO = {"stats": [STAT], "aliases": [], "inputs_changed": [], "params_changed": []}
TREE = {"outputs": X, "buffers": {}}

text = st.text(st.characters(), max_size=4) | st.just("\ud800")
scalars = st.none() | st.booleans() | st.integers() | st.just(2**80) | st.floats() | text
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
tensors = st.sampled_from([X, HostTensor.of(np.zeros((2, 3), np.int64)), HostTensor.of(np.zeros(()))])
trees = junk | tensors | st.dictionaries(st.sampled_from(["outputs", "buffers"]), junk | tensors, max_size=2)


class Fake:
    """A zygote and its session in one; `reply` is what each call returns or raises."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def session(self, *_: object, **__: object) -> Fake:
        return self

    def call(self, *_: object, **__: object) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def cpu_seconds(self) -> None:
        return None

    def close(self) -> None:
        pass


def answer(reply: Any) -> None:
    """Runs and judges a case on a session with this reply."""
    fake: Any = Fake(reply)
    with CandidateSession(fake, Program(text=""), {}, so="x", limits=Limits()) as session:  # type: ignore[arg-type]
        judge(CASE, session.run(CASE))


def test_an_honest_reply_passes() -> None:
    answer((INFO, TREE))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(list(INFO)), junk, max_size=4) | junk, trees)
def test_junk_is_refused(info: Any, tree: Any) -> None:
    with pytest.raises(Rejected) as caught:
        answer((info, tree))
    verdict = caught.value.verdict
    assert verdict.fault == "candidate" and verdict.status in ("hack", "bad_output_spec", "wrong_value")
    assert verdict.to_json()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_one_wrong_field_is_a_hack(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([*STAT, *INFO]))
    value = data.draw(junk)
    stat = {**STAT, field: value} if field in STAT else STAT
    info = {**INFO, "stats": [stat], **({field: value} if field in INFO else {})}
    try:
        answer((info, TREE))
    except Rejected as rejected:
        assert rejected.verdict.status in ("hack", "input_mutated", "bad_output_spec") and rejected.verdict.to_json()


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["ops", "calls", "launches", "live"]), junk, min_size=1) | junk)
def test_a_trace_is_whole_or_an_error(header: Any) -> None:
    try:
        checked_trace(header)
    except WorkerError:
        return
    assert all(isinstance(header[key], list) for key in ("ops", "calls", "launches"))


@pytest.mark.parametrize("status", ["pass", "degenerate", "unscorable"])
@pytest.mark.parametrize(
    "error",
    [
        lambda status: CandidateError("fine", status=status),
        lambda status: WorkerDied(11, None, note={"status": status, "message": "fine"}),
        lambda status: TaskError("the task is to blame", status=status),
        lambda status: BadInput("the user is to blame", status=status),
    ],
)
def test_no_process_acquits_itself(error: Any, status: Any) -> None:
    with pytest.raises(Rejected) as caught:
        answer(error(status))
    assert caught.value.verdict.status == "hack" and caught.value.verdict.fault == "candidate"
    assert "2x3/given" in caught.value.verdict.message


def test_a_note_is_no_json_type_of_ours() -> None:
    for note in ({"status": ["pass"]}, {"status": {"a": 1}}, {"status": 3}, ["pass"], "pass"):
        with pytest.raises(Rejected) as caught:
            answer(WorkerDied(11, None, note=note))
        assert caught.value.verdict.status in ("hack", "out_of_bounds")


@settings(max_examples=100, deadline=None)
@given(text, junk)
def test_what_it_says_of_itself_can_be_kept(message: str, evidence: Any) -> None:
    with pytest.raises(Rejected) as caught:
        answer(CandidateError(message, status="launch_error", evidence={"said": evidence}))
    assert caught.value.verdict.status == "launch_error" and caught.value.verdict.to_json()
