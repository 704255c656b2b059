"""The short way through a comparison says what the long way says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor
from hipwright.verify import compare

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
    rule = compare.Rule(
        "output", TensorSpec(dtype="float32", shape=shape, stride=got.stride), expected, np.full(shape, 1e-5),
        np.full(rows, 8e-6) if data.draw(st.booleans()) else None, length, np.full(rows, 1.5),
    )  # fmt: skip
    whole = compare.compare_leaf(got, rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "_quick", lambda values, rule: None)
        long = compare.compare_leaf(got, rule)
    assert (whole.ok, whole.where, whole.wrong, whole.message) == (long.ok, long.where, long.wrong, long.message)
    assert whole.worst_error == pytest.approx(long.worst_error, rel=1e-12)
