"""Matrix instructions of gfx950 and of 8-bit floats, and loads from global memory straight to LDS.

The layouts are AMD's ("Matrix Core Programming on AMD CDNA3 and CDNA4 architecture", 2025): with KL elements of k in a
lane, lane l has row l mod M and KL neighbouring k from KL (l / M) on; 8-bit operands of the scaled instructions have
two runs of 16 in place of one of 32, half of k apart. The numbers are small, so that sums are exact in any order.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from hipwright.errors import CandidateError, DeviceError
from hipwright.float8 import FLOAT8, from_float8
from hipwright.toolchain import clang
from tests.sim.harness import Simulated
from tests.small_floats import FNUZ, FORMATS, OCP, codes, lanes, packed, values_of


def _product(simulated: Simulated, text: str, more: list[np.ndarray], size: int, target: str) -> np.ndarray:
    """The matrix (M, M) that an instruction leaves in v[80:]; operands are in v40 on."""
    items = size * size // 64
    rows = []
    for start in range(0, items, 8):
        count = min(8, items - start)
        moves = "\n".join(f"v_mov_b32_e32 v{20 + i}, v{80 + start + i}" for i in range(count))
        rows.append(simulated.run(f"{text}\n{moves}", None, results=count, more=np.concatenate(more), target=target))
    out = np.concatenate(rows).view(np.float32)
    made = np.empty((size, size))
    for i, j in np.ndindex(size, size):
        lane, item = (16 * (i // 4) + j, i % 4) if size == 16 else (32 * (i // 4 % 2) + j, 4 * (i // 8) + i % 4)
        made[i, j] = out[item, lane]
    return made


@pytest.mark.parametrize("kinds", ["fp8_fp8", "bf8_bf8", "fp8_bf8", "bf8_fp8"])
@pytest.mark.parametrize(("size", "depth"), [(32, 16), (16, 32)])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_products_of_8_bit_floats(simulated: Simulated, target: str, size: int, depth: int, kinds: str) -> None:
    """FNUZ on gfx942, OCP on gfx950: the same codes are other values."""
    rng = np.random.default_rng(4)
    (a, x), (b, y) = (codes(rng, kind, (size, depth), target) for kind in kinds.split("_"))
    registers = [packed(lanes(one, False), 8) for one in (a, b)]
    name = f"v_mfma_f32_{size}x{size}x{depth}_{kinds}"
    text = f"{name} v[80:{79 + size * size // 64}], v[40:41], v[42:43], 1.0"
    assert (_product(simulated, text, registers, size, target) == x @ y.T + 1).all()


WIDE = [
    *((f"f32_{shape}_{kind}", kind) for shape in ("16x16x32", "32x32x16") for kind in ("f16", "bf16")),
    ("i32_16x16x64_i8", "i8"),
    ("i32_32x32x32_i8", "i8"),
]


@pytest.mark.parametrize(("name", "kind"), WIDE, ids=[name for name, _ in WIDE])
def test_wide_products(simulated: Simulated, name: str, kind: str) -> None:
    """Twice the k of gfx942's: 8 neighbouring halves or 16 bytes of a lane."""
    size, depth = int(name.split("_")[1].split("x")[0]), int(name.split("_")[1].split("x")[2])
    rng = np.random.default_rng(9)
    values = rng.integers(-4, 5, (2, size, depth))
    if kind == "i8":
        stored = values.astype(np.int8).view(np.uint8)
    elif kind == "f16":
        stored = values.astype(np.float16).view(np.uint16)
    else:
        stored = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    registers = [packed(lanes(one, False), 8 if kind == "i8" else 16) for one in stored]
    text = f"v_mfma_{name} v[80:{79 + size * size // 64}], v[40:43], v[44:47], {5 if kind == 'i8' else 1.0}"
    made = _product(simulated, text, registers, size, "gfx950")
    expected = values[0] @ values[1].T
    if kind == "i8":
        made, expected = made.astype(np.float32).view(np.int32).astype(np.int64), expected + 4
    assert (made == expected + 1).all()


@pytest.mark.parametrize(("size", "depth"), [(16, 128), (32, 64)])
@pytest.mark.parametrize("kinds", [(0, 0), (1, 1), (0, 1), (1, 0), (2, 2), (3, 3), (4, 4), (2, 4), (4, 3)])
def test_scaled_products(simulated: Simulated, size: int, depth: int, kinds: tuple[int, int]) -> None:
    """32 elements of k share a scale, in a byte that op_sel chooses, of the lane of the row and of those 32."""
    rng = np.random.default_rng(12)
    names = [list(FORMATS)[kind] for kind in kinds]
    both = [codes(rng, name, (size, depth), "gfx950") for name in names]
    registers = [
        packed(lanes(one, FORMATS[name] == 8), FORMATS[name]) for name, (one, _) in zip(names, both, strict=True)
    ]
    scales = rng.integers(126, 129, (2, size, depth // 32, 4))
    held = [packed(one.transpose(1, 0, 2).reshape(64, 4), 8) for one in scales]
    a, b = len(registers[0]), len(registers[1])
    last = 79 + size * size // 64
    spans = f"v[40:{39 + a}], v[{40 + a}:{39 + a + b}]"
    suffix = "".join(f" {word}:{kind}" for word, kind in zip(("cbsz", "blgp"), kinds, strict=True) if kind)
    for first, second in ((0, 0), (3, 1)):
        chosen = f"op_sel:[{first & 1},{second & 1},0] op_sel_hi:[{first >> 1},{second >> 1},0]"
        text = (
            f"v_mfma_scale_f32_{size}x{size}x{depth}_f8f6f4 v[80:{last}], {spans}, 1.0, "
            f"v{40 + a + b}, v{41 + a + b} {chosen}{suffix}"
        )
        x, y = (
            values * np.repeat(2.0 ** (one[..., byte] - 127), 32, axis=1)
            for (_, values), one, byte in zip(both, scales, (first, second), strict=True)
        )
        made = _product(simulated, text, [*registers, *held], size, "gfx950")
        assert (made == x @ y.T + 1).all(), chosen
    plain = f"v_mfma_f32_{size}x{size}x{depth}_f8f6f4 v[80:{last}], {spans}, 1.0{suffix}"
    made = _product(simulated, plain, registers, size, "gfx950")
    assert (made == both[0][1] @ both[1][1].T + 1).all()


def test_a_scale_of_255_is_not_a_number(simulated: Simulated) -> None:
    more = [np.zeros((16, 64), np.uint32), np.full((2, 64), 127, np.uint32)]
    more[1][0, 3] = 255  # the scale of row 3, the first 32 of k
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[80:83], v[40:47], v[48:55], 1.0, v56, v57"
    made = _product(simulated, text, more, 16, "gfx950")
    assert np.isnan(made[3]).all() and (np.delete(made, 3, axis=0) == 1).all()


def test_a_mix_of_widths_is_refused(simulated: Simulated) -> None:
    """No published layout says where k lies where one operand has 8 bits and the other fewer."""
    text = "v_mfma_f32_16x16x128_f8f6f4 v[80:83], v[40:47], v[48:51], 1.0 blgp:4"
    with pytest.raises(DeviceError, match="v_mfma_f32_16x16x128_f8f6f4"):
        simulated.run(text, None, more=np.zeros((12, 64), np.uint32), target="gfx950")


def test_every_8_bit_float_has_its_value(simulated: Simulated) -> None:
    """All 256 codes of both formats, on both architectures, as products with 1."""
    for target, names in (("gfx942", FNUZ), ("gfx950", OCP)):
        for kind, dtype in names.items():
            one = int(np.flatnonzero(values_of(kind, target) == 1)[0])
            a, b = np.zeros((16, 32), np.uint8), np.zeros((16, 32), np.uint8)
            got = np.empty(256, np.float32)
            b[:, 0] = one  # so D[i][j] is A[i][0]
            for start in range(0, 256, 16):
                a[:, 0] = np.arange(start, start + 16)
                registers = [packed(lanes(one, False), 8) for one in (a, b)]
                text = f"v_mfma_f32_16x16x32_{kind}_{kind} v[80:83], v[40:41], v[42:43], 0"
                got[start : start + 16] = _product(simulated, text, registers, 16, target)[:, 0]
            np.testing.assert_array_equal(got, from_float8(np.arange(256), dtype).astype(np.float32))
            assert dtype in FLOAT8


def test_the_assembler_takes_these_names(tmp_path: Path) -> None:
    """So that a test's spelling is the compiler's."""
    lines = [
        *(f"v_mfma_{name} v[80:{83 if 'x16x' in name else 95}], v[40:43], v[44:47], 1.0" for name, _ in WIDE),
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[80:83], v[40:45], v[46:49], 1.0, v58, v59 op_sel:[1,0,0] "
        "op_sel_hi:[1,0,0] cbsz:2 blgp:4",
        "v_mfma_f32_32x32x64_f8f6f4 v[80:95], v[40:47], v[48:55], 1.0 blgp:1",
        *(f"global_load_lds_{suffix} v1, s[4:5] offset:16" for suffix in ("dword", "dwordx3", "dwordx4")),
    ]
    source = tmp_path / "all.s"
    source.write_text("\n".join(lines) + "\n")
    command = [clang.find().program, "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-c", "-x", "assembler"]
    command += [str(source), "-o", str(tmp_path / "all.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


# ---------------------------------------------------------------- loads to LDS

READ = """
s_waitcnt vmcnt(0)
s_barrier
v_lshlrev_b32_e32 v30, 2, v0
"""


@pytest.mark.parametrize(("suffix", "words"), [("dword", 1), ("dwordx3", 3), ("dwordx4", 4)])
def test_loads_to_lds(simulated: Simulated, suffix: str, words: int) -> None:
    """Lane l's words go to M0 + offset + l * size; inactive lanes leave theirs as they are; the offset counts twice."""
    given = np.arange(8 * 64, dtype=np.uint32).reshape(8, 64)
    clear = "\n".join(f"ds_write_b32 v1, v31 offset:{256 * i}" for i in range(8))
    code = f"""
    v_mov_b32_e32 v31, -1
    {clear}
    s_waitcnt lgkmcnt(0)
    v_mul_u32_u24_e32 v32, {4 * words}, v0
    s_movk_i32 m0, 0x40
    s_mov_b64 s[20:21], exec
    s_mov_b64 exec, 0x7fffffff
    global_load_lds_{suffix} v32, s[4:5] offset:16
    s_mov_b64 exec, s[20:21]
    s_waitcnt vmcnt(0)
    """
    code += "\n".join(f"ds_read_b32 v{20 + i}, v1 offset:{256 * i}" for i in range(6)) + "\ns_waitcnt lgkmcnt(0)"
    found = simulated.run(code, given, results=6, target="gfx950").ravel()
    expected = np.full(6 * 64, 0xFFFFFFFF, np.uint32)
    expected[20 : 20 + 31 * words] = 4 + np.arange(31 * words)
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("wait", "message"),
    [("", "byte 8 of LDS is used before the wait for the load of assembly line"), ("s_waitcnt vmcnt(0)", "")],
)
def test_the_wait_of_a_load_to_lds(simulated: Simulated, wait: str, message: str) -> None:
    code = f"""
    s_mov_b32 m0, 0
    global_load_lds_dword v1, s[4:5]
    {wait}
    v_mov_b32_e32 v30, 8
    ds_read_b32 v20, v30
    s_waitcnt lgkmcnt(0)
    """
    given = np.arange(64, dtype=np.uint32)[None]
    if not message:
        assert (simulated.run(code, given)[0] == 2).all()
        return
    with pytest.raises(CandidateError, match=message):
        simulated.run(code, given)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("s_movk_i32 m0, 0xfc0\nglobal_load_lds_dword v1, s[4:5]", "outside every buffer.*write of LDS memory"),
        ("global_load_lds_dword v1, s[4:5]", "the LDS address of a load depends on a register that was never written"),
    ],
    ids=["beyond", "undefined"],
)
def test_bad_addresses_of_loads_to_lds(simulated: Simulated, code: str, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        simulated.run(code)


def test_a_barrier_does_not_wait_for_loads_to_lds(simulated: Simulated) -> None:
    code = "s_mov_b32 m0, 0\nglobal_load_lds_dword v1, s[4:5]\ns_barrier\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v20, 0"
    with pytest.raises(CandidateError, match="barrier"):
        simulated.run(code, threads=128)
