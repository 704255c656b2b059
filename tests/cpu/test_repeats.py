"""Launches that repeat a checked one run without checks, where checked ones have taken their time; others never do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.device.cpu import repeats
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.errors import CandidateError
from hipwright.program.signature import parse_signatures

SOURCE = r"""
extern "C" __global__ void shifted(const float* x, float* y, int n, int shift) {
    if (threadIdx.x < n) y[threadIdx.x + shift] = x[threadIdx.x];
}
extern "C" __global__ void picked(const float* x, const int* at, float* y) { y[threadIdx.x] = x[at[threadIdx.x]]; }
"""


@pytest.fixture
def launcher(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> CpuLauncher:
    """A checked launcher that may run every repeat without checks."""
    monkeypatch.setattr(repeats, "CHECKED_S", 0.0)
    checked, plain = (gpu.cache.path(gpu.build(SOURCE, checked=which).blob) for which in (True, False))
    return CpuLauncher(str(checked), parse_signatures(SOURCE).signatures, repeats=str(plain))


def shift(launcher: CpuLauncher, x: torch.Tensor, y: torch.Tensor, by: int = 0) -> None:
    launcher.launch("shifted", (1, 1, 1), (64, 1, 1), 0, [x, y, 30, by])


def repeated(launcher: CpuLauncher) -> list[bool]:
    return [bool(entry.get("repeat")) for entry in launcher.stats()]


def test_a_repeat_computes_and_has_the_counts_of_the_checked_launch(launcher: CpuLauncher) -> None:
    for _ in range(2):
        x, y = torch.randn(30), torch.zeros(30)
        shift(launcher, x, y)
        assert torch.equal(x, y), "other tensors, other values"
    assert repeated(launcher) == [False, True]
    first, second = ({**entry, "seconds": 0, "repeat": 0} for entry in launcher.stats())
    assert first == second and second["write_bytes"] == 120


def test_other_sizes_scalars_and_addresses_are_checked(launcher: CpuLauncher) -> None:
    x, y = launcher.guard(torch.randn(31)), launcher.empty((40,), torch.float32)
    shift(launcher, x, y)
    shift(launcher, x, y, 1)
    shift(launcher, x[1:], y)
    shift(launcher, launcher.guard(torch.randn(33)), y)
    shift(launcher, y, y, 0)
    shift(launcher, launcher.guard(torch.randn(31)), y)
    assert repeated(launcher) == [False] * 5 + [True]
    with pytest.raises(CandidateError, match="outside"):
        shift(launcher, x, y, 20)


def test_whole_numbers_in_memory_may_be_addresses(launcher: CpuLauncher) -> None:
    x, y = torch.randn(64), torch.zeros(64)
    for places in (torch.arange(64), torch.arange(64).flip(0)):
        launcher.launch("picked", (1, 1, 1), (64, 1, 1), 0, [x, places.int(), y])
    assert repeated(launcher) == [False, False]


def test_within_its_time_every_launch_is_checked(launcher: CpuLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "CHECKED_S", 5.0)
    for _ in range(3):
        shift(launcher, torch.randn(30), torch.zeros(30))
    assert not any(repeated(launcher))
