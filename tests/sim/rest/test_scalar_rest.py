"""The scalar instructions that clang seldom emits: 64-bit fields and bits, masks, moves on SCC, jumps by register."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.harness import Simulated
from tests.sim.test_scalar import M32, M64, ScalarCase, _field, _nonzero, _pairs, _plain, s32, scalar, test_scalar


def _leading(bits: int) -> Callable[[int, int], tuple[int, int | None]]:
    return _plain(lambda a, b: bits - a.bit_length() if a else -1)


def _first(x: int) -> int:
    return (x & -x).bit_length() - 1


CASES = [
    ScalarCase("s_absdiff_i32", _nonzero(lambda a, b: abs(s32(a - b & M32)))),
    ScalarCase("s_add_u64", _plain(lambda a, b: a + b, M64), True),
    ScalarCase("s_sub_u64", _plain(lambda a, b: a - b, M64), True),
    ScalarCase("s_bcnt0_i32_b32", _nonzero(lambda a, b: 32 - a.bit_count()), sources=1),
    ScalarCase("s_bcnt0_i32_b64", _nonzero(lambda a, b: 64 - a.bit_count()), True, sources=1, result_wide=False),
    ScalarCase("s_bfe_u64", _nonzero(lambda a, b: _field(a, b, 64, False), M64), True, second_wide=False),
    ScalarCase("s_bfe_i64", _nonzero(lambda a, b: _field(a, b, 64, True), M64), True, second_wide=False),
    ScalarCase("s_bfm_b64", _plain(lambda a, b: ((1 << (a & 63)) - 1) << (b & 63), M64), result_wide=True),
    ScalarCase("s_brev_b64", _plain(lambda a, b: int(f"{a:064b}"[::-1], 2), M64), True, sources=1),
    ScalarCase("s_clz_i32_u32", _leading(32), sources=1),
    ScalarCase("s_clz_i32_u64", _leading(64), True, sources=1, result_wide=False),
    ScalarCase("s_flbit_i32_b64", _leading(64), True, sources=1, result_wide=False),
    ScalarCase("s_ctz_i32_b64", _plain(lambda a, b: _first(a)), True, sources=1, result_wide=False),
    ScalarCase("s_ff0_i32_b32", _plain(lambda a, b: _first(~a & M32)), sources=1),
    ScalarCase("s_lshl3_add_u32", lambda a, b: ((a << 3) + b & M32, int((a << 3) + b > M32))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rest(simulated: Simulated, case: ScalarCase) -> None:
    test_scalar(simulated, case)


MASKS: dict[str, Callable[[int, int], int]] = {
    "and_not0": lambda s, e: ~s & e,
    "and_not1": lambda s, e: s & ~e,
    "andn1": lambda s, e: ~s & e,
    "andn2": lambda s, e: s & ~e,
    "or_not0": lambda s, e: ~s | e,
    "or_not1": lambda s, e: s | ~e,
    "orn1": lambda s, e: ~s | e,
    "orn2": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "xor": lambda s, e: s ^ e,
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", MASKS)
def test_masks_are_saved(simulated: Simulated, name: str, bits: int) -> None:
    """The old EXEC is the result, the new one the function of the source and the old one; SCC tells whether it is 0.

    Those of 32 bits are for waves of 32 lanes.
    """
    full = (1 << bits) - 1
    for source, old in ((0x5555AAAA0F0F00FF, 0x33333333FFFF0001), (M64, M64), (0, M64)):
        code = f"""
        s_mov_b32 s16, {source & M32:#x}
        s_mov_b32 s17, {source >> 32:#x}
        s_mov_b32 s18, {old & M32:#x}
        s_mov_b32 s19, {old >> 32:#x}
        s_mov_b{bits} exec{"_lo, s18" if bits == 32 else ", s[18:19]"}
        s_mov_b32 s21, 0
        s_mov_b32 s23, 0
        s_{name}_saveexec_b{bits} {"s[20:21], s[16:17]" if bits == 64 else "s20, s16"}
        s_cselect_b32 s24, 1, 0
        s_mov_b{bits} {"s22, exec_lo" if bits == 32 else "s[22:23], exec"}
        s_mov_b{bits} exec{"_lo" if bits == 32 else ""}, -1
        """ + "\n".join(f"v_mov_b32_e32 v{20 + i}, s{20 + i}" for i in range(5))
        more = {"target": "gfx1100", "threads": 32} if bits == 32 else {}
        found = [int(row[0]) for row in simulated.run(code, results=5, **more)]
        made = MASKS[name](source, old) & full
        assert found[0] | found[1] << 32 == old & full
        assert found[2] | found[3] << 32 == made and found[4] == int(made != 0)


@pytest.mark.parametrize("name", ["s_bitcmp0_b64", "s_bitcmp1_b64"])
def test_bits_of_64(simulated: Simulated, name: str) -> None:
    pairs = _pairs(True)[:56]
    rows = scalar(simulated, f"{name} s[16:17], s18", pairs, wide=True)
    for i, (a, b) in enumerate(pairs):
        assert rows[2][i] == int((a >> (b & 63) & 1) == int(name == "s_bitcmp1_b64"))


def test_bits_are_set(simulated: Simulated) -> None:
    pairs = _pairs(False)[:40]
    zeros = scalar(simulated, "s_mov_b32 s20, s18\ns_bitset0_b32 s20, s16", pairs, wide=False)[0]
    ones = scalar(simulated, "s_mov_b32 s20, s18\ns_bitset1_b32 s20, s16", pairs, wide=False)[0]
    for i, (a, b) in enumerate(pairs):
        assert int(zeros[i]) == b & ~(1 << (a & 31)) & M32 and int(ones[i]) == b | 1 << (a & 31)


def test_moves_on_scc(simulated: Simulated) -> None:
    pairs = _pairs(False)[:40]
    one = scalar(simulated, "s_cmp_lg_u32 s16, 0\ns_cmov_b32 s20, s18", pairs, wide=False)
    two = scalar(simulated, "s_cmp_lg_u32 s16, 0\ns_cmov_b64 s[20:21], s[18:19]", _pairs(True)[:40], wide=True)
    for i, (a, b) in enumerate(pairs):
        assert int(one[0][i]) == (b if a else 0)
    for i, (a, b) in enumerate(_pairs(True)[:40]):
        assert int(two[0][i]) | int(two[1][i]) << 32 == (b if a & M32 else 0)


def test_jumps_by_register(simulated: Simulated) -> None:
    """A place can be kept and jumped to; a call saves the place behind it, to which the function returns."""
    again = """
    s_mov_b32 s20, 0
    s_getpc_b64 s[16:17]
    s_add_u32 s20, s20, 1
    s_cmp_eq_u32 s20, 3
    s_cbranch_scc1 .Lend
    s_setpc_b64 s[16:17]
    .Lend:
    v_mov_b32_e32 v20, s20
    """
    assert int(simulated.run(again)[0][0]) == 3
    call = """
    s_mov_b32 s20, 0
    s_getpc_b64 s[16:17]
    s_add_u32 s20, s20, 1
    s_cmp_eq_u32 s20, 2
    s_cbranch_scc1 .Lcalled
    s_swappc_b64 s[30:31], s[16:17]
    s_add_u32 s20, s20, 100
    s_branch .Lend
    .Lcalled:
    s_setpc_b64 s[30:31]
    s_add_u32 s20, s20, 1000
    .Lend:
    v_mov_b32_e32 v20, s20
    """
    assert int(simulated.run(call)[0][0]) == 102


def test_modes_times_and_pauses(simulated: Simulated) -> None:
    code = """
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0x6
    s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 4)
    s_getreg_b32 s21, hwreg(HW_REG_MODE, 5, 2)
    s_memtime s[16:17]
    s_sleep 1
    s_waitcnt lgkmcnt(0)
    s_memtime s[18:19]
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s22, s18, s16
    v_mov_b32_e32 v20, s20
    v_mov_b32_e32 v21, s21
    v_mov_b32_e32 v22, s22
    """
    mode, part, passed = (int(row[0]) for row in simulated.run(code, results=3))
    assert (mode, part) == (6, 3) and passed > 0


def test_loads_of_three_words(simulated: Simulated) -> None:
    given = np.arange(8, dtype=np.uint32) + 11
    code = "s_load_dwordx3 s[20:22], s[4:5], 0x804\ns_waitcnt lgkmcnt(0)\n"
    code += "\n".join(f"v_mov_b32_e32 v{20 + i}, s{20 + i}" for i in range(3))
    assert [int(row[0]) for row in simulated.run(code, None, given, results=3)] == [12, 13, 14]
