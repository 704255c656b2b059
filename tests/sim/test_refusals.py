"""What only an executor of machine code sees: waits, undefined registers, bounds, LDS races, barriers, unknown code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hipwright.errors import CandidateError, DeviceError
from tests.sim.harness import Simulated, assembly

GIVEN = np.arange(128, dtype=np.uint32).reshape(2, 64)
REFUSED = {
    "vmcnt": ("global_load_dword v20, v1, s[4:5]\nv_add_u32_e32 v20, 1, v20", "v20 is read before the wait"),
    "vmcnt too large": (
        "global_load_dword v20, v1, s[4:5]\nglobal_load_dword v21, v1, s[4:5] offset:256\n"
        "s_waitcnt vmcnt(1)\nv_add_u32_e32 v20, v20, v21",
        "v21 is read before the wait",
    ),
    "overwritten": ("global_load_dword v20, v1, s[4:5]\nv_mov_b32_e32 v20, 1", "v20 is overwritten before the wait"),
    "lgkmcnt of scalars": ("s_load_dword s20, s[4:5], 0x0\nv_mov_b32_e32 v20, s20", "s20 is read before the wait"),
    "scalars come in any order": (
        "s_load_dword s20, s[4:5], 0x0\ns_load_dword s21, s[4:5], 0x4\ns_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v20, s20",
        "s20 is read before the wait",
    ),
    "LDS": (
        "ds_write_b32 v1, v10\nds_read_b32 v20, v1\nv_add_u32_e32 v20, 1, v20",
        "v20 is read before the wait",
    ),
    "flat needs both counters": (
        "v_mov_b32_e32 v30, s4\nv_mov_b32_e32 v31, s5\nflat_load_dword v20, v[30:31]\n"
        "s_waitcnt vmcnt(0)\nv_add_u32_e32 v20, 1, v20",
        "v20 is read before the wait",
    ),
    "undefined address": (
        "global_load_dword v20, v41, s[4:5]\ns_waitcnt vmcnt(0)",
        "address of a memory access depends",
    ),
    "undefined scalar": ("s_cmp_eq_u32 s30, 0\ns_cbranch_scc1 .Lend\n.Lend:\nv_mov_b32_e32 v20, 0", "a branch depends"),
    "undefined EXEC": ("s_and_saveexec_b64 s[20:21], s[30:31]\nv_mov_b32_e32 v20, 0", "EXEC depends"),
    "undefined atomic": ("global_atomic_add v1, v41, s[6:7]", "a value that is stored depends on a register"),
    "past the end": ("global_load_dword v20, v1, s[4:5] offset:4000\ns_waitcnt vmcnt(0)", "outside every buffer"),
    "before the start": ("global_load_dword v20, v1, s[6:7] offset:-4\ns_waitcnt vmcnt(0)", "outside every buffer"),
    "scalar past the end": (
        "s_load_dwordx4 s[20:23], s[4:5], 0x900\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v20, 0",
        "outside",
    ),
    "LDS past the end": ("ds_read_b32 v20, v1 offset:4000\ns_waitcnt lgkmcnt(0)", "outside every buffer"),
    "scratch past the end": ("scratch_load_dword v20, off, off offset:256\ns_waitcnt vmcnt(0)", "outside every buffer"),
    "trap": ("v_mov_b32_e32 v20, 0\ns_trap 2", "a trap"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(simulated: Simulated, name: str) -> None:
    snippet, message = REFUSED[name]
    with pytest.raises(CandidateError, match=message) as caught:
        simulated.run(snippet, GIVEN)
    assert "of the assembly" in caught.value.message and caught.value.evidence["line"] > 0


def test_an_undefined_value_is_stored_as_poison(simulated: Simulated) -> None:
    """In the lanes where it is undefined: by the register, by a comparison, or by the place in EXEC."""
    poison = 0x7FF57FF5
    lanes = np.arange(64)
    code = """
    s_mov_b64 exec, 0xff
    v_mov_b32_e32 v30, 1
    s_mov_b64 exec, -1
    v_add_u32_e32 v20, v30, v10
    v_cmp_eq_u32_e32 vcc, 1, v30
    v_cndmask_b32_e64 v21, 3, 4, vcc
    v_mov_b32_e32 v22, 0
    v_cmp_gt_u32_e64 s[20:21], 16, v0
    s_and_b64 s[20:21], vcc, s[20:21]
    s_and_saveexec_b64 s[22:23], s[20:21]
    v_mov_b32_e32 v22, 5
    s_mov_b64 exec, s[22:23]
    ds_write_b32 v1, v20
    ds_read_b32 v23, v1
    s_waitcnt lgkmcnt(0)
    """
    added, chosen, masked, kept = simulated.run(code, GIVEN, results=4)
    assert (added == np.where(lanes < 8, GIVEN[0] + 1, poison)).all() and (kept == added).all()
    assert (chosen == np.where(lanes < 8, 4, poison)).all()
    assert (masked[:8] == 5).all() and (masked[16:] == 0).all()


WAITED = {
    "vmcnt in order": (
        "global_load_dword v20, v1, s[4:5]\nglobal_load_dword v21, v1, s[4:5] offset:256\n"
        "s_waitcnt vmcnt(1)\nv_add_u32_e32 v20, 1, v20\ns_waitcnt vmcnt(0)"
    ),
    "stores count too": (
        "global_load_dword v20, v1, s[4:5]\nglobal_store_dword v1, v10, s[6:7] offset:512\ns_waitcnt vmcnt(1)\n"
        "v_add_u32_e32 v20, 1, v20\ns_waitcnt vmcnt(0)"
    ),
    "undefined lanes that are not used": (
        "v_mov_b32_e32 v20, 0\ns_mov_b64 exec, 0xff\nv_mov_b32_e32 v30, 1\ns_mov_b64 exec, -1\n"
        "v_add_u32_e32 v31, v30, v10\ns_mov_b64 exec, 0xff\nv_mov_b32_e32 v20, v31\ns_mov_b64 exec, -1"
    ),
}


def test_flat_loads_of_rdna_come_in_order(simulated: Simulated) -> None:
    """As LLVM has it (hasFlatLgkmVMemCountInOrder); on gfx9 only a wait for none is one."""
    code = """
    v_mov_b32_e32 v30, s4
    v_mov_b32_e32 v31, s5
    flat_load_dword v20, v[30:31]
    flat_load_dword v21, v[30:31]
    s_waitcnt vmcnt(1) lgkmcnt(1)
    v_add_u32_e32 v20, 1, v20
    s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    with pytest.raises(CandidateError, match="v20 is read before the wait"):
        simulated.run(code, GIVEN)
    text = code.replace("flat_load_dword", "flat_load_b32").replace("v_add_u32_e32", "v_add_nc_u32_e32")
    simulated.run(text, GIVEN, target="gfx1100")


@pytest.mark.parametrize("name", WAITED)
def test_not_refused(simulated: Simulated, name: str) -> None:
    simulated.run(WAITED[name], GIVEN)


def test_an_unknown_instruction_is_no_fault_of_the_program(simulated: Simulated) -> None:
    with pytest.raises(DeviceError, match=r"does not support `v_frobnicate_b32 v20, v10` \(assembly line \d+\)"):
        simulated.run("v_frobnicate_b32 v20, v10", GIVEN)
    found = simulated.run("v_mov_b32_e32 v20, 7\ns_branch .Lend\nv_frobnicate_b32 v20, v10\n.Lend:", GIVEN)
    assert (found == 7).all(), "one that does not run is none of ours"


def test_a_clamp_that_the_executor_lacks_is_no_fault_of_the_program(simulated: Simulated) -> None:
    with pytest.raises(DeviceError, match="does not support `v_mad_u32_u24 v20, v10, v11, v10 clamp`"):
        simulated.run("v_mad_u32_u24 v20, v10, v11, v10 clamp", GIVEN)


HALVES = """
v_lshlrev_b32_e32 v30, 2, v0
ds_write_b32 v30, v0
{wait}
{barrier}
v_xor_b32_e32 v31, 0x100, v30
ds_read_b32 v20, v31
s_waitcnt lgkmcnt(0)
v_and_b32_e32 v1, 0xfc, v1
"""


def _waves(simulated: Simulated, barrier: str, wait: str = "s_waitcnt lgkmcnt(0)") -> None:
    """Two waves: each reads what the other wrote."""
    text = assembly(HALVES.format(barrier=barrier, wait=wait), inputs=1)
    given, made = torch.zeros(576, dtype=torch.int32), torch.zeros(576, dtype=torch.int32)
    simulated.launcher(text).launch("snippet", (1, 1, 1), (128, 1, 1), 0, (given, made))


def test_races_in_lds(simulated: Simulated) -> None:
    _waves(simulated, "s_barrier")
    with pytest.raises(CandidateError, match="of LDS is read by wave 0 and by wave 1 without a barrier") as caught:
        _waves(simulated, "s_nop 0")
    assert caught.value.status == "nondeterministic"
    with pytest.raises(CandidateError, match="a barrier is reached before the wait for the LDS writes") as caught:
        _waves(simulated, "s_barrier", "s_nop 0")
    assert caught.value.status == "nondeterministic"


def test_barriers_that_differ(simulated: Simulated) -> None:
    code = """
    v_readfirstlane_b32 s20, v0
    s_cmp_eq_u32 s20, 0
    s_cbranch_scc1 .Lother
    s_barrier
    s_branch .Lend
    .Lother:
    s_barrier
    .Lend:
    v_mov_b32_e32 v20, 0
    """
    text = assembly(code, inputs=1)
    given, made = torch.zeros(576, dtype=torch.int32), torch.zeros(576, dtype=torch.int32)
    with pytest.raises(CandidateError, match="barrier divergence"):
        simulated.launcher(text).launch("snippet", (1, 1, 1), (128, 1, 1), 0, (given, made))


def test_an_endless_loop_ends(simulated: Simulated) -> None:
    with pytest.raises(CandidateError, match=r"more than 0\.05") as caught:
        simulated.run(".Lagain:\ns_branch .Lagain", GIVEN, launch_limit_s=0.05)
    assert caught.value.status == "timeout"


def test_denormals_and_rounding_follow_the_mode(simulated: Simulated) -> None:
    """The smallest normal number halved; a third, rounded up and down."""
    given = np.array([[0x00800000] * 64, [0x3F800000] * 64, [0x33000001] * 64], np.uint32)
    code = "v_mul_f32_e32 v20, 0.5, v10\nv_add_f32_e32 v21, v11, v12"
    usual = simulated.run(code, given, results=2)
    flushed = simulated.run(code, given, results=2, mode=".amdhsa_float_denorm_mode_32 0")
    down = simulated.run(code, given, results=2, mode=".amdhsa_float_round_mode_32 2")
    assert [int(row[0]) for row in usual] == [0x00400000, 0x3F800000]
    assert [int(row[0]) for row in flushed] == [0, 0x3F800000]
    up = simulated.run(code, given, results=2, mode=".amdhsa_float_round_mode_32 1")
    assert (int(down[1][0]), int(up[1][0])) == (0x3F800000, 0x3F800001)
    switched = simulated.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\ns_nop 0\n" + code, given, results=2)
    assert int(switched[0][0]) == 0
