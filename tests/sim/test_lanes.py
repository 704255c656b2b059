"""Exchange between lanes: DPP, permutes, swizzles, lane reads; and EXEC, carries, selections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.harness import Simulated

LANES = np.arange(64)
GIVEN = (np.arange(64, dtype=np.uint32) * 7 + 3)[None]
OLD = 999


def _row(f: Callable[[int], int | None]) -> list[int | None]:
    """The source lane of each lane, from a function of its place in a row of 16; None keeps the old value."""
    return [None if (at := f(lane % 16)) is None else lane - lane % 16 + at for lane in range(64)]


CONTROLS: dict[str, list[int | None]] = {
    "quad_perm:[3,0,2,1]": [lane - lane % 4 + [3, 0, 2, 1][lane % 4] for lane in range(64)],
    "row_shl:3": _row(lambda at: at + 3 if at + 3 < 16 else None),
    "row_shr:1": _row(lambda at: at - 1 if at else None),
    "row_ror:5": _row(lambda at: (at - 5) % 16),
    "row_mirror": _row(lambda at: 15 - at),
    "row_half_mirror": _row(lambda at: at - at % 8 + 7 - at % 8),
    "row_bcast:15": [lane // 16 * 16 - 1 if lane >= 16 else None for lane in range(64)],
    "row_bcast:31": [31 if lane >= 32 else None for lane in range(64)],
    "wave_shl:1": [lane + 1 if lane < 63 else None for lane in range(64)],
    "wave_shr:1": [lane - 1 if lane else None for lane in range(64)],
    "wave_rol:1": [(lane + 1) % 64 for lane in range(64)],
    "wave_ror:1": [(lane - 1) % 64 for lane in range(64)],
    "row_newbcast:6": _row(lambda at: 6),
}


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("zeros", [False, True])
def test_dpp(simulated: Simulated, control: str, zeros: bool) -> None:
    """A lane without a source keeps its value, or takes 0 with bound_ctrl."""
    tail = " bound_ctrl:0" if zeros else ""
    code = f"v_mov_b32_e32 v20, {OLD}\nv_mov_b32_dpp v20, v10 {control} row_mask:0xf bank_mask:0xf{tail}"
    found = simulated.run(code, GIVEN)[0]
    expected = [(0 if zeros else OLD) if at is None else int(GIVEN[0][at]) for at in CONTROLS[control]]
    assert found.tolist() == expected


def test_dpp_masks_rows_and_banks_and_inactive_sources(simulated: Simulated) -> None:
    code = f"""
    v_mov_b32_e32 v20, {OLD}
    s_mov_b32 exec_lo, 0xfffffffe
    v_add_u32_dpp v20, v10, v10 row_shr:1 row_mask:0x5 bank_mask:0x3
    s_mov_b32 exec_lo, -1
    """
    expected = []
    for lane in range(64):
        on = lane // 16 in (0, 2) and lane % 16 // 4 in (0, 1) and lane % 16 and lane != 1 and lane != 0
        expected.append(int(GIVEN[0][lane - 1] + GIVEN[0][lane]) if on else OLD)
    assert simulated.run(code, GIVEN)[0].tolist() == expected


SWIZZLES: dict[str, Callable[[int], int]] = {
    "swizzle(QUAD_PERM, 1, 0, 3, 2)": lambda lane: lane ^ 1,
    "swizzle(SWAP,16)": lambda lane: lane ^ 16,
    "swizzle(REVERSE,8)": lambda lane: lane ^ 7,
    "swizzle(BROADCAST,4,2)": lambda lane: lane // 4 * 4 + 2,
    'swizzle(BITMASK_PERM,"01pi0")': lambda lane: lane & 32 | 8 | lane & 4 | (lane & 2 ^ 2),
    "0x401f": lambda lane: lane ^ 16,
}


@pytest.mark.parametrize("offset", SWIZZLES)
def test_swizzle(simulated: Simulated, offset: str) -> None:
    found = simulated.run(f"ds_swizzle_b32 v20, v10 offset:{offset}\ns_waitcnt lgkmcnt(0)", GIVEN)[0]
    assert found.tolist() == [int(GIVEN[0][SWIZZLES[offset](lane)]) for lane in range(64)]


def test_permutes(simulated: Simulated) -> None:
    targets = np.random.default_rng(1).permutation(64).astype(np.uint32)
    given = np.stack([GIVEN[0], targets * 4])
    code = """
    ds_bpermute_b32 v20, v11, v10
    ds_permute_b32 v21, v11, v10
    s_waitcnt lgkmcnt(0)
    """
    pulled, pushed = simulated.run(code, given, results=2)
    assert (pulled == GIVEN[0][targets]).all()
    assert (pushed[targets] == GIVEN[0]).all()


def test_lane_reads(simulated: Simulated) -> None:
    code = """
    s_mov_b64 exec, 0xf0
    v_readfirstlane_b32 s20, v10
    s_mov_b64 exec, -1
    v_readlane_b32 s21, v10, 63
    s_mov_b32 s22, 5
    v_readlane_b32 s23, v10, s22
    v_mov_b32_e32 v20, s20
    v_mov_b32_e32 v21, s21
    v_mov_b32_e32 v22, s23
    v_writelane_b32 v22, s20, 9
    """
    first, last, fifth = simulated.run(code, GIVEN, results=3)
    assert (first[0], last[0], fifth[0], fifth[9]) == (GIVEN[0][4], GIVEN[0][63], GIVEN[0][5], GIVEN[0][4])


def test_carries(simulated: Simulated) -> None:
    rng = np.random.default_rng(2)
    given = rng.integers(0, 1 << 32, (4, 64), dtype=np.uint64).astype(np.uint32)
    code = """
    v_add_co_u32_e32 v20, vcc, v10, v12
    v_addc_co_u32_e32 v21, vcc, v11, v13, vcc
    v_sub_co_u32_e64 v22, s[20:21], v10, v12
    v_subb_co_u32_e64 v23, s[22:23], v11, v13, s[20:21]
    v_subrev_co_u32_e32 v24, vcc, v10, v12
    v_subbrev_co_u32_e32 v25, vcc, v11, v13, vcc
    """
    rows = simulated.run(code, given, results=6).astype(np.uint64)
    a, b = (given[i].astype(np.uint64) | given[i + 1].astype(np.uint64) << np.uint64(32) for i in (0, 2))
    made = [rows[i] | rows[i + 1] << np.uint64(32) for i in (0, 2, 4)]
    assert (made[0] == a + b).all() and (made[1] == a - b).all() and (made[2] == b - a).all()


def test_selection_and_class(simulated: Simulated) -> None:
    bits = np.zeros((1, 64), np.uint32)
    bits[0, :10] = [
        0x7F800001,
        0x7FC00000,
        0xFF800000,
        0xBF800000,
        0x80000001,
        0x80000000,
        0,
        1,
        0x3F800000,
        0x7F800000,
    ]
    code = "\n".join(
        f"""
        v_mov_b32_e32 v30, {1 << i}
        v_cmp_class_f32_e32 vcc, v10, v30
        v_cndmask_b32_e64 v20, {"v20" if i else "99"}, {i}, vcc
        """
        for i in range(10)
    )
    assert simulated.run(code, bits)[0][:10].tolist() == list(range(10))


def test_inactive_lanes_keep_their_values(simulated: Simulated) -> None:
    code = f"""
    v_mov_b32_e32 v20, {OLD}
    s_mov_b64 exec, 0x5555555555555555
    v_add_u32_e32 v20, v10, v10
    s_mov_b64 exec, -1
    """
    assert simulated.run(code, GIVEN)[0].tolist() == [2 * int(GIVEN[0][i]) if i % 2 == 0 else OLD for i in LANES]
