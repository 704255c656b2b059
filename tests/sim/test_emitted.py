"""The rest of what clang emits for the suite: comparisons into EXEC, branches, immediates, halves in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.cases_more import compare_cases
from tests.sim.cases_vector import Case
from tests.sim.harness import Simulated
from tests.sim.values import view, words

GIVEN = np.random.default_rng(11).integers(0, 1 << 32, (4, 64), dtype=np.uint64).astype(np.uint32)
RDNA = "gfx1100"


@pytest.mark.parametrize("case", compare_cases(), ids=lambda case: case.line.split()[0])
def test_comparisons_into_exec(simulated: Simulated, case: Case) -> None:
    """As RDNA has them: EXEC is the only result."""
    inputs = [words(kind, 7 * i + 1) for i, kind in enumerate(case.kinds)]
    line = case.line.split("\n")[0].replace("v_cmp_", "v_cmpx_").replace("vcc, ", "")
    code = f"s_mov_b32 s20, exec_lo\nv_mov_b32_e32 v20, 0\n{line}\nv_mov_b32_e32 v20, 1\ns_mov_b32 exec_lo, s20"
    found = simulated.run(code, np.concatenate(inputs), target=RDNA)[0]
    with np.errstate(all="ignore"):
        low, high = case.expected(*(view(rows, kind) for rows, kind in zip(inputs, case.kinds, strict=True)))
    mask = int(low[0]) | int(high[0]) << 32
    assert found.tolist() == [mask >> lane & 1 for lane in range(64)]


def _taken(simulated: Simulated, before: str, branch: str, target: str = "gfx942") -> bool:
    code = f"v_mov_b32_e32 v20, 1\n{before}\n{branch} .Lover\nv_mov_b32_e32 v20, 0\n.Lover:\ns_mov_b64 exec, -1"
    found = simulated.run(code, target=target)[0]
    assert len(set(found.tolist())) == 1
    return bool(found[0])


BRANCHES = [
    ("s_cmp_eq_u32 s8, s8", "s_cbranch_scc1", True),
    ("s_cmp_eq_u32 s8, s8", "s_cbranch_scc0", False),
    ("s_mov_b64 vcc, 0", "s_cbranch_vccz", True),
    ("s_mov_b64 vcc, 0x100", "s_cbranch_vccz", False),
    ("s_mov_b64 vcc, 0", "s_cbranch_vccnz", False),
    ("s_mov_b32 vcc_lo, 0\ns_mov_b32 vcc_hi, 4", "s_cbranch_vccnz", True),
    ("s_mov_b64 s[20:21], 0\ns_mov_b64 exec, s[20:21]", "s_cbranch_execz", True),
    ("s_mov_b64 s[20:21], -1\ns_cmp_lg_u64 s[20:21], 0", "s_cbranch_scc1", True),
    ("s_mov_b32 s20, 0\ns_mov_b32 s21, 1\ns_cmp_eq_u64 s[20:21], 0", "s_cbranch_scc1", False),
    ("s_mov_b32 s20, 6\ns_bitcmp0_b32 s20, 0", "s_cbranch_scc1", True),
    ("s_mov_b32 s20, 6\ns_bitcmp0_b32 s20, 33", "s_cbranch_scc1", False),
]


@pytest.mark.parametrize(
    ("before", "branch", "taken"), BRANCHES, ids=lambda x: x.split("\n")[-1] if isinstance(x, str) else ""
)
def test_branches(simulated: Simulated, before: str, branch: str, taken: bool) -> None:
    assert _taken(simulated, before, branch) == taken


@pytest.mark.parametrize("value", [0, 5, 0x7FFF, 0xFFFF8000, 0xFFFFFFFF, 0x80000000])
@pytest.mark.parametrize("immediate", [0, 5, 0x7FFF, 0x8000, 0xFFFF])
def test_comparisons_with_immediates(simulated: Simulated, value: int, immediate: int) -> None:
    """Signed ones extend the sign of the immediate, unsigned ones do not."""
    signed = immediate - (1 << 16) * (immediate >> 15)
    number = value - (1 << 32) * (value >> 31)
    tests = {"eq": int.__eq__, "lg": int.__ne__, "gt": int.__gt__, "ge": int.__ge__, "lt": int.__lt__, "le": int.__le__}
    code, expected = [f"s_mov_b32 s20, {hex(value)}", "v_mov_b32_e32 v20, 0"], []
    for i, (name, kind) in enumerate((name, kind) for name in tests for kind in ("i32", "u32")):
        code += [
            f"s_cmpk_{name}_{kind} s20, {hex(immediate)}",
            "s_cselect_b32 s21, 1, 0",
            f"v_writelane_b32 v20, s21, {i}",
        ]
        expected.append(int(tests[name](number, signed) if kind == "i32" else tests[name](value, immediate)))
    code += [f"s_mulk_i32 s20, {hex(immediate)}", "v_writelane_b32 v20, s20, 12"]
    found = simulated.run("\n".join(code))[0]
    assert found[:12].tolist() == expected and int(found[12]) == number * signed & 0xFFFFFFFF


def test_scalar_loads_of_all_widths(simulated: Simulated) -> None:
    linear = np.concatenate([GIVEN.ravel(), np.zeros(320, np.uint32)])
    code = """
    s_load_dwordx2 s[16:17], s[4:5], 0x8
    s_mov_b32 s18, 0x40
    s_load_dword s19, s[4:5], s18
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v20, s16
    v_mov_b32_e32 v21, s17
    v_mov_b32_e32 v22, s19
    s_load_dwordx16 s[16:31], s[4:5], 0x100
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v23, 0
    """ + "\n".join(f"v_writelane_b32 v23, s{16 + i}, {i}" for i in range(16))
    rows = simulated.run(code, GIVEN, results=4)
    assert [int(rows[i][0]) for i in range(3)] == [int(linear[at]) for at in (2, 3, 16)]
    assert (rows[3][:16] == linear[64:80]).all()


def test_halves_and_bytes_in_memory(simulated: Simulated) -> None:
    code = """
    v_lshlrev_b32_e32 v30, 3, v0
    ds_write_b64 v30, v[12:13]
    ds_write_b16 v30, v10
    ds_write_b16_d16_hi v30, v10 offset:4
    ds_write_b8_d16_hi v30, v11 offset:6
    ds_read_b64 v[20:21], v30
    v_mov_b32_e32 v22, -1
    ds_read_u16_d16 v22, v30 offset:4
    v_mov_b32_e32 v31, 1
    v_mov_b32_e32 v32, 0
    v_mov_b32_e32 v33, 0x800
    ds_write_b32 v33, v32
    ds_add_u32 v33, v31
    ds_read_b32 v23, v33
    s_waitcnt lgkmcnt(0)
    """
    rows = simulated.run(code, GIVEN, results=4)
    a, b, c, d = GIVEN
    assert (rows[0] == ((c & 0xFFFF0000) | (a & 0xFFFF))).all()
    assert (rows[1] == ((d & 0xFF000000) | (b & 0xFF0000) | a >> 16)).all()
    assert (rows[2] == (0xFFFF0000 | a >> 16)).all()
    assert (rows[3] == 64).all()


def test_stores_of_halves_and_bytes(simulated: Simulated) -> None:
    """Into the second half of the output, which is loaded again."""
    code = """
    v_lshlrev_b32_e32 v30, 3, v0
    global_store_dwordx2 v30, v[12:13], s[6:7] offset:1024
    global_store_short v30, v10, s[6:7] offset:1024
    global_store_short_d16_hi v30, v10, s[6:7] offset:1028
    global_store_byte v30, v11, s[6:7] offset:1026
    global_store_byte_d16_hi v30, v11, s[6:7] offset:1030
    global_load_dwordx2 v[20:21], v30, s[6:7] offset:1024
    v_mov_b32_e32 v22, -1
    global_load_short_d16 v22, v30, s[6:7] offset:1024
    v_mov_b32_e32 v23, -1
    global_load_sbyte_d16 v23, v30, s[6:7] offset:1026
    v_mov_b32_e32 v24, -1
    global_load_ubyte_d16_hi v24, v30, s[6:7] offset:1026
    s_waitcnt vmcnt(0)
    """
    rows = simulated.run(code, GIVEN, results=5)
    a, b, c, d = GIVEN
    byte = b & 0xFF
    assert (rows[0] == ((c & 0xFF000000) | byte << 16 | (a & 0xFFFF))).all()
    assert (rows[1] == ((d & 0xFF000000) | (b & 0xFF0000) | a >> 16)).all()
    assert (rows[2] == (0xFFFF0000 | (a & 0xFFFF))).all()
    assert (rows[3] == (0xFFFF0000 | byte | np.where(byte > 127, 0xFF00, 0))).all()
    assert (rows[4] == (byte << 16 | 0xFFFF)).all()


def test_rest_of_rdna(simulated: Simulated) -> None:
    small = GIVEN & 0x3FFF3FFF
    code = """
    s_mov_b32 s20, exec_lo
    v_minmax_u32 v20, v10, v11, v12
    v_mov_b32_e32 v21, v13
    v_or_b16 v21.l, v10.h, v11.l
    v_cmp_gt_u32_e32 vcc_lo, v10, v11
    v_mov_b32_e32 v22, 0
    v_cndmask_b16 v22.h, v12.l, v13.h, vcc_lo
    s_mov_b32 s21, 0xff00
    s_and_not1_saveexec_b32 s22, s21
    v_mov_b32_e32 v23, s22
    s_mov_b32 exec_lo, 0
    s_or_saveexec_b32 s23, s20
    v_mov_b32_e32 v24, s23
    s_ctz_i32_b32 s24, s21
    v_mov_b32_e32 v25, s24
    """
    rows = simulated.run("v_mov_b32_e32 v23, 0\n" + code, small, results=6, target=RDNA)
    a, b, c, d = small
    assert (rows[0] == np.maximum(np.minimum(a, b), c)).all()
    assert (rows[1] == ((d & 0xFFFF0000) | (a >> 16 | b & 0xFFFF))).all()
    assert (rows[2] == np.where(a > b, d >> 16, c & 0xFFFF) << 16).all()
    assert (rows[3] == 0).all(), "no lane is left: all were active"
    assert (rows[4] == 0).all() and (rows[5] == 8).all()


def test_sums_of_products_and_bit_functions_of_halves(simulated: Simulated) -> None:
    ones = np.full((3, 64), 0x3C003C00, np.uint32)
    ones[2] = 0x3F800000
    found = simulated.run("v_mov_b32_e32 v20, v12\nv_dot2acc_f32_f16 v20, v10, v11", ones, target=RDNA)
    assert (found[0].view(np.float32) == 3).all()
    table = 0xCA  # a chooses between b and c
    found = simulated.run(f"v_bitop3_b16 v20, v10, v11, v12 bitop3:{hex(table)}", GIVEN, target="gfx950")
    a, b, c = GIVEN[:3]
    assert (found[0] == ((a & b | ~a & c) & 0xFFFF)).all()
