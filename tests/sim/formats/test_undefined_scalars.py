"""Undefined bits of scalar registers: what instructions make of them, as tests/sim/test_undefined.py for vector ones.

clang loads a byte to half a register, reads its first lane into a scalar register, and masks: what it asks for is
defined, the register as a whole is not (found by generated kernels).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.harness import Simulated

U32 = np.uint32
M = 0xFFFFFFFF
Scalar = Callable[[int, int], int]


def _signed(x: int) -> int:
    return x - (x >> 31 << 32)


def _field(a: int, b: int) -> int:
    at, width = b & 31, min(b >> 16 & 127, 32 - (b & 31))
    return a >> at & ((1 << width) - 1)


OPS: dict[str, Scalar] = {
    "s_mov_b32 s22, s20": lambda a, b: a,
    "s_and_b32 s22, s20, s21": lambda a, b: a & b,
    "s_or_b32 s22, s20, s21": lambda a, b: a | b,
    "s_xor_b32 s22, s20, s21": lambda a, b: a ^ b,
    "s_andn2_b32 s22, s20, s21": lambda a, b: a & ~b,
    "s_and_b32 s22, s20, 0xff": lambda a, b: a & 0xFF,
    "s_lshl_b32 s22, s20, 4": lambda a, b: a << 4,
    "s_lshr_b32 s22, s20, 9": lambda a, b: a >> 9,
    "s_ashr_i32 s22, s20, 9": lambda a, b: _signed(a) >> 9,
    "s_bfe_u32 s22, s20, 0xa0003": lambda a, b: _field(a, 0xA0003),
    "s_pack_ll_b32_b16 s22, s20, s21": lambda a, b: (a & 0xFFFF) | b << 16,
    "s_sext_i32_i8 s22, s20": lambda a, b: _signed((a & 0xFF ^ 0x80) - 0x80 & M),
    "s_sext_i32_i16 s22, s20": lambda a, b: _signed((a & 0xFFFF ^ 0x8000) - 0x8000 & M),
    "s_add_i32 s22, s20, s21": lambda a, b: a + b,
    "s_sub_u32 s22, s20, s21": lambda a, b: a - b,
    "s_mul_i32 s22, s20, s21": lambda a, b: a * b,
    "s_ff1_i32_b32 s22, s20": lambda a, b: (a & -a).bit_length() - 1 if a else -1,
}
EXACT = ("s_mov", "s_and", "s_or", "s_xor", "s_lsh", "s_bfe", "s_pack", "s_sext_i32_i8")
MASKS = [(0xFFFF0000, 0), (0xFFFF0000, 0xFFFF0000), (0x00FF0F0F, 0x80000001), (0, 0), (0, 0xFFFFFF00), (M, 0)]


def _found(simulated: Simulated, line: str, values: tuple[int, int], masks: tuple[int, int]) -> tuple[int, int]:
    """(the result, the bits of it that the executor holds to be undefined); the same where it replaces an operand."""
    first, *rest = (_one(simulated, line.replace("s22", reg), reg, values, masks) for reg in ("s22", "s20", "s21"))
    assert rest == [first, first]
    return first


def _one(
    simulated: Simulated, line: str, result: str, values: tuple[int, int], masks: tuple[int, int]
) -> tuple[int, int]:
    code = f"""
    v_bfi_b32 v30, v12, v50, v10
    v_bfi_b32 v31, v13, v50, v11
    v_readfirstlane_b32 s20, v30
    v_readfirstlane_b32 s21, v31
    {line}
    v_mov_b32_e32 v20, {result}
    v_xor_b32_e32 v21, -1, v20
    """
    rows = np.repeat(np.array([*values, *masks], U32)[:, None], 64, axis=1)
    found = simulated.run(code, rows, results=2)[:, 0]
    return int(found[0]), int(~(found[0] ^ found[1]))


@pytest.mark.parametrize("line", OPS, ids=lambda line: line.split()[0] + line[-5:])
def test_bits_of_results(simulated: Simulated, line: str) -> None:
    """No bit is called defined that some value of the undefined ones changes; logic says it exactly."""
    rng = np.random.default_rng(1)
    for masks in MASKS:
        values = tuple(int(x) for x in rng.integers(1, 1 << 32, 2, dtype=np.uint64))
        values = (values[0] | 0x40, values[1])
        changed, first = 0, None
        for fill in range(40):
            drawn = [0, M] if fill < 2 else [int(x) for x in rng.integers(0, 1 << 32, 2, dtype=np.uint64)]
            if fill == 1:
                drawn = [M, M]
            given = [(v & ~m) | (d & m) for v, m, d in zip(values, masks, drawn, strict=True)]
            made = OPS[line](*given) & M
            first = made if first is None else first
            changed |= first ^ made
        value, undefined = _found(simulated, line, values, masks)
        assert not changed & ~undefined & M, hex(changed)
        assert not (value ^ first) & ~undefined & M
        if line.startswith(EXACT):
            assert undefined & M == changed, (hex(undefined & M), hex(changed))


@pytest.mark.parametrize(
    ("value", "mask", "one"), [(0x40, 0xFFFF0000, "1"), (0x1, 0xFFFF0000, "0"), (0, 0xFFFF0000, "0")]
)
def test_a_defined_part_decides_a_branch(simulated: Simulated, value: int, mask: int, one: str) -> None:
    code = """
    v_bfi_b32 v30, v12, v50, v10
    v_readfirstlane_b32 s20, v30
    s_and_b32 s21, s20, 0xf0
    v_mov_b32_e32 v20, 1
    s_cbranch_scc1 .Lover
    v_mov_b32_e32 v20, 0
    .Lover:
    """
    rows = np.repeat(np.array([value, 0, mask], U32)[:, None], 64, axis=1)
    assert (simulated.run(code, rows)[0] == int(one)).all()


def test_a_product_of_64_bits_keeps_its_low_bits(simulated: Simulated) -> None:
    """A half is loaded to half a register, and only the low bits of a product with it are used."""
    code = """
    v_bfi_b32 v30, v12, v50, v10
    v_mov_b32_e32 v31, 0
    v_mov_b32_e32 v32, v13
    v_mov_b32_e32 v33, 0
    v_mad_u64_u32 v[34:35], vcc, v11, v30, v[32:33]
    v_and_b32_e32 v20, 0xffff, v34
    v_xor_b32_e32 v21, -1, v34
    """
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 1 << 32, (4, 64), dtype=np.uint64).astype(U32)
    rows[2] = 0xFFFF0000
    found = simulated.run(code + "v_mov_b32_e32 v22, v34", rows, results=3)
    assert (found[0] == (rows[0] * rows[1] + rows[3] & U32(0xFFFF))).all()
    assert (~(found[1] ^ found[2]) == U32(0xFFFF0000)).all()
