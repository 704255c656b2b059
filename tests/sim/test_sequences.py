"""Instructions that only make sense together: division, and the atomics of LDS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.harness import Simulated
from tests.sim.values import words

F32 = """
v_div_scale_f32 v30, s[20:21], v11, v11, v10
v_rcp_f32_e32 v31, v30
v_fma_f32 v32, -v30, v31, 1.0
v_fmac_f32_e32 v31, v32, v31
v_div_scale_f32 v33, vcc, v10, v11, v10
v_mul_f32_e32 v34, v33, v31
v_fma_f32 v35, -v30, v34, v33
v_fmac_f32_e32 v34, v35, v31
v_fma_f32 v30, -v30, v34, v33
v_div_fmas_f32 v30, v30, v31, v34
v_div_fixup_f32 v20, v30, v11, v10
"""
F64 = """
v_div_scale_f64 v[30:31], s[20:21], v[12:13], v[12:13], v[10:11]
v_rcp_f64_e32 v[32:33], v[30:31]
v_fma_f64 v[34:35], -v[30:31], v[32:33], 1.0
v_fma_f64 v[32:33], v[32:33], v[34:35], v[32:33]
v_fma_f64 v[34:35], -v[30:31], v[32:33], 1.0
v_fma_f64 v[32:33], v[32:33], v[34:35], v[32:33]
v_div_scale_f64 v[34:35], vcc, v[10:11], v[12:13], v[10:11]
v_mul_f64 v[36:37], v[34:35], v[32:33]
v_fma_f64 v[30:31], -v[30:31], v[36:37], v[34:35]
s_nop 1
v_div_fmas_f64 v[30:31], v[30:31], v[32:33], v[36:37]
v_div_fixup_f64 v[20:21], v[30:31], v[12:13], v[10:11]
"""


def _numbers(seed: int, dtype: type, exponents: int) -> np.ndarray:
    """64 numbers of every size, denormals and special ones among them."""
    rng = np.random.default_rng(seed)
    found = np.ldexp(rng.normal(size=64), rng.integers(-exponents, min(exponents, 1020), 64))
    with np.errstate(over="ignore"):
        out = found.astype(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, 3 * tiny, np.finfo(dtype).max, np.finfo(dtype).tiny, 1.0]
    out[rng.permutation(64)[: len(special)]] = np.array(special, dtype)
    return out


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_division_is_rounded_correctly(simulated: Simulated, dtype: type, seed: int) -> None:
    """By clang's expansion; no other reading of the scale, the scaled multiply-add and the fix-up passes this."""
    a, b = (_numbers(2 * seed + i, dtype, 145 if dtype == np.float32 else 1060) for i in (0, 1))
    single = dtype == np.float32
    if single:
        given = np.stack([a.view(np.uint32), b.view(np.uint32)])
        made = simulated.run(F32, given)[0].view(np.float32)
    else:
        pairs = [x.view(np.uint32).reshape(64, 2).T for x in (a, b)]
        rows = simulated.run(F64, np.concatenate(pairs), results=2)
        made = np.ascontiguousarray(rows.T).view(np.float64).ravel()
    with np.errstate(all="ignore"):
        expected = a / b
    same = (made == expected) & (np.signbit(made) == np.signbit(expected)) | (np.isnan(made) & np.isnan(expected))
    lane = int(np.argmin(same))
    assert same.all(), f"{a[lane]} / {b[lane]} = {made[lane]}, expected {expected[lane]}"


def _s(x: int, bits: int) -> int:
    return x - (1 << bits) * (x >> (bits - 1))


ATOMICS: dict[str, Callable[[int, int, int], int]] = {
    "add_rtn_u": lambda old, x, bits: old + x,
    "sub_rtn_u": lambda old, x, bits: old - x,
    "rsub_rtn_u": lambda old, x, bits: x - old,
    "inc_rtn_u": lambda old, x, bits: 0 if old >= x else old + 1,
    "dec_rtn_u": lambda old, x, bits: x if old == 0 or old > x else old - 1,
    "min_rtn_u": lambda old, x, bits: min(old, x),
    "max_rtn_u": lambda old, x, bits: max(old, x),
    "min_rtn_i": lambda old, x, bits: min(old, x, key=lambda v: _s(v, bits)),
    "max_rtn_i": lambda old, x, bits: max(old, x, key=lambda v: _s(v, bits)),
    "and_rtn_b": lambda old, x, bits: old & x,
    "or_rtn_b": lambda old, x, bits: old | x,
    "xor_rtn_b": lambda old, x, bits: old ^ x,
    "wrxchg_rtn_b": lambda old, x, bits: x,
}


@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("bits", [32, 64])
def test_lds_atomics(simulated: Simulated, name: str, bits: int) -> None:
    """All lanes on one place, in the order of lanes; the last value is read back."""
    given = words("q", 5)
    wide = bits == 64
    data, out, last = ("v[10:11]", "v[20:21]", "v[22:23]") if wide else ("v10", "v20", "v22")
    code = f"""
    v_mov_b32_e32 v30, 8
    v_mov_b32_e32 v31, 77
    v_mov_b32_e32 v32, 0
    v_mov_b32_e32 v21, 0
    v_mov_b32_e32 v23, 0
    ds_write_b64 v30, v[31:32]
    ds_{name}{bits} {out}, v30, {data}
    ds_read_b{bits} {last}, v30
    s_waitcnt lgkmcnt(0)
    """
    rows = simulated.run(code, given, results=4).astype(np.uint64)
    returned, kept = (rows[i] | rows[i + 1] << np.uint64(32) for i in (0, 2))
    old, mask = 77, (1 << bits) - 1
    for lane in range(64):
        x = int(given[0][lane]) | (int(given[1][lane]) << 32 if wide else 0)
        assert int(returned[lane]) == old
        old = ATOMICS[name](old, x, bits) & mask
    assert int(kept[0]) == old


@pytest.mark.parametrize("wide", [False, True])
def test_lds_compare_and_swap(simulated: Simulated, wide: bool) -> None:
    """Lane l replaces l by l + 1: what is compared with comes first."""
    kind, old, new, out = ("b64", "v[32:33]", "v[34:35]", "v[20:21]") if wide else ("b32", "v32", "v34", "v20")
    code = f"""
    v_mov_b32_e32 v30, 0
    v_mov_b32_e32 v31, 0
    v_mov_b32_e32 v32, v0
    v_mov_b32_e32 v33, 0
    v_add_u32_e32 v34, 1, v0
    v_mov_b32_e32 v35, 0
    ds_write_b64 v30, v[30:31]
    ds_cmpst_rtn_{kind} {out}, v30, {old}, {new}
    s_waitcnt lgkmcnt(0)
    """
    assert simulated.run(code)[0].tolist() == list(range(64))


SAVED: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
    "orn2": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
}


@pytest.mark.parametrize("name", SAVED)
def test_saving_exec(simulated: Simulated, name: str) -> None:
    """The old EXEC is kept, the new one is an operation on it and the mask."""
    mask, before = 0x123456789ABCDEF0, 0x00FF00FFF0F0F0F0
    code = f"""
    s_mov_b32 s20, {hex(mask & 0xFFFFFFFF)}
    s_mov_b32 s21, {hex(mask >> 32)}
    s_mov_b32 exec_lo, {hex(before & 0xFFFFFFFF)}
    s_mov_b32 exec_hi, {hex(before >> 32)}
    s_{name}_saveexec_b64 s[22:23], s[20:21]
    s_mov_b64 s[24:25], exec
    s_mov_b64 exec, -1
    v_mov_b32_e32 v20, s22
    v_mov_b32_e32 v21, s23
    v_mov_b32_e32 v22, s24
    v_mov_b32_e32 v23, s25
    """
    rows = [int(row[0]) for row in simulated.run(code, results=4)]
    assert rows[0] | rows[1] << 32 == before
    assert rows[2] | rows[3] << 32 == SAVED[name](mask, before) & ((1 << 64) - 1)
