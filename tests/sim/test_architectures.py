"""What differs between architectures: waves of 32, 16-bit halves of registers, pairs, counters, new instructions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from hipwright.errors import CandidateError
from hipwright.targets import TARGETS
from hipwright.toolchain import clang
from hipwright.toolchain.sim import dual, forms
from tests.sim.cases_half import HALVES
from tests.sim.cases_more import MORE
from tests.sim.cases_vector import VECTOR
from tests.sim.harness import Simulated
from tests.sim.test_lanes import CONTROLS, SWIZZLES

GIVEN = np.random.default_rng(8).integers(0, 1 << 32, (4, 64), dtype=np.uint64).astype(np.uint32)
RDNA = "gfx1100"


def test_waves_of_32(simulated: Simulated) -> None:
    """64 threads are two waves; masks are one register; a comparison may write EXEC alone."""
    code = """
    v_mov_b32_e32 v20, 0
    v_and_b32_e32 v30, 31, v0
    s_mov_b32 s20, exec_lo
    v_cmp_gt_u32_e32 vcc_lo, 8, v30
    s_and_saveexec_b32 s21, vcc_lo
    v_mov_b32_e32 v20, 5
    s_or_b32 exec_lo, exec_lo, s21
    v_cmpx_lt_u32_e32 29, v30
    v_mov_b32_e32 v20, 6
    s_mov_b32 exec_lo, s20
    v_mov_b32_e32 v21, vcc_lo
    """
    chosen, mask = simulated.run(code, results=2, target=RDNA)
    lanes = np.arange(64) % 32
    assert (chosen == np.where(lanes < 8, 5, np.where(lanes > 29, 6, 0))).all() and (mask == 0xFF).all()


def test_halves_of_registers(simulated: Simulated) -> None:
    code = """
    v_mov_b32_e32 v20, v10
    v_mov_b16_e32 v20.h, v11.l
    v_mov_b32_e32 v21, v10
    v_add_f16_e32 v21.l, v12.h, v13.l
    v_and_b16 v22.l, v10.h, v11.h
    v_cvt_f32_f16_e32 v23, v12.h
    """
    rows = simulated.run("v_mov_b32_e32 v22, 0\n" + code, GIVEN & 0x3FFF3FFF, results=4, target=RDNA)
    a, b, c, d = GIVEN & np.uint32(0x3FFF3FFF)
    half = [x.astype(np.uint16).view(np.float16) for x in (c >> 16, d & 0xFFFF)]
    total = (half[0] + half[1]).view(np.uint16).astype(np.uint32)
    assert (rows[0] == ((a & 0xFFFF) | b << 16)).all()
    assert (rows[1] == ((a & 0xFFFF0000) | total)).all()
    assert (rows[2] == (a >> 16 & b >> 16)).all()
    assert (rows[3].view(np.float32) == half[0].astype(np.float32)).all()


def test_pairs(simulated: Simulated) -> None:
    """The second may need what the first overwrites; a pair that exchanges registers is left alone."""
    numbers = np.random.default_rng(9).normal(size=(3, 64)).astype(np.float32)
    code = """
    v_mov_b32_e32 v20, v10
    v_dual_mul_f32 v20, v11, v12 :: v_dual_add_f32 v21, v20, v11
    """
    product, total = simulated.run(code, numbers.view(np.uint32), results=2, target=RDNA)
    assert (product.view(np.float32) == numbers[1] * numbers[2]).all()
    assert (total.view(np.float32) == numbers[0] + numbers[1]).all()
    swap = "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1"
    assert dual.halves(swap) == [swap]
    assert dual.halves("v_dual_cndmask_b32 v4, v4, v5 :: v_dual_fmac_f32 v6, v4, v7") == [
        "v_fmac_f32 v6, v4, v7",
        "v_cndmask_b32 v4, v4, v5, vcc_lo",
    ]


def test_stores_have_a_counter_of_their_own(simulated: Simulated) -> None:
    load = (
        "global_load_b32 v20, v1, s[4:5]\nglobal_store_b32 v1, v10, s[6:7] offset:512\n{}\nv_add_nc_u32_e32 v20, 1, v20"
    )
    found = simulated.run(load.format("s_waitcnt vmcnt(0)"), GIVEN, target=RDNA)
    assert (found[0] == GIVEN[0] + 1).all()
    with pytest.raises(CandidateError, match="v20 is read before the wait"):
        simulated.run(load.format("s_waitcnt_vscnt null, 0x0"), GIVEN, target=RDNA)


def test_lane_controls_of_rdna(simulated: Simulated) -> None:
    code = """
    v_mov_b32_e32 v20, 0
    v_mov_b32_dpp v20, v10 row_share:5 row_mask:0xf bank_mask:0xf
    v_mov_b32_e32 v21, 0
    v_mov_b32_dpp v21, v10 row_xmask:3 row_mask:0xf bank_mask:0xf
    v_mov_b32_dpp v22, v10 dpp8:[7,6,5,4,3,2,1,0]
    """
    shared, crossed, eight = simulated.run(code, GIVEN, results=3, target=RDNA)
    lanes = np.arange(64)
    assert (shared == GIVEN[0][lanes // 16 * 16 + 5]).all()
    assert (crossed == GIVEN[0][lanes ^ 3]).all()
    assert (eight == GIVEN[0][lanes ^ 7]).all()


@pytest.mark.parametrize("table", [0xE8, 0x96, 0x01, 0x40])
def test_any_function_of_three_bits(simulated: Simulated, table: int) -> None:
    found = simulated.run(f"v_bitop3_b32 v20, v10, v11, v12 bitop3:{hex(table)}", GIVEN, target="gfx950")[0]
    for bit in range(32):
        a, b, c = (GIVEN[i] >> bit & 1 for i in range(3))
        assert ((found >> bit & 1) == (table >> (4 * a + 2 * b + c) & 1)).all()


@pytest.mark.parametrize("kind", ["f16", "iu8"])
def test_wmma(simulated: Simulated, kind: str) -> None:
    """A[i] lies in lane i mod 16, D[i][j] in lane 16 (i mod 2) + j of register i / 2 (RDNA 3 ISA, WMMA)."""
    rng = np.random.default_rng(10)
    dtype = np.float16 if kind == "f16" else np.int8
    a, b = rng.integers(-3, 4, (2, 16, 16)).astype(dtype)
    words = [np.ascontiguousarray(x).view(np.uint32).T for x in (a, b)]
    regs = len(words[0])
    given = np.concatenate([np.tile(x, (1, 4)) for x in words])  # both waves, both halves of each
    if regs == 8:  # more inputs than the harness has registers for: B is A
        given, b = given[:8], a
    second = 10 if regs == 8 else 10 + regs
    name = f"v_wmma_{'f32' if kind == 'f16' else 'i32'}_16x16x16_{kind}"
    tail = "" if kind == "f16" else " neg_lo:[1,1,0]"
    span = f"v[10:{9 + regs}], v[{second}:{second + regs - 1}]"
    rows = simulated.run(
        f"{name} v[20:27], {span}, 1.0{tail}".replace("1.0", "1.0" if regs == 8 else "1"), given, results=8, target=RDNA
    )
    expected = a.astype(np.int64) @ b.astype(np.int64).T + 1
    made = rows.view(np.float32 if kind == "f16" else np.int32)
    for i in range(16):
        for j in range(16):
            assert made[i // 2][16 * (i % 2) + j] == expected[i, j]


def test_names_of_all_architectures() -> None:
    assert forms.handler("global_load_b128") == forms.handler("global_load_dwordx4") == "load_dwordx4"
    assert forms.handler("ds_store_2addr_stride64_b32") == "ds_write2st64_b32"
    assert (
        forms.handler("global_atomic_min_i32") == "atomic_smin"
        and forms.handler("flat_atomic_add_u64") == "atomic_add_x2"
    )
    assert {target.name for target in TARGETS.simulated} == {
        f"{name}@sim" for name in ("gfx90a", "gfx942", "gfx950", "gfx1100")
    }


def test_the_assembler_takes_what_is_tested(tmp_path: Path) -> None:
    """So that a test's spelling is the compiler's."""
    lines = [
        line.strip() for case in (*VECTOR, *MORE, *HALVES) if case.target == "gfx942" for line in case.line.splitlines()
    ]
    lines += [f"v_mov_b32_dpp v20, v10 {control} row_mask:0xf bank_mask:0xf" for control in CONTROLS]
    lines += [f"ds_swizzle_b32 v20, v10 offset:{offset}" for offset in SWIZZLES]
    source = tmp_path / "all.s"
    source.write_text("\n".join(lines) + "\n")
    command = [clang.find().program, "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-c", "-x", "assembler"]
    done = subprocess.run(
        [*command, str(source), "-o", str(tmp_path / "all.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


def test_integers_beside_float64_are_no_floats(simulated: Simulated) -> None:
    """A 32-bit constant of a float64 is its high word; the mask of classes and an exponent are integers."""
    numbers = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -2.5, 5e-324, np.nan] * 8)
    rows = numbers.view(np.uint32).reshape(-1, 2).T
    code = """
    v_cmp_class_f64_e64 vcc_lo, v[10:11], 0x260
    v_cndmask_b32_e64 v20, 0, 1, vcc_lo
    v_ldexp_f64 v[21:22], v[10:11], 0x7b
    """
    found = simulated.run(code, rows, results=3, target="gfx1100", threads=32)
    expected = (numbers == 0) | (numbers == np.inf)
    assert (found[0][:32] == expected[:32]).all()
    made = np.ascontiguousarray(found[1:3].T).view(np.float64).ravel()[:32]
    assert np.array_equal(made, (numbers * 2.0**123)[:32], equal_nan=True)


def test_registers_by_number(simulated: Simulated) -> None:
    """RDNA's v_movreld and v_movrels: M0 is added to the number of the result, or of the source."""
    given = np.arange(256, dtype=np.uint32).reshape(4, 64)
    code = """
    s_mov_b32 m0, 2
    v_mov_b32_e32 v20, 0
    v_mov_b32_e32 v21, 0
    v_movreld_b32_e32 v19, v10
    v_movrels_b32_e32 v20, v11
    """
    found = simulated.run(code, given, results=2, target="gfx1100", threads=32)
    assert (found[1][:32] == given[0][:32]).all() and (found[0][:32] == given[3][:32]).all()
    with pytest.raises(CandidateError, match="a register of number"):
        simulated.run("s_mov_b32 m0, 0x1000\nv_movrels_b32_e32 v20, v11", given, target="gfx1100", threads=32)
