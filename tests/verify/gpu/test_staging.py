"""Staged copies to and from the device keep the bytes, whatever their size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.tensors import tensor_leaves
from hipwright.torchio import to_torch
from hipwright.verify.worker import staging, trees
from hipwright.verify.worker.staging import ALIGN, PinnedStaging


@given(st.lists(st.lists(st.integers(0, 300), max_size=6), min_size=1, max_size=4))
def test_bytes_arrive_whole_in_every_call(calls: list[list[int]]) -> None:
    """Pieces of any size, before and after the memory has grown, and those that do not fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "MOST_BYTES", 4 * ALIGN)
        made = PinnedStaging("cpu")
        for sizes in calls:
            made.begin()
            raw = [torch.from_numpy(np.random.default_rng(n).integers(0, 255, n, dtype=np.uint8)) for n in sizes]
            sent = [one.clone() for one in raw]
            there = [made.upload(one) for one in sent]
            back = [made.download(one) for one in there]
            for one in sent:
                one.zero_()  # the host's memory may change once it was copied
            reply = [fetch() for fetch in back]
            assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(raw, there, reply, strict=True))


def test_results_outlive_the_next_call() -> None:
    """A reply of many calls is sent after the last of them."""
    made = PinnedStaging("cpu")
    for _ in range(2):  # the second time there is memory
        made.begin()
        first = made.download(torch.arange(5.0))()
    made.begin()
    made.download(torch.zeros(5))()
    assert first.tolist() == [0, 1, 2, 3, 4]


def test_the_next_program_finds_nothing_of_the_last_ones_answers() -> None:
    made = PinnedStaging("cpu")
    for _ in range(2):  # the second time there is memory
        made.begin()
        made.download(made.upload(torch.full((1000,), 7, dtype=torch.uint8)))()
    assert made._down._memory[:1000].eq(7).all() and made._up._memory[:1000].eq(7).all()
    made.begin()
    assert not made._down._memory.any() and not made._up._memory[:1000].any()


def test_outputs_keep_strides_gaps_and_types_through_staging() -> None:
    """A nesting is kept, with each tensor's own elements only."""
    x = torch.arange(24, dtype=torch.float16).view(4, 6)
    value = {
        "a": x[:, 1:4],
        "b": [x.t(), x[0].expand(3, 6)],
        "c": torch.tensor([True, False]),
        "d": torch.empty(0, 2),
        "e": torch.tensor(3, dtype=torch.int64),
    }
    made = PinnedStaging("cpu")
    for _ in range(2):
        made.begin()
        reply = trees.start_fetch(value, "cpu", made)()
        assert reply.keys() == value.keys() and isinstance(reply["b"], list)
        for one, other in zip(trees.tensors_of(value), tensor_leaves(reply), strict=True):
            assert (one.shape, one.stride()) == (other.shape, other.stride)
            assert torch.equal(to_torch(other), one) and to_torch(other).dtype == one.dtype
