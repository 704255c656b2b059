"""Memory that a call leaves to the next one: which is handed out again, with what contents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from hipwright.device.cpu.memory import GuardedMemory
from hipwright.verify.worker.reused_memory import Contents, MemoryUse, ReusedMemory, change_runs, run_mask
from hipwright.verify.worker.trees import address, bits


def reused() -> ReusedMemory:
    memory = GuardedMemory()
    return ReusedMemory(lambda shape, dtype: memory.empty(tuple(shape), dtype, 0xA5))


def call(
    memory: ReusedMemory, contents: Contents, shapes: Sequence[int], held: Sequence[int] = ()
) -> list[torch.Tensor]:
    memory.begin(MemoryUse(contents, 5), held)
    return [memory.empty((n,), torch.float32) for n in shapes]


def test_memory_comes_back_in_the_order_of_its_allocation() -> None:
    memory = reused()
    first = call(memory, "fresh", [8, 8, 16])
    for number, tensor in enumerate(first):
        tensor.fill_(number + 1.0)
    second = call(memory, "left", [8, 16, 8, 8])
    assert [address(t) for t in second[:3]] == [address(first[n]) for n in (0, 2, 1)]
    assert [float(t[0]) for t in second[:3]] == [1.0, 3.0, 2.0]
    assert torch.isnan(second[3]).all(), "nothing is left of that size"
    assert torch.isnan(torch.cat(call(memory, "fresh", [8, 8, 16]))).all()


def test_memory_that_an_earlier_result_needs_is_not_handed_out() -> None:
    memory = reused()
    first = call(memory, "fresh", [8, 8])
    second = call(memory, "left", [8], [address(first[0])])
    assert address(second[0]) == address(first[1])


def test_what_one_call_does_not_use_is_left_to_the_next() -> None:
    memory = reused()
    first = call(memory, "fresh", [8, 4])
    call(memory, "left", [8])
    assert address(call(memory, "left", [4])[0]) == address(first[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8])
def test_both_halves_of_a_memory_are_changed_in_turn(dtype: torch.dtype) -> None:
    first = torch.ones(500, dtype=dtype)
    other = first.clone()
    change_runs(first, 3, rest=False)
    change_runs(other, 3, rest=True)
    changed = [bits(t) != bits(torch.ones(500, dtype=dtype)) for t in (first, other)]
    assert torch.equal(changed[0], ~changed[1]) and 0 < int(changed[0].sum()) < 500
    assert dtype != torch.bool or int(bits(first).max()) <= 1, "booleans stay 0 or 1"


@pytest.mark.parametrize("key", [1, 2, 4])
@pytest.mark.parametrize("results", [1, 30, 3000])
def test_a_result_is_mostly_changed_without_its_key(key: int, results: int) -> None:
    """The share of draws in which a cache shows: its key (the last elements) stays, a result changes."""
    found = 0
    for seed in range(200):
        mask = run_mask(results + key, seed)
        found += any((part[results:] == 0).all() and part[:results].any() for part in (mask, ~mask))
    assert found / 200 >= (0.5 if results > 1 else 0.2)


def test_a_mask_has_runs_of_all_lengths() -> None:
    masks = [run_mask(10_000, seed) for seed in range(20)]
    lengths = np.concatenate([np.diff(np.flatnonzero(np.diff(mask.astype(int)))) for mask in masks])
    assert lengths.min() <= 2 and lengths.max() >= 1000
