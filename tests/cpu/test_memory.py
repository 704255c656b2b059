"""Guarded tensors: poison, every dtype, no leak."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from hipwright.device.cpu.memory import GuardedMemory
from tests.cpu.conftest import Gpu

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", FLOATS)
def test_fresh_floats_are_implausible(dtype: torch.dtype) -> None:
    memory = GuardedMemory()
    assert memory.empty((3, 5), dtype, 0xA5).isnan().all()
    other = memory.empty((3, 5), dtype, 0x5A)
    assert ((other.abs() > 1e38) | other.isnan()).all()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (), (1,), (7, 3), (1000, 1001)])
def test_shapes_and_dtypes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    memory = GuardedMemory()
    tensor = memory.empty(shape, dtype, 0xA5)
    assert (tensor.shape, tensor.dtype, tensor.stride()) == (torch.Size(shape), dtype, torch.empty(shape).stride())
    tensor.fill_(1)
    assert (tensor == 1).all()
    if dtype == torch.bool:
        assert set(memory.empty((9,), dtype, 0xA5).tolist()) == {True}
        assert set(memory.empty((9,), dtype, 0x5A).tolist()) == {False}


def test_a_copy_keeps_strides_and_offset() -> None:
    memory = GuardedMemory()
    source = torch.arange(24.0).reshape(4, 6).t()[1:, ::2]
    copy = memory.copy(source, 0xA5)
    assert torch.equal(copy, source)
    assert (copy.stride(), copy.storage_offset()) == (source.stride(), source.storage_offset())
    assert copy.untyped_storage().nbytes() == source.untyped_storage().nbytes()
    assert memory.copy(torch.zeros(0), 0xA5).shape == (0,)


def test_buffers_are_found_and_strays_seen() -> None:
    memory = GuardedMemory()
    tensor = memory.empty((5,), torch.float32, 0xA5)
    region = memory.find(tensor.data_ptr() + 19)
    assert region is not None
    assert (region.start, region.size, region.start % 16) == (tensor.data_ptr(), 20, 0)
    assert memory.find(tensor.data_ptr() + 20) is None
    assert region.stray() is None
    for offset in (-1, -64, 20):
        byte = torch.frombuffer(
            (__import__("ctypes").c_ubyte * 1).from_address(region.start + offset), dtype=torch.uint8
        )
        old = byte.item()
        byte.fill_(7)
        assert region.stray() == offset
        byte.fill_(old)


def mapped_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 / 1e6


def test_memory_goes_back_when_tensors_die() -> None:
    memory = GuardedMemory()
    view = memory.empty((1000,), torch.float32, 0xA5)[3:5]
    gc.collect()
    assert view.numel() == 2
    assert memory.find(view.data_ptr()) is not None  # a view keeps its buffer
    before = mapped_mb()
    for _ in range(200):
        memory.empty((1 << 20,), torch.float32, 0xA5)
    gc.collect()
    assert mapped_mb() - before < 50


def test_the_storage_of_an_empty_tensor_can_be_copied() -> None:
    tensor = GuardedMemory().empty((0, 7), torch.float32, 0xA5)
    assert tensor.untyped_storage().clone().nbytes() == 1 and tensor.clone().shape == (0, 7)


WAITING = r"""
extern "C" __global__ void turn(float* x) {
    __shared__ float part[1024];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = part[1023 - threadIdx.x];
}
"""


def test_stacks_are_given_back(gpu: Gpu) -> None:
    """A process may have some 65,000 mappings; a launcher of blocks of 1024 that wait takes two thousand."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    before = mappings()
    for _ in range(3):
        x = torch.arange(1024.0)
        launcher = gpu.load(WAITING)
        for _ in range(2):
            launcher.launch("turn", (1, 1, 1), (1024, 1, 1), 0, [x])
        assert torch.equal(x, torch.arange(1024.0)) and mappings() > before + 2000
        del launcher, gpu.launcher
        gc.collect()
        assert mappings() < before + 200
