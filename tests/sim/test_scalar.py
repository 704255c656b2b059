"""Scalar instructions against Python's integers, with SCC, and control flow."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.sim.harness import Simulated

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
VALUES = [0, 1, 2, 31, 32, 63, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xFFFF8000, 0x00FF00FF]


@dataclass(frozen=True)
class ScalarCase:
    """An instruction. expected: of operands a, b (32 or 64 bits) -> (result, SCC or None where it stays)."""

    name: str
    expected: Callable[[int, int], tuple[int, int | None]]
    wide: bool = False
    sources: int = 2
    second_wide: bool | None = None
    result_wide: bool | None = None


def s32(x: int) -> int:
    return (x & M32) - (1 << 32) * (x >> 31 & 1)


def s64(x: int) -> int:
    return (x & M64) - (1 << 64) * (x >> 63 & 1)


def _nonzero(f: Callable[[int, int], int], mask: int = M32) -> Callable[[int, int], tuple[int, int | None]]:
    def work(a: int, b: int) -> tuple[int, int | None]:
        r = f(a, b) & mask
        return r, int(r != 0)

    return work


def _plain(f: Callable[[int, int], int], mask: int = M32) -> Callable[[int, int], tuple[int, int | None]]:
    return lambda a, b: (f(a, b) & mask, None)


def _overflows(f: Callable[[int, int], int]) -> Callable[[int, int], tuple[int, int | None]]:
    return lambda a, b: (f(a, b) & M32, int(not -(1 << 31) <= f(s32(a), s32(b)) < 1 << 31))


def _field(a: int, b: int, bits: int, signed: bool) -> int:
    at, width = b & (bits - 1), b >> 16 & 127
    width = min(width, bits - at)
    x = a >> at & ((1 << width) - 1)
    return x - (1 << width) if signed and width and x >> (width - 1) else x


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
CASES = [
    ScalarCase("s_add_u32", lambda a, b: (a + b & M32, a + b >> 32)),
    ScalarCase("s_sub_u32", lambda a, b: (a - b & M32, int(a < b))),
    ScalarCase("s_add_i32", _overflows(lambda a, b: a + b)),
    ScalarCase("s_sub_i32", _overflows(lambda a, b: a - b)),
    ScalarCase("s_mul_i32", _plain(lambda a, b: a * b)),
    ScalarCase("s_mul_hi_u32", _plain(lambda a, b: a * b >> 32)),
    ScalarCase("s_mul_hi_i32", _plain(lambda a, b: s32(a) * s32(b) >> 32)),
    ScalarCase("s_min_u32", lambda a, b: (min(a, b), int(a < b))),
    ScalarCase("s_max_u32", lambda a, b: (max(a, b), int(a > b))),
    ScalarCase("s_min_i32", lambda a, b: (min(s32(a), s32(b)) & M32, int(s32(a) < s32(b)))),
    ScalarCase("s_max_i32", lambda a, b: (max(s32(a), s32(b)) & M32, int(s32(a) > s32(b)))),
    ScalarCase("s_lshl_b32", _nonzero(lambda a, b: a << (b & 31))),
    ScalarCase("s_lshr_b32", _nonzero(lambda a, b: a >> (b & 31))),
    ScalarCase("s_ashr_i32", _nonzero(lambda a, b: s32(a) >> (b & 31))),
    ScalarCase("s_lshl_b64", _nonzero(lambda a, b: a << (b & 63), M64), True, second_wide=False),
    ScalarCase("s_lshr_b64", _nonzero(lambda a, b: a >> (b & 63), M64), True, second_wide=False),
    ScalarCase("s_ashr_i64", _nonzero(lambda a, b: s64(a) >> (b & 63), M64), True, second_wide=False),
    ScalarCase("s_bfe_u32", _nonzero(lambda a, b: _field(a, b, 32, False))),
    ScalarCase("s_bfe_i32", _nonzero(lambda a, b: _field(a, b, 32, True))),
    ScalarCase("s_bfm_b32", _plain(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31))),
    ScalarCase("s_lshl1_add_u32", lambda a, b: ((a << 1) + b & M32, int((a << 1) + b > M32))),
    ScalarCase("s_lshl2_add_u32", lambda a, b: ((a << 2) + b & M32, int((a << 2) + b > M32))),
    ScalarCase("s_lshl4_add_u32", lambda a, b: ((a << 4) + b & M32, int((a << 4) + b > M32))),
    ScalarCase("s_pack_ll_b32_b16", _plain(lambda a, b: a & 0xFFFF | b << 16)),
    ScalarCase("s_pack_lh_b32_b16", _plain(lambda a, b: a & 0xFFFF | b & 0xFFFF0000)),
    ScalarCase("s_pack_hh_b32_b16", _plain(lambda a, b: a >> 16 | b & 0xFFFF0000)),
    ScalarCase("s_mov_b32", _plain(lambda a, b: a), sources=1),
    ScalarCase("s_mov_b64", _plain(lambda a, b: a, M64), True, sources=1),
    ScalarCase("s_not_b32", _nonzero(lambda a, b: ~a), sources=1),
    ScalarCase("s_not_b64", _nonzero(lambda a, b: ~a, M64), True, sources=1),
    ScalarCase("s_brev_b32", _plain(lambda a, b: int(f"{a:032b}"[::-1], 2)), sources=1),
    ScalarCase("s_abs_i32", _nonzero(lambda a, b: abs(s32(a))), sources=1),
    ScalarCase("s_sext_i32_i8", _plain(lambda a, b: s32((a << 24) & M32) >> 24), sources=1),
    ScalarCase("s_sext_i32_i16", _plain(lambda a, b: s32((a << 16) & M32) >> 16), sources=1),
    ScalarCase("s_bcnt1_i32_b32", _nonzero(lambda a, b: a.bit_count()), sources=1),
    ScalarCase("s_bcnt1_i32_b64", _nonzero(lambda a, b: a.bit_count()), True, sources=1, result_wide=False),
    ScalarCase("s_ff1_i32_b32", _plain(lambda a, b: (a & -a).bit_length() - 1), sources=1),
    ScalarCase("s_ff1_i32_b64", _plain(lambda a, b: (a & -a).bit_length() - 1), True, sources=1, result_wide=False),
    ScalarCase("s_flbit_i32_b32", _plain(lambda a, b: 32 - a.bit_length() if a else -1), sources=1),
    *(ScalarCase(f"s_{name}_b32", _nonzero(f)) for name, f in LOGIC.items()),
    *(ScalarCase(f"s_{name}_b64", _nonzero(f, M64), True) for name, f in LOGIC.items()),
]


def _pairs(wide: bool) -> list[tuple[int, int]]:
    draw = random.Random(3)
    found = [(a, b) for a in VALUES for b in (0, 1, 5, 31, 0x80000000, 0xFFFFFFFF, 0x100004, 0x1F0003)]
    found += [(draw.getrandbits(32), draw.getrandbits(32)) for _ in range(8)]
    return [(a | draw.getrandbits(32) << 32, b | b << 32) for a, b in found] if wide else found


def scalar(simulated: Simulated, line: str, pairs: list[tuple[int, int]], wide: bool) -> np.ndarray:
    """Rows (low word, high word, SCC) of a line that reads s[16:17] and s[18:19] and writes s[20:21]."""
    code = []
    for i, (a, b) in enumerate(pairs):
        words = [a & M32, a >> 32, b & M32, b >> 32]
        code += [f"s_mov_b32 s{16 + j}, {hex(word)}" for j, word in enumerate(words)]
        code += ["s_mov_b32 s20, 0", "s_mov_b32 s21, 0", "s_cmp_eq_u32 s20, 1", line, "s_cselect_b32 s22, 1, 0"]
        code += [f"v_writelane_b32 v{20 + j}, s{20 + j}, {i}" for j in range(3)]
    head = "\n".join(f"v_mov_b32_e32 v{20 + j}, 0" for j in range(3))
    return simulated.run(head + "\n" + "\n".join(code), results=3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scalar(simulated: Simulated, case: ScalarCase) -> None:
    pairs = _pairs(case.wide)
    second = case.wide if case.second_wide is None else case.second_wide
    result = case.wide if case.result_wide is None else case.result_wide
    sources = ["s[16:17]" if case.wide else "s16", "s[18:19]" if second else "s18"][: case.sources]
    line = f"{case.name} {'s[20:21]' if result else 's20'}, {', '.join(sources)}"
    for start in range(0, len(pairs), 56):
        part = pairs[start : start + 56]
        rows = scalar(simulated, line, part, case.wide)
        for i, (a, b) in enumerate(part):
            made, scc = case.expected(a, b)
            assert int(rows[0][i]) | int(rows[1][i]) << 32 == made & (M64 if result else M32), (hex(a), hex(b))
            if scc is not None:
                assert rows[2][i] == scc, (hex(a), hex(b))


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("kind", ["i32", "u32"])
def test_comparison(simulated: Simulated, name: str, kind: str) -> None:
    pairs = [(a, b) for a in VALUES[:7] for b in VALUES[:7]]
    rows = scalar(simulated, f"s_cmp_{name}_{kind} s16, s18", pairs, wide=False)
    read = s32 if kind == "i32" else int
    for i, (a, b) in enumerate(pairs):
        assert rows[2][i] == COMPARISONS[name](read(a), read(b)), (hex(a), hex(b))


def test_immediates_are_extended_by_their_type(simulated: Simulated) -> None:
    code = """
    s_movk_i32 s20, 0x8000
    s_mov_b32 s21, 0xffff9000
    s_cmpk_eq_i32 s21, 0x9000
    s_cselect_b32 s22, 1, 0
    s_addk_i32 s21, 0xffff
    v_mov_b32_e32 v20, s20
    v_mov_b32_e32 v21, s21
    v_mov_b32_e32 v22, s22
    """
    assert [int(row[0]) for row in simulated.run(code, results=3)] == [0xFFFF8000, 0xFFFF8FFF, 1]


def test_carries_chain(simulated: Simulated) -> None:
    code = """
    s_mov_b32 s16, -1
    s_add_u32 s20, s16, 1
    s_addc_u32 s21, 5, 0
    s_sub_u32 s22, 0, 1
    s_subb_u32 s23, 7, 0
    v_mov_b32_e32 v20, s20
    v_mov_b32_e32 v21, s21
    v_mov_b32_e32 v22, s22
    v_mov_b32_e32 v23, s23
    """
    assert [int(row[0]) for row in simulated.run(code, results=4)] == [0, 6, M32, 6]


def test_masks_and_loops(simulated: Simulated) -> None:
    """Lane l adds 1 l times: EXEC loses the lanes that have finished."""
    code = """
    v_mov_b32_e32 v20, 0
    s_mov_b64 s[16:17], exec
    .Lagain:
    v_cmp_lt_u32_e32 vcc, v20, v0
    s_and_saveexec_b64 s[18:19], vcc
    v_add_u32_e32 v20, 1, v20
    s_cbranch_execnz .Lagain
    s_mov_b64 exec, s[16:17]
    s_bitcmp1_b32 s16, 3
    s_cselect_b64 s[20:21], s[16:17], 0
    s_or_saveexec_b64 s[18:19], s[20:21]
    """
    assert (simulated.run(code)[0] == np.arange(64)).all()
