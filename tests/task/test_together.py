"""Small tensors that are moved together arrive as one by one, whatever their types and layouts."""

import pytest
import torch

from hipwright.task.host import together


@pytest.fixture(params=["near", "far"])
def place(request, monkeypatch):
    """The CPU in place of a GPU: "far" moves as between a host and a GPU."""
    monkeypatch.setattr(together, "_is_far", lambda tensor: request.param == "far")


def tensors() -> list[torch.Tensor]:
    plain = [torch.randn(n, m).to(dtype) for n, m in ((1, 3), (5, 2)) for dtype in (torch.float32, torch.bfloat16)]
    odd = [torch.tensor(7), torch.empty(0, 3), torch.randn(4, 6).t(), torch.randn(8)[2:5], torch.rand(1).expand(4)]
    return [*plain, *odd, torch.randn(together.SMALL_BYTES), torch.tensor(True), torch.randn(2, dtype=torch.complex64)]


def test_values_arrive(place):
    given = tensors()
    made = together.on_host(given)
    assert all(torch.equal(one, other) for one, other in zip(made, given, strict=True))
    targets = [torch.zeros(one.shape, dtype=torch.promote_types(one.dtype, torch.float64)) for one in given]
    together.fill(targets, given)
    assert all(torch.equal(one, other.to(one.dtype)) for one, other in zip(targets, given, strict=True))


def test_copies_are_of_what_fills_its_memory_alone():
    given = [*tensors(), torch.ones(3)]
    given.append(given[-1].view(3, 1))
    made = together.cloned(given)
    assert all(torch.equal(made[id(one)], one) for one in given if id(one) in made)
    places = {one.untyped_storage().data_ptr() for one in made.values()}
    assert len(places) == len(made) and id(given[-1]) not in made and id(given[0]) in made
    assert id(given[7]) not in made  # a part of a larger storage


def test_a_change_shows_in_the_sums(place):
    given = tensors()

    def sums() -> list[int]:
        return [int(one) for one in together.sums_of_bits(given)]

    for number, tensor in enumerate(given):
        if not tensor.numel() or 0 in tensor.stride():
            continue
        before, kept = sums(), tensor.clone()
        tensor.copy_(~tensor if tensor.dtype == torch.bool else tensor + 1)
        assert sums() != before, number
        tensor.copy_(torch.roll(kept, 1))
        if together._is_far(tensor) and tensor.nbytes <= together.SMALL_BYTES:  # there places count
            assert (sums() != before) == (not torch.equal(tensor, kept)), number
        tensor.copy_(kept)
        assert sums() == before
