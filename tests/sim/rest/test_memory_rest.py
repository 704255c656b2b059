"""Atomics and narrow accesses that clang seldom emits, of LDS and of global memory, against Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.harness import Simulated

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def _signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def _integers(bits: int) -> dict[str, Callable[[int, int], int]]:
    """What an atomic leaves in memory, of the old value and the operand."""
    mask = (1 << bits) - 1
    return {
        "add": lambda m, d: m + d & mask,
        "sub": lambda m, d: m - d & mask,
        "rsub": lambda m, d: d - m & mask,
        "and": lambda m, d: m & d,
        "or": lambda m, d: m | d,
        "xor": lambda m, d: m ^ d,
        "swap": lambda m, d: d,
        "umin": min,
        "umax": max,
        "smin": lambda m, d: min(m, d, key=lambda x: _signed(x, bits)),
        "smax": lambda m, d: max(m, d, key=lambda x: _signed(x, bits)),
        "inc": lambda m, d: 0 if m >= d else m + 1,
        "dec": lambda m, d: d if m == 0 or m > d else m - 1,
    }


LDS_NAMES = {"min_u": "umin", "max_u": "umax", "min_i": "smin", "max_i": "smax"}
PLAIN = ["add_u", "sub_u", "rsub_u", "inc_u", "dec_u", "min_u", "max_u", "min_i", "max_i", "and_b", "or_b", "xor_b"]


def _values(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of 64 old values and operands: (2, 64) each, the low one first; equal and extreme ones among them."""
    rng = np.random.default_rng(bits)
    old, by = (rng.integers(0, 1 << 64, 64, dtype=np.uint64, endpoint=False) for _ in range(2))
    old[:6], by[:6] = [0, M64, 1 << 63, 5, 5, M32], [3, M64, (1 << 63) - 1, 5, 4, 1 << 31]
    if bits == 32:
        old, by = old & np.uint64(M32), by & np.uint64(M32)
    return old, by


def _words(values: np.ndarray) -> list[np.ndarray]:
    return [(values & np.uint64(M32)).astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", PLAIN)
def test_lds_atomics_without_a_result(simulated: Simulated, name: str, bits: int) -> None:
    old, by = _values(bits)
    span, width, data = ("v[10:11]", "b64", "v[12:13]") if bits == 64 else ("v10", "b32", "v12")
    code = f"""
    v_lshlrev_b32_e32 v30, 3, v0
    ds_write_{width} v30, {span}
    s_waitcnt lgkmcnt(0)
    ds_{name}{bits} v30, {data}
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v21, 0
    ds_read_{width} {"v[20:21]" if bits == 64 else "v20"}, v30
    s_waitcnt lgkmcnt(0)
    """
    low, high = simulated.run(code, np.stack([*_words(old), *_words(by)]), results=2)
    work = _integers(bits)[LDS_NAMES.get(name, name[:-2])]
    for lane in range(64):
        made = int(low[lane]) | int(high[lane]) << 32
        assert made == work(int(old[lane]), int(by[lane])), (lane, hex(int(old[lane])), hex(int(by[lane])))


@pytest.mark.parametrize("bits", [32, 64])
def test_lds_compare_and_store(simulated: Simulated, bits: int) -> None:
    """Memory becomes the second operand where it equals the first."""
    old, new = _values(bits)
    expected = np.where(np.arange(64) % 2 == 0, old, old + np.uint64(1))
    span = (lambda at: f"v[{at}:{at + 1}]") if bits == 64 else (lambda at: f"v{at}")
    code = f"""
    v_lshlrev_b32_e32 v30, 3, v0
    ds_write_b{bits} v30, {span(10)}
    s_waitcnt lgkmcnt(0)
    ds_cmpst_b{bits} v30, {span(14)}, {span(12)}
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v21, 0
    ds_read_b{bits} {span(20)}, v30
    s_waitcnt lgkmcnt(0)
    """
    rows = np.stack([*_words(old), *_words(new), *_words(expected)])
    low, high = simulated.run(code, rows, results=2)
    for lane in range(64):
        assert int(low[lane]) | int(high[lane]) << 32 == int(new[lane] if lane % 2 == 0 else old[lane])


FLOATS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"add": np.add, "min": np.fmin, "max": np.fmax}


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", FLOATS)
def test_lds_atomics_of_floats(simulated: Simulated, name: str, bits: int, back: bool) -> None:
    old, by, rows = _floats(bits)
    span = (lambda at: f"v[{at}:{at + 1}]") if bits == 64 else (lambda at: f"v{at}")
    call = f"ds_{name}_rtn_f{bits} {span(22)}, v30, {span(12)}" if back else f"ds_{name}_f{bits} v30, {span(12)}"
    code = f"""
    v_lshlrev_b32_e32 v30, 3, v0
    ds_write_b{bits} v30, {span(10)}
    {"".join(f"v_mov_b32_e32 v{at}, v{at - 12}{chr(10)}" for at in (22, 23))}
    s_waitcnt lgkmcnt(0)
    {call}
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v21, 0
    ds_read_b{bits} {span(20)}, v30
    s_waitcnt lgkmcnt(0)
    """
    found = simulated.run(code, rows, results=4)
    assert (_read(found[:2], bits) == FLOATS[name](old, by)).all()
    assert (_read(found[2:], bits) == old).all()


def _floats(bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    old, by = (rng.standard_normal(64).astype(np.float64 if bits == 64 else np.float32) for _ in range(2))
    if bits == 32:
        none = np.zeros(64, np.uint32)
        return old, by, np.stack([old.view(np.uint32), none, by.view(np.uint32), none])
    return old, by, np.stack([*_words(old.view(np.uint64)), *_words(by.view(np.uint64))])


def _read(rows: np.ndarray, bits: int) -> np.ndarray:
    if bits == 32:
        return rows[0].copy().view(np.float32)
    return (rows[0].astype(np.uint64) | rows[1].astype(np.uint64) << np.uint64(32)).view(np.float64)


@pytest.mark.parametrize(
    "name", ["ds_pk_add_f16", "ds_pk_add_bf16", "global_atomic_pk_add_f16", "global_atomic_pk_add_bf16"]
)
def test_pairs_of_halves_are_added(simulated: Simulated, name: str) -> None:
    """Whole numbers up to 16 and their sums are exact in both types."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-16, 17, (2, 128)).astype(np.float32)
    if name.endswith("bf16"):
        codes = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b, a + b)]
    else:
        codes = [x.astype(np.float16).view(np.uint16) for x in (a, b, a + b)]
    first, second, total = (code.view(np.uint32) for code in codes)
    if name.startswith("ds"):
        code = f"""
        v_lshlrev_b32_e32 v30, 2, v0
        ds_write_b32 v30, v10
        s_waitcnt lgkmcnt(0)
        {name} v30, v11
        s_waitcnt lgkmcnt(0)
        ds_read_b32 v20, v30
        s_waitcnt lgkmcnt(0)
        """
    else:
        code = f"""
        global_store_dword v1, v10, s[6:7] offset:1024
        s_waitcnt vmcnt(0)
        {name} v1, v11, s[6:7] offset:1024
        s_waitcnt vmcnt(0)
        global_load_dword v20, v1, s[6:7] offset:1024
        s_waitcnt vmcnt(0)
        """
    found = simulated.run(code, np.stack([first, second]))[0]
    assert (found == total).all()


@pytest.mark.parametrize("name", ["i8", "i16", "i8_d16", "i8_d16_hi", "u8_d16", "u8_d16_hi", "u16_d16_hi", "u16_d16"])
def test_narrow_lds_reads(simulated: Simulated, name: str) -> None:
    """A byte or a half, extended; with d16 it fills one half of the register and the other stays."""
    given = np.random.default_rng(5).integers(0, 1 << 32, (2, 64), dtype=np.uint64).astype(np.uint32)
    code = f"""
    v_lshlrev_b32_e32 v30, 2, v0
    ds_write_b32 v30, v10
    v_mov_b32_e32 v20, v11
    s_waitcnt lgkmcnt(0)
    ds_read_{name} v20, v30 offset:2
    s_waitcnt lgkmcnt(0)
    """
    found = simulated.run(code, given)[0]
    assert (found == _narrow(given[0] >> np.uint32(16), given[1], name)).all()


def _narrow(half: np.ndarray, kept: np.ndarray, name: str) -> np.ndarray:
    eight, signed = "8" in name.partition("_")[0], name.startswith("i")
    value = (half & 0xFF).astype(np.uint8) if eight else half.astype(np.uint16)
    if signed:
        value = value.view(np.int8 if eight else np.int16)
    wide = value.astype(np.int64).astype(np.uint32)
    if "d16" not in name:
        return wide
    low = wide & np.uint32(0xFFFF)
    if name.endswith("hi"):
        return (kept & np.uint32(0xFFFF)) | low << np.uint32(16)
    return (kept & np.uint32(0xFFFF0000)) | low


def test_a_signed_byte_into_the_upper_half(simulated: Simulated) -> None:
    given = np.random.default_rng(6).integers(0, 1 << 32, (2, 64), dtype=np.uint64).astype(np.uint32)
    code = """
    v_mov_b32_e32 v20, v11
    global_load_sbyte_d16_hi v20, v1, s[4:5] offset:2
    s_waitcnt vmcnt(0)
    """
    found = simulated.run(code, given)[0]
    assert (found == _narrow(given[0] >> np.uint32(16), given[1], "i8_d16_hi")).all()


@pytest.mark.parametrize(
    "name", ["add", "sub", "and", "or", "xor", "swap", "umin", "umax", "smin", "smax", "inc", "dec", "cmpswap"]
)
def test_global_atomics_of_64_bits(simulated: Simulated, name: str) -> None:
    """The old value is returned, memory holds the new one."""
    old, by = _values(64)
    wanted = np.where(np.arange(64) % 2 == 0, old, old + np.uint64(1))
    code = f"""
    v_lshlrev_b32_e32 v30, 3, v0
    global_store_dwordx2 v30, v[10:11], s[6:7] offset:1024
    v_mov_b32_e32 v34, v12
    v_mov_b32_e32 v35, v13
    v_mov_b32_e32 v36, v14
    v_mov_b32_e32 v37, v15
    s_waitcnt vmcnt(0)
    global_atomic_{name}_x2 v[20:21], v30, {"v[34:37]" if name == "cmpswap" else "v[34:35]"}, s[6:7] offset:1024 sc0
    s_waitcnt vmcnt(0)
    global_load_dwordx2 v[22:23], v30, s[6:7] offset:1024
    s_waitcnt vmcnt(0)
    """
    found = simulated.run(code, np.stack([*_words(old), *_words(by), *_words(wanted)]), results=4)
    before, after = ([int(a) | int(b) << 32 for a, b in zip(*rows, strict=True)] for rows in (found[:2], found[2:]))
    assert before == [int(x) for x in old]
    for lane in range(64):
        m, d = int(old[lane]), int(by[lane])
        made = (d if m == int(wanted[lane]) else m) if name == "cmpswap" else _integers(64)[name](m, d)
        assert after[lane] == made, (lane, hex(m), hex(d))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", FLOATS)
def test_global_atomics_of_floats(simulated: Simulated, name: str, bits: int) -> None:
    old, by, rows = _floats(bits)
    span, size = ("v[10:11]", "x2") if bits == 64 else ("v10", "")
    data = "v[12:13]" if bits == 64 else "v12"
    target = "gfx1100" if bits == 32 and name != "add" else "gfx942"
    code = f"""
    v_lshlrev_b32_e32 v30, 3, v0
    global_store_dword{size} v30, {span}, s[6:7] offset:1024
    s_waitcnt vmcnt(0)
    global_atomic_{name}_f{bits} v30, {data}, s[6:7] offset:1024
    s_waitcnt vmcnt(0)
    v_mov_b32_e32 v21, 0
    global_load_dword{size} {"v[20:21]" if bits == 64 else "v20"}, v30, s[6:7] offset:1024
    s_waitcnt vmcnt(0)
    """
    if target == "gfx1100":
        code = code.replace("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)\n    s_waitcnt_vscnt null, 0x0")
        found = simulated.run(code, rows, results=2, target=target, threads=32)[:, :32]
        assert (_read(found, bits) == FLOATS[name](old, by)[:32]).all()
        return
    assert (_read(simulated.run(code, rows, results=2), bits) == FLOATS[name](old, by)).all()
