"""Loads of tiles: the elements that a row does not have are zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

ITEMS, THREADS = 3, 32
LOADS = {
    "load_tile": "load_tile<TILE_ITEMS, TILE_VEC>(p, base, step, n)",
    "load_row_interior": "load_row_interior<TILE_ITEMS, TILE_VEC>(p, base, step, n / TILE_VEC * TILE_VEC, n)",
    "load_unaligned_tile": "load_unaligned_tile<TILE_ITEMS, TILE_VEC>(p, base, step, n)",
    "load_strided_row": "load_strided_row<TILE_ITEMS, TILE_VEC>(p, base, step, n / TILE_VEC * TILE_VEC, 64, 64)",
    "load_reversed": "load_reversed<TILE_ITEMS, TILE_VEC>(p + n - 1, base, step, n)",
}
WHOLE = ("load_row_interior", "load_strided_row")
"""Loads of rows that consist of whole vectors."""
SOURCE = """
#include <hipwright/unaligned.h>
#include <hipwright/strided.h>
#include <hipwright/reversed.h>
extern "C" __global__ void run(const {type}* __restrict__ p, {type}* __restrict__ y, int n) {{
    const int base = threadIdx.x * TILE_VEC, step = blockDim.x * TILE_VEC;
    const auto tile = {load};
    for (int k = 0; k < TILE_ITEMS * TILE_VEC; ++k) y[threadIdx.x * (TILE_ITEMS * TILE_VEC) + k] = tile.v[k];
}}
"""
TYPES = {"float": torch.float32, "__half": torch.float16}


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("vector", [1, 4, 8])
@pytest.mark.parametrize("name", LOADS)
def test_elements_beyond_the_row_are_zero(gpu: Any, name: str, vector: int, type_: str) -> None:
    source = SOURCE.format(type=type_, load=LOADS[name])
    kernels = gpu.load(source, wave=32, defines={"TILE_ITEMS": ITEMS, "TILE_VEC": vector})

    @settings(max_examples=8, deadline=None, database=None)
    @given(st.integers(1, ITEMS * THREADS * vector))
    def check(n: int) -> None:
        row = torch.arange(1, n + 1).to(TYPES[type_])
        found = torch.full((THREADS, ITEMS, vector), -1.0, dtype=TYPES[type_])
        kernels.launch("run", (1, 1, 1), (THREADS, 1, 1), 0, [row, found, n])
        whole = n // vector * vector if name in WHOLE else n
        expected = torch.zeros(ITEMS * THREADS * vector, dtype=TYPES[type_])
        expected[:whole] = row.flip(0)[:whole] if name == "load_reversed" else row[:whole]
        assert torch.equal(found.transpose(0, 1).reshape(-1), expected)

    check()
