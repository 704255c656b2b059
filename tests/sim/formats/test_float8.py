"""hipwright/float8.h on the cpu target and in machine code, against a reference written from the specifications.

OCP 8-bit Floating Point Specification 1.0, tables 1 and 2 and section 5.2.1; the FNUZ forms by LLVM's APFloat. gfx942
converts FNUZ forms by instructions and gfx950 OCP's, gfx90a neither: all three agree to the last bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.sim.launcher import SimLauncher
from hipwright.program.signature import parse_signatures
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.sim import build as sim
from tests.sim.harness import Simulated

FORMATS = ("E4M3FN", "E5M2", "E4M3FNUZ", "E5M2FNUZ")
PLACES = ("cpu", "gfx90a", "gfx942", "gfx950")
Convert = Callable[[str, np.ndarray], np.ndarray]
SOURCE = "#include <hip/hip_runtime.h>\n#include <hipwright/float8.h>\n" + "".join(
    f"""
extern "C" __global__ void from_{name}(const unsigned char* x, float* y, int n) {{
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = float8_to_float<FLOAT8_{name}>(x[i]);
}}
extern "C" __global__ void to_{name}(const float* x, unsigned char* y, int n) {{
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = float_to_float8<FLOAT8_{name}, false>(x[i]);
}}
extern "C" __global__ void saturated_{name}(const float* x, unsigned char* y, int n) {{
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = float_to_float8<FLOAT8_{name}, true>(x[i]);
}}
"""
    for name in FORMATS
)


@pytest.fixture(scope="module")
def convert(simulated: Simulated) -> Callable[[str], Convert]:
    """convert(place)(kernel, numbers): what a kernel makes of them."""
    signatures = parse_signatures(SOURCE).signatures

    @cache
    def launcher(place: str) -> CpuLauncher | SimLauncher:
        if place == "cpu":
            host = cpu.build(SOURCE, {}, wave=64, cache=simulated.cache)
            assert host.ok, host.log
            return CpuLauncher(str(simulated.cache.path(host.blob)), signatures, wave=64)
        made = offline.build(SOURCE, place, {}, cache=simulated.cache)
        assert made.ok, made.log
        text = simulated.cache.get(made.isa_blob).decode()
        used = {"gfx942", "gfx950"} & {place}
        assert ("v_cvt_pk_fp8_f32" in text) == ("v_cvt_f32_bf8" in text) == bool(used)
        built = sim.from_assembly(text, f"{place}@sim", made, simulated.cache)
        return SimLauncher(str(simulated.library), str(simulated.cache.path(built.blob)), signatures)

    def run(place: str, kernel: str, numbers: np.ndarray) -> np.ndarray:
        made = torch.zeros(len(numbers), dtype=torch.float32 if kernel.startswith("from") else torch.uint8)
        blocks = -(-len(numbers) // 64)
        args = (torch.from_numpy(numbers), made, len(numbers))
        launcher(place).launch(kernel, (blocks, 1, 1), (64, 1, 1), 0, args)
        return made.numpy()

    return lambda place: partial(run, place)


# ---------------------------------------------------------------- the reference


def _value(code: int, name: str) -> Fraction | float:
    """The value of a code."""
    mantissa, bias = (3, 7) if name.startswith("E4M3") else (2, 15)
    size, fraction = code & 0x7F, Fraction(code & ((1 << mantissa) - 1), 1 << mantissa)
    exponent = size >> mantissa
    if name.endswith("FNUZ"):
        bias += 1
        if code == 0x80:
            return math.nan
    elif name == "E4M3FN" and size == 0x7F:
        return math.nan
    elif name == "E5M2" and exponent == 31:
        return math.nan if fraction else math.copysign(math.inf, -1 if code & 0x80 else 1)
    power = Fraction(2) ** (max(exponent, 1) - bias)
    found = (power * (1 + fraction) if exponent else power * fraction) * (-1 if code & 0x80 else 1)
    return -0.0 if not found and code & 0x80 else found


@cache
def _steps(name: str) -> list[Fraction]:
    """The finite values from 0 up, by their codes, and what the next would be."""
    found = [x for x in (_value(code, name) for code in range(128)) if isinstance(x, Fraction)]
    return [*found, 2 * found[-1] - found[-2]]


def _code(x: float, name: str, saturates: bool) -> int:
    """The code of a float32: the nearest value, to even, then what is said of overflow."""
    fnuz, steps = name.endswith("FNUZ"), _steps(name)
    nan, largest, sign = 0x80 if fnuz else 0x7F, len(steps) - 2, 0x80 if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return nan
    code = largest + 1
    if abs(x) < steps[-1]:
        size = Fraction(abs(x))
        above = bisect_left(steps, size)
        below = max(above - 1, 0)
        middle = (steps[below] + steps[above]) / 2
        code = below if size < middle or (size == middle and below % 2 == 0) else above
    if code > largest:
        code = largest if saturates else 0x7C if name == "E5M2" else nan
        if code == nan:
            return nan
    return 0 if fnuz and code == 0 else code | sign


def _borders(name: str) -> np.ndarray:
    """Float32 numbers at, just below and just above each value and each middle of two, of both signs; special ones."""
    steps = _steps(name)
    middles = [(a + b) / 2 for a, b in pairwise(steps)]
    exact = np.array([float(x) for x in (*steps, *middles)], np.float32)
    near = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    special = np.array([np.inf, np.nan, 1e-45, 1e-38, 3.4e38, 1e5], np.float32)
    found = np.concatenate([near, special])
    return np.concatenate([found, -found])


# ---------------------------------------------------------------- tests


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("place", PLACES)
def test_all_codes(convert: Callable[[str], Convert], place: str, name: str) -> None:
    found = convert(place)(f"from_{name}", np.arange(256, dtype=np.uint8))
    expected = np.array([float(_value(code, name)) for code in range(256)], np.float32)
    known = ~np.isnan(expected)
    assert (np.isnan(found) == ~known).all()
    assert (found[known].view(np.uint32) == expected[known].view(np.uint32)).all()


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("place", PLACES)
def test_all_borders(convert: Callable[[str], Convert], place: str, name: str, saturates: bool) -> None:
    numbers = _borders(name)
    found = convert(place)(f"{'saturated' if saturates else 'to'}_{name}", numbers)
    expected = np.array([_code(float(x), name, saturates) for x in numbers])
    wrong = np.flatnonzero(found != expected)
    assert not len(wrong), [(numbers[i], hex(found[i]), hex(expected[i])) for i in wrong[:5]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(FORMATS),
    place=st.sampled_from(PLACES),
    saturates=st.booleans(),
    words=st.lists(
        st.integers(0, (1 << 32) - 1)
        | st.floats(width=32).map(lambda x: int(np.float32(x).view(np.uint32)))
        | st.builds(lambda exponent, rest, sign: sign << 31 | exponent << 23 | rest,
                    st.integers(100, 145), st.integers(0, (1 << 23) - 1), st.integers(0, 1)),
        min_size=1,
        max_size=200,
    ),
)  # fmt: skip
def test_any_float(convert: Callable[[str], Convert], name: str, place: str, saturates: bool, words: list[int]) -> None:
    numbers = np.array(words, np.uint32).view(np.float32)
    found = convert(place)(f"{'saturated' if saturates else 'to'}_{name}", numbers)
    assert found.tolist() == [_code(float(x), name, saturates) for x in numbers]


def test_the_reference_has_the_specifications_limits() -> None:
    """OCP, table 1; so that the reference is not checked by the header alone."""
    assert [float(_steps(name)[-2]) for name in FORMATS] == [448, 57344, 240, 57344]
    assert [float(_steps(name)[1]) for name in FORMATS] == [2**-9, 2**-16, 2**-10, 2**-17]
    assert [float(_value(8 if name[1] == "4" else 4, name)) for name in FORMATS] == [2**-6, 2**-14, 2**-7, 2**-15]
    assert _code(464.0, "E4M3FN", False) == 0x7E and _code(465.0, "E4M3FN", False) == 0x7F
    assert _code(-math.inf, "E5M2", False) == 0xFC and _code(-math.inf, "E5M2", True) == 0xFB
    assert _code(-0.0, "E4M3FNUZ", True) == 0 and _code(-0.0, "E4M3FN", True) == 0x80


# ---------------------------------------------------------------- the instructions


@pytest.mark.parametrize(("target", "kinds"), [("gfx942", ("E4M3FNUZ", "E5M2FNUZ")), ("gfx950", ("E4M3FN", "E5M2"))])
def test_conversion_instructions(simulated: Simulated, target: str, kinds: tuple[str, str]) -> None:
    """Two numbers become the low or high half, the other half stays; bytes and halves are read by selects."""
    rng = np.random.default_rng(2)
    vectors = np.concatenate([rng.choice(_borders(kinds[0]), (1, 64)), rng.choice(_borders(kinds[1]), (1, 64))]).astype(
        np.float32
    )
    words = rng.integers(0, 1 << 32, (1, 64), dtype=np.uint64).astype(np.uint32)
    code = """
    v_mov_b32_e32 v20, v12
    v_cvt_pk_fp8_f32 v20, v10, v11
    v_mov_b32_e32 v21, v12
    v_cvt_pk_bf8_f32 v21, v11, v10 op_sel:[0,0,1]
    v_cvt_f32_fp8_e32 v22, v12
    v_cvt_f32_bf8_sdwa v23, v12 src0_sel:BYTE_2
    v_cvt_pk_f32_fp8_sdwa v[24:25], v12 src0_sel:WORD_1
    v_cvt_pk_f32_bf8_e32 v[26:27], v12
    """
    rows = simulated.run(code, np.concatenate([vectors.view(np.uint32), words]), results=8, target=target)
    a, b = vectors
    values = [np.array([float(_value(int(code), kind)) for code in range(256)], np.float32) for kind in kinds]
    assert (rows[0] >> np.uint32(16) == words[0] >> np.uint32(16)).all()
    assert ((rows[1] ^ words[0]) & np.uint32(0xFFFF) == 0).all()
    for row, shift, numbers, kind, known in [
        (rows[0], 0, a, kinds[0], values[0]),
        (rows[0], 8, b, kinds[0], values[0]),
        (rows[1], 16, b, kinds[1], values[1]),
        (rows[1], 24, a, kinds[1], values[1]),
    ]:
        code = row >> np.uint32(shift) & np.uint32(255)
        nan = np.isnan(known[code])  # OCP's NaN has either sign
        assert [_code(float(x), kind, False) for x in numbers] == np.where(
            nan, 0x80 if kind.endswith("FNUZ") else 0x7F, code
        ).tolist()
    byte = [words[0] >> np.uint32(8 * i) & np.uint32(255) for i in range(4)]
    expected = [
        values[0][byte[0]],
        values[1][byte[2]],
        values[0][byte[2]],
        values[0][byte[3]],
        values[1][byte[0]],
        values[1][byte[1]],
    ]
    for row, numbers in zip(rows[2:], expected, strict=True):
        np.testing.assert_array_equal(row.view(np.float32), numbers)
