"""A fake driver with two kernels on CPU tensors: one copies, one writes a byte at an offset."""

from __future__ import annotations

import ctypes

from .fake_driver import FakeDriver, pointer

HIP = """
extern "C" __global__ void copy(const float* x, float* y, int n) {}
extern "C" __global__ void poke(char* y, long at) {}
extern "C" __global__ void absent(float* y) {}
"""
SIZES = {"copy": (8, 8, 4), "poke": (8, 8)}
GRID, BLOCK = (1, 1, 1), (32, 1, 1)


def poke(values: list[bytes]) -> None:
    ctypes.memset(pointer(values[0]) + int.from_bytes(values[1], "little", signed=True), 0, 1)


def copy(values: list[bytes]) -> None:
    ctypes.memmove(pointer(values[1]), pointer(values[0]), 4 * int.from_bytes(values[2], "little"))


def copy_driver() -> FakeDriver:
    """A driver of both kernels."""
    return FakeDriver(SIZES, {"poke": poke, "copy": copy})
