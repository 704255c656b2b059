"""The fast path of a comparison gives the result of the slow one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor
from hipwright.verify import compare
from hipwright.verify.expected import Rule

VALUES = st.sampled_from([0.0, 1.0, -2.5, 1e-5, 0.9e-5, 1.1e-5, 3e38, float("nan"), float("inf"), -float("inf")])


@settings(max_examples=300)
@given(data=st.data())
def test_the_short_way_agrees(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (1,), (4,), (3, 4), (2, 3, 2)]))
    count = int(np.prod(shape))
    draw = st.lists(VALUES, min_size=count, max_size=count)
    expected = np.array(data.draw(draw)).reshape(shape)
    noise = np.array(data.draw(st.lists(st.sampled_from([0.0, 1e-6, 9e-6, 2e-5]), min_size=count, max_size=count)))
    with np.errstate(invalid="ignore", over="ignore"):
        got = HostTensor.of((expected + noise.reshape(shape)).astype(np.float32))
    length = shape[-1] if shape else 1
    rows = count // length
    by_row = np.full(rows, 8e-6) if data.draw(st.booleans()) else None
    spec = TensorSpec(dtype="float32", shape=shape, stride=got.stride)

    def rule() -> Rule:
        """A rule without accepted results."""
        return Rule("output", spec, expected, np.full(shape, 1e-5), by_row, length, np.full(rows, 1.5))

    whole = compare.compare_leaf(got, rule())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "worst_within", lambda got, rule: None)
        long = compare.compare_leaf(got, rule())
    assert (whole.ok, whole.where, whole.wrong, whole.message) == (long.ok, long.where, long.wrong, long.message)
    assert whole.worst_error == pytest.approx(long.worst_error, rel=1e-12)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 40)), min_size=1, max_size=12))
def test_a_known_result_is_judged_as_an_unknown_one(asked: list[tuple[int, int]]) -> None:
    """Whatever passed before: one changed byte, another layout or a gap is another result."""
    expected = np.arange(10.0).reshape(2, 5)

    def rule() -> Rule:
        spec = TensorSpec(dtype="float32", shape=(2, 5), stride=(5, 1))
        return Rule("output", spec, expected, np.full((2, 5), 0.05))

    known = rule()
    for nudge, changed in asked:
        values = (expected + 0.01 * nudge).astype(np.float32)
        raw = np.ascontiguousarray(values.T if nudge % 2 else values).reshape(-1).view(np.uint8).copy()
        if changed >= 0:
            raw[min(changed, 39)] ^= 0x40
        got = HostTensor("float32", (2, 5), (1, 2) if nudge % 2 else (5, 1), 0, raw)
        with np.errstate(invalid="ignore", over="ignore"):
            one, other = compare.compare_leaf(got, known), compare.compare_leaf(got, rule())
        assert (one.ok, one.where, one.message, one.wrong) == (other.ok, other.where, other.message, other.wrong)


def test_only_right_results_are_known_and_their_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec(dtype="float32", shape=(4,), stride=(1,))
    rule = Rule("output", spec, np.zeros(4), np.full(4, 0.1))
    made, compared = [], compare._compare_values
    monkeypatch.setattr(compare, "_compare_values", lambda got, rule: (made.append(1), compared(got, rule))[1])
    right, wrong = HostTensor.of(np.full(4, 0.05, np.float32)), HostTensor.of(np.ones(4, np.float32))
    assert [compare.compare_leaf(one, rule).ok for one in (right, wrong, right, wrong, right)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert len(made) == 3
    right.storage[:] = 0xFF  # the memory of a reply is reused
    assert not compare.compare_leaf(right, rule).ok
