"""Global, flat, scratch and LDS instructions, and atomics, of every width; matrix instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.sim.harness import Simulated
from tests.sim.values import halves

GIVEN = np.random.default_rng(4).integers(0, 1 << 32, (8, 64), dtype=np.uint64).astype(np.uint32)
LINEAR = GIVEN.ravel()  # the input buffer, as words
BYTES = LINEAR.view(np.uint8)
LANE = np.arange(64)


@pytest.mark.parametrize("words", [1, 2, 3, 4])
@pytest.mark.parametrize("family", ["global", "flat"])
def test_loads_and_stores_of_words(simulated: Simulated, words: int, family: str) -> None:
    """Loads at 16 bytes a lane with an offset; the store goes to the output, whose rows are then overwritten."""
    kind = {1: "dword", 2: "dwordx2", 3: "dwordx3", 4: "dwordx4"}[words]
    last = f"v[20:{19 + words}]" if words > 1 else "v20"
    code = f"""
    v_lshlrev_b32_e32 v30, 4, v0
    v_mov_b32_e32 v31, s5
    v_add_co_u32_e32 v30, vcc, s4, v30
    v_addc_co_u32_e32 v31, vcc, 0, v31, vcc
    {family}_load_{kind} {last}, v[30:31]{", off" if family == "global" else ""} offset:64
    s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    rows = simulated.run(code, GIVEN, results=words)
    for i in range(words):
        assert (rows[i] == LINEAR[16 + 4 * LANE + i]).all()
    store = f"""
    v_lshlrev_b32_e32 v30, 4, v0
    global_store_{kind} v30, {_span(10, words)}, s[6:7]
    s_waitcnt vmcnt(0)
    """
    out = f"{store}\n" + "\n".join(
        f"v_lshlrev_b32_e32 v31, 2, v0\nglobal_load_dword v{20 + r}, v31, s[6:7] offset:{256 * r}" for r in range(4)
    )
    rows = simulated.run(out + "\ns_waitcnt vmcnt(0)", GIVEN, results=4)
    flat = rows.ravel()
    for i in range(words):
        assert (flat[4 * LANE + i] == GIVEN[i]).all()


PARTS = {
    "ubyte": lambda at: BYTES[at].astype(np.uint32),
    "sbyte": lambda at: BYTES[at].view(np.int8).astype(np.int32).view(np.uint32),
    "ushort": lambda at: LINEAR.view(np.uint16)[at // 2].astype(np.uint32),
    "sshort": lambda at: LINEAR.view(np.int16)[at // 2].astype(np.int32).view(np.uint32),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_words(simulated: Simulated, part: str) -> None:
    code = f"""
    v_lshlrev_b32_e32 v30, 1, v0
    global_load_{part} v20, v30, s[4:5] offset:34
    v_mov_b32_e32 v21, -1
    global_load_short_d16_hi v21, v30, s[4:5] offset:34
    v_mov_b32_e32 v22, -1
    global_load_ubyte_d16 v22, v30, s[4:5] offset:34
    s_waitcnt vmcnt(0)
    """
    whole, high, low = simulated.run(code, GIVEN, results=3)
    at = 34 + 2 * LANE
    assert (whole == PARTS[part](at)).all()
    assert (high == (LINEAR.view(np.uint16)[at // 2].astype(np.uint32) << 16 | 0xFFFF)).all()
    assert (low == (BYTES[at].astype(np.uint32) | 0xFFFF0000)).all()


@pytest.mark.parametrize("name", ["b8", "b16", "b32", "b64", "b96", "b128", "2_b32", "2_b64", "2st64_b32", "2st64_b64"])
def test_lds(simulated: Simulated, name: str) -> None:
    """What is written is read; the two-address forms in their units."""
    words = {"b64": 2, "b96": 3, "b128": 4, "2_b32": 2, "2_b64": 4, "2st64_b32": 2, "2st64_b64": 4}.get(name, 1)
    each = 2 if name.endswith("b64") and name[0] == "2" else 1
    size = 4 * words
    if name.startswith("2"):
        first = "v[10:11]" if each == 2 else "v10"
        second = "v[12:13]" if each == 2 else "v11"
        unit = 4 * each
        shift = {4: 2, 8: 3}[unit]
        offsets = "offset0:1 offset1:66" if "st64" not in name else "offset0:1 offset1:3"
        write = f"v_lshlrev_b32_e32 v30, {shift}, v0\nds_write{name} v30, {first}, {second} {offsets}"
        read = f"ds_read{name} v[20:{19 + words}], v30 {offsets}"
    else:
        write = f"v_mul_u32_u24_e32 v30, {max(size, 4)}, v0\nds_write_{name} v30, {_span(10, words)} offset:16"
        read = f"ds_read_{ {'b8': 'u8', 'b16': 'u16'}.get(name, name) } {_span(20, words)}, v30 offset:16"
    rows = simulated.run(f"{write}\ns_waitcnt lgkmcnt(0)\n{read}\ns_waitcnt lgkmcnt(0)", GIVEN, results=words)
    mask = {"b8": 0xFF, "b16": 0xFFFF}.get(name, 0xFFFFFFFF)
    for i in range(words):
        assert (rows[i] == GIVEN[i] & mask).all()


def _span(first: int, words: int) -> str:
    return f"v[{first}:{first + words - 1}]" if words > 1 else f"v{first}"


def test_a_result_may_overwrite_its_address(simulated: Simulated) -> None:
    code = """
    v_lshlrev_b32_e32 v30, 3, v0
    ds_write_b64 v30, v[10:11]
    v_mov_b32_e32 v20, v30
    ds_read2_b32 v[20:21], v20 offset1:1
    v_mov_b32_e32 v22, s4
    v_mov_b32_e32 v23, s5
    global_load_dwordx2 v[22:23], v[22:23], off offset:8
    s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    rows = simulated.run(code, GIVEN, results=4)
    assert (rows[:2] == GIVEN[:2]).all()
    assert (rows[2] == LINEAR[2]).all() and (rows[3] == LINEAR[3]).all()


def test_scratch(simulated: Simulated) -> None:
    """Each lane has its own."""
    code = """
    v_mov_b32_e32 v30, 16
    scratch_store_dwordx2 off, v[10:11], off offset:8
    scratch_store_dword v30, v12, off offset:4
    s_mov_b32 s20, 20
    scratch_load_dwordx2 v[20:21], off, off offset:8
    scratch_load_dword v22, off, s20
    s_waitcnt vmcnt(0)
    """
    rows = simulated.run(code, GIVEN, results=3)
    assert (rows == GIVEN[:3]).all()


INTEGER_ATOMICS = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "smin": lambda old, x: min(old, x, key=_signed),
    "umax": max,
    "umin": min,
    "smax": lambda old, x: max(old, x, key=_signed),
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "swap": lambda old, x: x,
    "inc": lambda old, x: 0 if old >= x else old + 1,
    "dec": lambda old, x: x if old == 0 or old > x else old - 1,
}


def _signed(x: int) -> int:
    return x - (1 << 32) * (x >> 31)


@pytest.mark.parametrize("name", INTEGER_ATOMICS)
def test_atomics_return_the_old_value(simulated: Simulated, name: str) -> None:
    """All lanes on one word of the output, in the order of lanes."""
    code = f"""
    v_mov_b32_e32 v30, 0
    v_mov_b32_e32 v31, 77
    global_store_dword v30, v31, s[6:7] offset:1024
    global_atomic_{name} v20, v30, v10, s[6:7] offset:1024 sc0
    s_waitcnt vmcnt(0)
    """
    found = simulated.run(code, GIVEN)[0]
    old, expected = 77, []
    for x in GIVEN[0].tolist():
        expected.append(old)
        old = INTEGER_ATOMICS[name](old, x) & 0xFFFFFFFF
    assert found.tolist() == expected


def test_float_and_lds_atomics(simulated: Simulated) -> None:
    numbers = np.random.default_rng(5).normal(size=64).astype(np.float32)
    code = """
    v_mov_b32_e32 v30, 0
    v_mov_b32_e32 v31, 0
    global_store_dword v30, v31, s[6:7] offset:1024
    global_atomic_add_f32 v30, v10, s[6:7] offset:1024
    ds_write_b32 v30, v31
    ds_add_f32 v30, v10
    ds_add_rtn_u32 v21, v30, v31
    s_waitcnt vmcnt(0)
    global_load_dword v20, v30, s[6:7] offset:1024
    s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    first, second = simulated.run(code, numbers.view(np.uint32)[None], results=2)
    total = np.float32(0)
    for x in numbers:
        total += x
    assert first.view(np.float32)[0] == total and second.view(np.float32)[0] == total


def test_compare_and_swap(simulated: Simulated) -> None:
    """Lane l replaces l by l + 1: each sees the one before."""
    code = """
    v_mov_b32_e32 v30, 0
    global_store_dword v30, v30, s[6:7] offset:1024
    v_add_u32_e32 v32, 1, v0
    v_mov_b32_e32 v33, v0
    global_atomic_cmpswap v20, v30, v[32:33], s[6:7] offset:1024 sc0
    s_waitcnt vmcnt(0)
    """
    assert simulated.run(code)[0].tolist() == list(range(64))


# ---------------------------------------------------------------- matrices

SHAPES = [
    ("v_mfma_f32_16x16x4_f32", 16, 4, 1, "f32"),
    ("v_mfma_f32_32x32x2_f32", 32, 2, 1, "f32"),
    ("v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, "f32"),
    ("v_mfma_f32_16x16x16_f16", 16, 16, 1, "f16"),
    ("v_mfma_f32_32x32x8_f16", 32, 8, 1, "f16"),
    ("v_mfma_f32_16x16x16_bf16", 16, 16, 1, "bf16"),
    ("v_mfma_f32_32x32x8_bf16", 32, 8, 1, "bf16"),
    ("v_mfma_i32_16x16x32_i8", 16, 32, 1, "i8"),
    ("v_mfma_f64_16x16x4_f64", 16, 4, 1, "f64"),
]
PER_WORD = {"f32": 1, "f16": 2, "bf16": 2, "i8": 4, "f64": 0.5}


def _operand(rng: np.random.Generator, size: int, depth: int, blocks: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(values [block, i, k], registers) by AMD's layout: lane i + size * (b + blocks * (k / KL)), element k mod KL."""
    values = rng.integers(-4, 5, (blocks, size, depth)).astype(np.float64)
    per_lane = depth * size * blocks // 64
    lanes = np.zeros((64, per_lane))
    for b in range(blocks):
        for i in range(size):
            for k in range(depth):
                lanes[i + size * (b + blocks * (k // per_lane)), k % per_lane] = values[b, i, k]
    if kind == "bf16":
        words = (lanes.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        words = lanes.astype({"f32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64}[kind])
    return values, np.ascontiguousarray(words).view(np.uint32).reshape(64, -1).T.copy()


@pytest.mark.parametrize(
    ("name", "size", "depth", "blocks", "kind"), SHAPES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_mfma(simulated: Simulated, name: str, size: int, depth: int, blocks: int, kind: str) -> None:
    """Small whole numbers, so that any order of sums is exact; the accumulator is 3 everywhere."""
    rng = np.random.default_rng(6)
    a, first = _operand(rng, size, depth, blocks, kind)
    b, second = _operand(rng, size, depth, blocks, kind)
    expected = np.einsum("bik,bjk->bij", a, b)
    wide = 2 if kind == "f64" else 1
    items = size * size * blocks // 64 * wide
    regs = len(first)
    constant = "3" if kind == "i8" else "1.0"
    code = f"{name} v[32:{31 + items}], {_span(10, regs)}, {_span(10 + regs, regs)}, {constant}\n"
    rows = []
    for start in range(0, items, 8):
        moves = "\n".join(f"v_mov_b32_e32 v{20 + i}, v{32 + start + i}" for i in range(min(8, items - start)))
        rows.append(simulated.run(code + moves, np.concatenate([first, second]), results=min(8, items - start)))
    out = np.concatenate(rows)
    for block in range(blocks):
        for i in range(size):
            for j in range(size):
                lane, item = _place(size, block, i, j, kind)
                if kind == "f64":
                    pair = np.array([out[2 * item][lane], out[2 * item + 1][lane]], np.uint32)
                    made = pair.view(np.float64)[0]
                else:
                    made = out[item][lane].view(np.int32 if kind == "i8" else np.float32)
                assert made == expected[block, i, j] + (3 if kind == "i8" else 1), (block, i, j)


def _place(size: int, block: int, i: int, j: int, kind: str) -> tuple[int, int]:
    """The lane and item of D[i][j] (AMD Instinct MI300 ISA, matrix layouts)."""
    if kind == "f64":
        return 16 * (i % 4) + j, i // 4
    if size == 4:
        return 4 * block + j, i
    if size == 16:
        return 16 * (i // 4) + j, i % 4
    return 32 * (i // 4 % 2) + j, 4 * (i // 8) + i % 4


def test_halves_are_read_by_the_layout() -> None:
    """The layouts above are checked against the values themselves, not by the executor's formula alone."""
    values, registers = _operand(np.random.default_rng(7), 16, 16, 1, "f16")
    lane, register = 16 + 3, registers[1]
    assert halves(register)[lane] == values[0, 3, 6] and re.match("v_mfma", SHAPES[0][0])


def test_the_sum_of_an_lds_address_wraps(simulated: Simulated) -> None:
    """clang makes `a[9 - k]` an offset of 36 from -4 k."""
    code = """
    ds_write_b32 v1, v10
    v_mov_b32_e32 v30, -8
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v20, v30 offset:36
    s_waitcnt lgkmcnt(0)
    """
    given = np.arange(64, dtype=np.uint32)[None] + np.uint32(100)
    assert (simulated.run(code, given)[0] == 107).all()
