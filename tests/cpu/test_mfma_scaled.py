"""Scaled matrix instructions of gfx950 on the cpu target: types, scales and layout, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hipwright.errors import CandidateError
from tests.small_floats import FORMATS, codes, lanes, packed

SHAPES = ((16, 128), (32, 64))
KINDS = [(0, 0), (1, 1), (0, 1), (2, 2), (3, 3), (4, 4), (4, 2)]
KERNEL = """
extern "C" __global__ void k_{size}_{a}_{b}_{first}_{second}(const int* x, const int* y, const int* scales, float* d) {{
    typedef int Operand __attribute__((ext_vector_type(8)));
    typedef float Sums __attribute__((ext_vector_type({items})));
    Operand a, b;
    for (int i = 0; i < 8; i++) a[i] = x[i * 64 + threadIdx.x], b[i] = y[i * 64 + threadIdx.x];
    Sums c;
    for (int i = 0; i < {items}; i++) c[i] = 1;
    c = __builtin_amdgcn_mfma_scale_f32_{size}x{size}x{depth}_f8f6f4(
        a, b, c, {a}, {b}, {first}, scales[threadIdx.x], {second}, scales[64 + threadIdx.x]);
    for (int i = 0; i < {items}; i++) d[i * 64 + threadIdx.x] = c[i];
}}
"""


def _kernel(size: int, depth: int, kinds: tuple[int, int], first: int, second: int) -> str:
    return KERNEL.format(
        size=size, depth=depth, items=size * size // 64, a=kinds[0], b=kinds[1], first=first, second=second
    )


SOURCE = "".join(
    _kernel(size, depth, kinds, first, second)
    for size, depth in SHAPES
    for kinds in [*KINDS, (0, 4)]
    for first, second in ((0, 0), (3, 1))
)


def _run(gpu, size: int, kinds: tuple[int, int], chosen: tuple[int, int], registers: list[np.ndarray]) -> np.ndarray:
    """The matrix (M, M) of a kernel. registers: of A, of B, and the scales (2, 64)."""
    operands = [np.zeros((8, 64), np.int32), np.zeros((8, 64), np.int32)]
    for operand, given in zip(operands, registers, strict=False):
        operand[: len(given)] = given.view(np.int32)
    d = torch.zeros(size * size // 64, 64)
    inputs = [torch.from_numpy(one) for one in (*operands, registers[2].view(np.int32))]
    gpu.run(SOURCE, f"k_{size}_{kinds[0]}_{kinds[1]}_{chosen[0]}_{chosen[1]}", 1, 64, [*inputs, d])
    made = np.empty((size, size))
    for i, j in np.ndindex(size, size):
        lane, item = (16 * (i // 4) + j, i % 4) if size == 16 else (32 * (i // 4 % 2) + j, 4 * (i // 8) + i % 4)
        made[i, j] = d[item, lane].item()
    return made


@pytest.mark.parametrize(("size", "depth"), SHAPES)
@pytest.mark.parametrize("kinds", KINDS)
def test_scaled_products(gpu, size: int, depth: int, kinds: tuple[int, int]) -> None:
    rng = np.random.default_rng(13)
    names = [list(FORMATS)[kind] for kind in kinds]
    both = [codes(rng, name, (size, depth), "gfx950") for name in names]
    registers = [
        packed(lanes(one, FORMATS[name] == 8), FORMATS[name]) for name, (one, _) in zip(names, both, strict=True)
    ]
    scales = rng.integers(126, 129, (2, size, depth // 32, 4))
    held = np.concatenate([packed(one.transpose(1, 0, 2).reshape(64, 4), 8) for one in scales])
    for chosen in ((0, 0), (3, 1)):
        x, y = (
            values * np.repeat(2.0 ** (one[..., byte] - 127), 32, axis=1)
            for (_, values), one, byte in zip(both, scales, chosen, strict=True)
        )
        assert (_run(gpu, size, kinds, chosen, [*registers, held]) == x @ y.T + 1).all()
    plain = np.zeros((2, 64), np.uint32)  # no scales
    assert (_run(gpu, size, kinds, (0, 0), [*registers, plain]) == both[0][1] @ both[1][1].T + 1).all()


def test_a_mix_of_8_bits_and_fewer_is_refused(gpu) -> None:
    nothing = np.zeros((2, 64), np.uint32)
    with pytest.raises(CandidateError, match="mix of types"):
        _run(gpu, 16, (0, 4), (0, 0), [nothing, nothing, nothing])
