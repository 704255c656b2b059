"""Undefined bits: what each vector instruction makes of them, and masks of lanes that depend on them.

A bit of a result may be called defined only where no value of the undefined bits changes it: NumPy computes what the
instruction makes of many of them. Bits that are undefined are stored as poison. So v20 XOR k and v20 XOR NOT k are
equal in them when they are stored, and opposite in the others.
"""

from __future__ import annotations

import numpy as np
import pytest

from hipwright.errors import CandidateError
from tests.sim.cases_clamped import CLAMPED
from tests.sim.cases_half import HALVES
from tests.sim.cases_more import MORE
from tests.sim.cases_vector import VECTOR, Case
from tests.sim.harness import Simulated
from tests.sim.values import Array, view, words

U32 = np.uint32
FILLS = 24
SCALARS = np.array([0x070D0400, 0, 0, 0, 0, 0, 0, 0], U32)
BITWISE = [
    "v_mov_b32_e32 v20, v10",
    "v_not_b32_e32 v20, v10",
    "v_bfrev_b32_e32 v20, v10",
    "v_and_b32_e32 v20, v10, v11",
    "v_or_b32_e32 v20, v10, v11",
    "v_xor_b32_e32 v20, v10, v11",
    "v_bfi_b32 v20, v10, v11, v12",
    "v_and_or_b32 v20, v10, v11, v12",
    "v_or3_b32 v20, v10, v11, v12",
    "v_alignbyte_b32 v20, v10, v11, 2",
]
"""Instructions that say of every bit exactly whether it is undefined."""
ALL = [*VECTOR, *MORE, *HALVES, *CLAMPED]
KNOWN = {case.line: case for case in ALL}


def _masks(rows: Array, seed: int) -> Array:
    """Which bits are undefined: by lanes a half, the other, any, or none."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 1 << 32, rows.shape, dtype=np.uint64).astype(U32)
    lanes = np.arange(64) % 4
    return np.choose(lanes, [np.full_like(rows, 0xFFFF), np.full_like(rows, 0xFFFF0000), drawn, np.zeros_like(rows)])


def _varied(case: Case, inputs: list[Array], masks: list[Array]) -> Array:
    """The bits of the result that some value of the undefined bits changes, by rows of words."""
    rng, first, changed = np.random.default_rng(3), None, np.zeros((2, 64), U32)
    for fill in range(FILLS):
        drawn = [np.zeros_like(m) if fill == 0 else m if fill == 1 else _any(rng, m) for m in masks]
        given = [(rows & ~m) | (d & m) for rows, m, d in zip(inputs, masks, drawn, strict=True)]
        with np.errstate(all="ignore"):
            made = case.expected(*(view(rows, kind) for rows, kind in zip(given, case.kinds, strict=True)))
        bits = made.view(np.uint64 if made.dtype.itemsize == 8 else U32).astype(np.uint64)
        pair = np.stack([bits.astype(U32), (bits >> np.uint64(32)).astype(U32)])
        first = pair if first is None else first
        changed |= pair ^ first
    return changed


def _any(rng: np.random.Generator, like: Array) -> Array:
    return rng.integers(0, 1 << 32, like.shape, dtype=np.uint64).astype(U32)


def _found(simulated: Simulated, case: Case, inputs: list[Array], masks: list[Array]) -> Array:
    """The bits of v20 and v21 that the executor holds to be undefined."""
    rows, hidden = np.concatenate(inputs), np.concatenate(masks)
    count = len(rows)
    loads = [f"global_load_dword v{30 + i}, v1, s[4:5] offset:{256 * (count + i)}" for i in range(count)]
    hide = [f"v_bfi_b32 v{10 + i}, v{30 + i}, v50, v{10 + i}" for i in range(count)]
    told = [f"v_xor_b32_e32 v{22 + 2 * i + j}, {k}, v{20 + i}" for i in range(2) for j, k in enumerate(("s20", "s21"))]
    code = "\n".join(
        [
            *loads,
            "s_waitcnt vmcnt(0)",
            *hide,
            "v_mov_b32_e32 v20, 0\nv_mov_b32_e32 v21, 0",
            case.line,
            "s_mov_b32 s20, 0x5a3c96e1\ns_not_b32 s21, s20",
            *told,
        ]
    )
    made = simulated.run(code, np.concatenate([rows, hidden]), SCALARS, results=6, target=case.target)
    return np.stack([~(made[2] ^ made[3]), ~(made[4] ^ made[5])])


def _inputs(case: Case) -> tuple[list[Array], list[Array]]:
    inputs = [words(kind, 7 * i + 1) for i, kind in enumerate(case.kinds)]
    return inputs, [_masks(rows, 5 * i + 2) for i, rows in enumerate(inputs)]


def _plain(case: Case) -> bool:
    """Whether a case reads vector registers and writes no more than v20 and v21."""
    return bool(case.kinds) and len(case.kinds) <= 4 and case.result in "fihpdq" and "s_" not in case.line


@pytest.mark.parametrize("case", [c for c in ALL if _plain(c)], ids=lambda c: c.line.splitlines()[-1].split()[0])
def test_no_bit_that_may_change_is_defined(simulated: Simulated, case: Case) -> None:
    inputs, masks = _inputs(case)
    if sum(len(rows) for rows in inputs) > 4:
        pytest.skip("more registers than the snippet has")
    found, varied = _found(simulated, case, inputs, masks), _varied(case, inputs, masks)
    wrong = varied & ~found
    assert not wrong.any(), f"lanes {np.flatnonzero(wrong.any(0))[:4]}: {wrong[:, wrong.any(0)][:, :4]}"
    known = ~np.logical_or.reduce([m.any(0) for m in masks])
    assert known.any() and not found[:, known].any(), "what is made of defined bits is defined"


@pytest.mark.parametrize("line", BITWISE, ids=lambda line: line.split()[0])
def test_bitwise_instructions_are_exact(simulated: Simulated, line: str) -> None:
    case = KNOWN.get(line) or Case(line, "i" * line.count(", v"), "i", _ORACLES[line.split()[0]])
    inputs, masks = _inputs(case)
    assert (_found(simulated, case, inputs, masks)[0] == _varied(case, inputs, masks)[0]).all()


_ORACLES = {
    "v_mov_b32_e32": lambda a: a,
    "v_not_b32_e32": lambda a: ~a,
    "v_bfrev_b32_e32": lambda a: np.array([int(f"{int(x):032b}"[::-1], 2) for x in a], U32),
    "v_and_b32_e32": lambda a, b: a & b,
    "v_or_b32_e32": lambda a, b: a | b,
    "v_xor_b32_e32": lambda a, b: a ^ b,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_alignbyte_b32": lambda a, b: (a << U32(16)) | (b >> U32(16)),
}
SHIFTED = {
    "v_lshlrev_b32_e32 v20, 16, v10": lambda m: m << U32(16),
    "v_lshrrev_b32_e32 v20, 16, v10": lambda m: m >> U32(16),
    "v_perm_b32 v20, v10, v10, s20": lambda m: (m >> U32(16)) | (m << U32(16)),
    "v_bfe_u32 v20, v10, 8, 8": lambda m: m >> U32(8) & U32(0xFF),
    "v_alignbit_b32 v20, v10, v10, 16": lambda m: (m >> U32(16)) | (m << U32(16)),
    "v_lshl_or_b32 v20, v10, 16, v0": lambda m: m << U32(16),
    "v_mov_b32_sdwa v20, v10 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1": lambda m: m >> U32(16),
    "v_mov_b32_sdwa v20, v10 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0": lambda m: m << U32(16),
    "v_add_u16_e32 v20, 0, v10": lambda m: np.array([_from_lowest(int(x) & 0xFFFF) for x in m], U32),
    "ds_swizzle_b32 v20, v10 offset:0x041f\ns_waitcnt lgkmcnt(0)": lambda m: m[np.arange(64) ^ 1],
    "v_mov_b32_dpp v20, v10 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf": lambda m: m[np.arange(64) ^ 1],
}


@pytest.mark.parametrize("line", SHIFTED, ids=lambda line: line.split()[0])
def test_bits_move_with_their_values(simulated: Simulated, line: str) -> None:
    case = Case("s_mov_b32 s20, 0x05040706\n" + line, "i", "i", lambda a: a)
    inputs = [words("i", 1)]
    masks = [_masks(inputs[0], 2)]
    found = _found(simulated, case, inputs, masks)[0]
    assert (found == SHIFTED[line](masks[0][0])).all()


def _from_lowest(mask: int) -> int:
    """All bits of 16 from the lowest of a mask on: a carry may reach them."""
    return 0xFFFF & ~((mask & -mask) - 1) if mask else 0


def test_a_half_that_is_loaded_leaves_the_other_undefined(simulated: Simulated) -> None:
    code = """
    global_load_short_d16 v40, v1, s[4:5]
    global_load_short_d16_hi v41, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_mov_b32_e32 v20, v40
    v_mov_b32_e32 v21, v41
    v_perm_b32 v22, v41, v40, s20
    v_cvt_f32_f16_e32 v23, v40
    v_pk_add_u16 v24, v40, 0 op_sel_hi:[1,0]
    """
    given = np.arange(64, dtype=U32)[None] * U32(0x00010001)
    poison = 0x7FF57FF5
    rows = simulated.run("s_mov_b32 s20, 0x07060100\n" + code, given, results=5)
    low = given[0] & U32(0xFFFF)
    assert (rows[0] == (low | U32(poison & 0xFFFF0000))).all()
    assert (rows[1] == (low << U32(16) | U32(poison & 0xFFFF))).all()
    assert (rows[2] == given[0]).all(), "the two defined halves"
    assert (rows[3] == low.astype(np.uint16).view(np.float16).astype(np.float32).view(U32)).all()
    assert (rows[4] == (low | U32(poison & 0xFFFF0000))).all()


def test_a_first_bit_below_what_is_undefined_is_defined(simulated: Simulated) -> None:
    """As clang for RDNA counts the zeros of a byte that was loaded into half of a register."""
    code = """
    global_load_ubyte_d16 v40, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_ffbl_b32_e32 v20, v40
    v_min_u32_e32 v21, 3, v40
    """
    given = np.arange(64, dtype=U32)[None]
    rows = simulated.run(code, given, results=2)
    assert (rows[0][1:] == [(lane & -lane).bit_length() - 1 for lane in range(1, 64)]).all()
    assert rows[0][0] == 0x7FF57FF5 and (rows[1][3:] == 3).all() and (rows[1][:3] == 0x7FF57FF5).all()


COMPARED = {
    "v_cmp_eq_u32_e32 vcc, v10, v11": (np.equal, "u4"),
    "v_cmp_ne_u32_e32 vcc, v10, v11": (np.not_equal, "u4"),
    "v_cmp_lt_u32_e32 vcc, v10, v11": (np.less, "u4"),
    "v_cmp_ge_u32_e32 vcc, v10, v11": (np.greater_equal, "u4"),
    "v_cmp_gt_i32_e32 vcc, v10, v11": (np.greater, "i4"),
    "v_cmp_le_i32_e32 vcc, v10, v11": (np.less_equal, "i4"),
    "v_cmp_lt_i16_e32 vcc, v10, v11": (np.less, "i2"),
    "v_cmp_gt_u16_e32 vcc, v10, v11": (np.greater, "u2"),
    "v_cmp_eq_u16_e32 vcc, v10, v11": (np.equal, "u2"),
}


@pytest.mark.parametrize("line", COMPARED, ids=lambda line: line.split()[0])
def test_comparisons_are_undefined_where_they_may_end_either_way(simulated: Simulated, line: str) -> None:
    test, kind = COMPARED[line]
    rng = np.random.default_rng(8)
    inputs = [_any(rng, np.zeros((1, 64))) for _ in range(2)]
    inputs[1][0, ::3] = inputs[0][0, ::3] ^ U32(1)
    masks = [U32(1) << rng.integers(0, 32, (1, 64)).astype(U32), np.zeros((1, 64), U32)]
    masks[0][0, ::5] = 0
    case = Case(f"{line}\nv_cndmask_b32_e64 v20, 0, -1, vcc", "ii", "i", lambda a, b: a)
    found = _found(simulated, case, inputs, masks)[0]
    ends = [
        test(*(x.astype(f"u{kind[1]}").view(kind) for x in (given[0], inputs[1][0])))
        for given in (inputs[0] | masks[0], inputs[0] & ~masks[0])
    ]
    assert ((found != 0) == (ends[0] != ends[1])).all() and set(found.tolist()) <= {0, 0xFFFFFFFF}


# ---------------------------------------------------------------- masks

UNDEFINED_IF = """
v_cmp_lt_f32_e32 vcc, v40, v10
v_cmp_lt_f32_e64 s[20:21], v41, v10
s_or_b64 s[20:21], s[20:21], vcc
s_and_saveexec_b64 s[22:23], s[20:21]
s_xor_b64 s[24:25], exec, s[22:23]
{then}
s_andn2_saveexec_b64 s[26:27], s[24:25]
{other}
s_or_b64 exec, exec, s[26:27]
"""


def _nested(depth: int) -> str:
    if depth == 0:
        return "v_mov_b32_e32 v42, 1"
    inner = _nested(depth - 1)
    for at in (20, 22, 24, 26):  # other registers for what is inside
        inner = inner.replace(f"s[{at}:{at + 1}]", f"s[{at + 8}:{at + 9}]") if depth == 2 else inner
    return UNDEFINED_IF.format(then=inner, other=inner)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("times", [1, 5])
def test_where_branches_on_undefined_values_meet_all_lanes_are_active(
    simulated: Simulated, depth: int, times: int
) -> None:
    """A value that is never used may be compared: clang does so with elements beyond the last column."""
    code = _nested(depth) * times + "ds_write_b32 v1, v10\nds_read_b32 v20, v1\ns_waitcnt lgkmcnt(0)"
    found = simulated.run(code, np.arange(64, dtype=U32)[None])[0]
    assert (found == np.arange(64)).all()


def test_a_write_under_a_branch_on_an_undefined_value_is_refused(simulated: Simulated) -> None:
    """In the branch that is taken with what the registers hold, which is no number."""
    code = UNDEFINED_IF.format(then="v_mov_b32_e32 v42, 1", other="ds_write_b32 v1, v10") + "v_mov_b32_e32 v20, 0"
    with pytest.raises(CandidateError, match="depends on a register that was never written"):
        simulated.run(code, np.arange(64, dtype=U32)[None])


def test_a_mask_that_was_never_written_is_known_in_active_lanes(simulated: Simulated) -> None:
    """clang collects what lanes find in a loop so; the first time, the register holds nothing."""
    code = """
    v_cmp_gt_u32_e64 s[20:21], 16, v0
    s_mov_b64 s[22:23], exec
    s_mov_b64 exec, 0xff
    s_andn2_b64 s[24:25], s[24:25], exec
    s_and_b64 s[20:21], s[20:21], exec
    s_or_b64 s[24:25], s[24:25], s[20:21]
    v_mov_b32_e32 v21, 0
    v_cndmask_b32_e64 v20, 3, 4, s[24:25]
    v_lshlrev_b32_e32 v30, 2, v20
    ds_write_b32 v30, v0
    s_mov_b64 exec, s[22:23]
    v_cndmask_b32_e64 v21, 3, 4, s[24:25]
    """
    rows = simulated.run(code, np.zeros((1, 64), U32), results=2)
    assert (rows[0][:8] == 4).all() and (rows[1][:8] == 4).all() and (rows[1][8:] == 0x7FF57FF5).all()
    with pytest.raises(CandidateError, match="EXEC depends"):
        simulated.run("s_and_saveexec_b64 s[20:21], s[30:31]\nv_mov_b32_e32 v20, 0", np.zeros((1, 64), U32))


def test_a_mask_and_its_opposite(simulated: Simulated) -> None:
    """x and not x is 0, x or not x is 1, x xor x is 0; x or another is not known."""
    code = """
    v_cmp_eq_u32_e32 vcc, 1, v40
    v_cmp_eq_u32_e64 s[20:21], 1, v41
    s_not_b64 s[22:23], vcc
    s_and_b64 s[24:25], vcc, s[22:23]
    s_or_b64 s[26:27], vcc, s[22:23]
    s_xor_b64 s[28:29], vcc, vcc
    s_or_b64 s[30:31], vcc, s[20:21]
    v_cndmask_b32_e64 v20, 3, 4, s[24:25]
    v_cndmask_b32_e64 v21, 3, 4, s[26:27]
    v_cndmask_b32_e64 v22, 3, 4, s[28:29]
    v_cndmask_b32_e64 v23, 3, 4, s[30:31]
    v_cndmask_b32_e64 v24, 4, 4, s[30:31]
    """
    rows = simulated.run(code, np.zeros((1, 64), U32), results=5)
    assert [int(row[0]) for row in rows] == [3, 4, 3, 0x7FF57FF5, 4] and (rows == rows[:, :1]).all()
