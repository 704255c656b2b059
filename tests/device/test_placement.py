"""Large inputs begin a page, on the candidate's side and on a baseline's; values, strides and sharing stay."""

from __future__ import annotations

import pytest
import torch

from hipwright.device.placement import LARGE, PAGE, page_aligned, page_aligned_bytes
from hipwright.records import TensorSpec
from hipwright.verify.gpu.resident_inputs import ZONE, ResidentInputs


@pytest.mark.parametrize("margin", [0, 4096])
@pytest.mark.parametrize("nbytes", [LARGE, LARGE + 1, 3 * LARGE + 12])
def test_a_large_room_begins_a_page_behind_its_margin(nbytes: int, margin: int) -> None:
    found = page_aligned_bytes(nbytes, "cpu", margin)
    assert found.numel() == nbytes + 2 * margin
    assert (found.data_ptr() + margin) % PAGE == 0


@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_a_small_room_takes_no_page(nbytes: int) -> None:
    assert page_aligned_bytes(nbytes, "cpu", 64).untyped_storage().nbytes() == nbytes + 128


def test_what_a_candidate_gets_begins_a_page_and_what_lies_beside_it_is_watched() -> None:
    sets = ResidentInputs("cpu")
    spec = TensorSpec(dtype="float32", shape=(512, 1024), stride=(1024, 1))
    sets.open("timed", 0, (spec, TensorSpec(dtype="int64", shape=(3,), stride=(1,))), 0)
    slot = sets.slot("timed", 0)
    large, small = slot.tensors()
    assert large.data_ptr() % PAGE == 0
    large.fill_(1.0)
    small.fill_(7)
    assert slot.strays() == []
    before = torch.as_strided(large, (1,), (1,), large.storage_offset() - 1)
    before.fill_(0.0)
    assert slot.strays() == [0]
    behind = torch.as_strided(small, (1,), (1,), small.storage_offset() + 3 + ZONE // 8 - 1)
    behind.fill_(0)
    assert slot.strays() == [1]


def test_a_baselines_inputs_are_laid_alike() -> None:
    off = torch.randn(1 + (1 << 19))[1:].view(512, 1024).t()
    small = torch.randn(10)
    found, (kept, number) = page_aligned([off, (small, 3)])
    assert found.data_ptr() % PAGE == 0
    assert torch.equal(found, off)
    assert found.stride() == off.stride()
    assert kept is small
    assert number == 3


def test_what_shares_memory_stays_together() -> None:
    whole = torch.randn(1 + (1 << 19))
    one, other = whole[1:], whole[:-1]
    assert all(a is b for a, b in zip(page_aligned([one, other]), [one, other], strict=True))


def test_a_parameter_stays() -> None:
    given = torch.nn.Parameter(torch.randn(1 + (1 << 19))[1:])
    assert page_aligned([given])[0] is given
