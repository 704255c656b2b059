"""Accuracy of hipwright's device math: every function, on this machine's CPU, against mpmath, in ulp.

The headers for AMD code objects are compiled here for the host, so the measured code is the code that runs there
(except exp, exp2, exp10, log, log2, log10 in float and the `__fast` intrinsics, which LLVM expands on AMD). The limits
below are the table of docs/toolchain.md.
"""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from hipwright.toolchain import clang

from .math_samples import L, P, Range, U, sample, ulps

ROOT = Path(__file__).parents[2]
mp.mp.prec = 200


def normcdf(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def remainder(x: Any, y: Any) -> Any:
    q = mp.nint(x / y)
    return x - q * y


# name: (reference, ranges of the argument, most ulp for float, most ulp for double)
UNARY: dict[str, tuple[Callable[..., Any], list[Range], float | None, float | None]] = {
    "exp": (mp.exp, [L(1e-8, 80), U(-87, 88), U(-700, 700)], 1.0, 1.0),
    "exp2": (lambda x: mp.power(2, x), [L(1e-8, 120), U(-1000, 1000)], 0.6, 1.0),
    "exp10": (lambda x: mp.power(10, x), [L(1e-8, 37), U(-300, 300)], 0.6, 1.0),
    "expm1": (mp.expm1, [L(1e-10, 80), U(-2, 2), U(-40, 700)], 1.5, 1.5),
    "log": (mp.log, [P(1e-300, 1e300), U(0.5, 2)], 1.0, 0.6),
    "log2": (lambda x: mp.log(x, 2), [P(1e-300, 1e300), U(0.5, 2)], 0.6, 0.6),
    "log10": (mp.log10, [P(1e-300, 1e300), U(0.5, 2)], 0.6, 0.6),
    "log1p": (mp.log1p, [L(1e-12, 0.9), P(1e-12, 1e30)], 2.0, 0.6),
    "sqrt": (mp.sqrt, [P(1e-300, 1e300)], 0.5, 0.5),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), [P(1e-300, 1e300)], 0.6, 1.5),
    "cbrt": (mp.cbrt, [P(1e-300, 1e300)], 0.6, 0.6),
    "sin": (mp.sin, [L(1e-8, 10), L(10, 1e5), L(1e5, 1e300)], 1.75, 1.0),
    "cos": (mp.cos, [L(1e-8, 10), L(10, 1e5), L(1e5, 1e300)], 1.75, 1.0),
    "tan": (mp.tan, [L(1e-8, 10), L(10, 1e5), L(1e5, 1e300)], 3.5, 2.0),
    "sinpi": (mp.sinpi, [L(1e-8, 1000)], 0.6, 1.0),
    "cospi": (mp.cospi, [L(1e-8, 1000)], 0.6, 1.0),
    "asin": (mp.asin, [L(1e-8, 1), U(-1, 1)], 0.6, 1.0),
    "acos": (mp.acos, [L(1e-8, 1), U(-1, 1)], 0.6, 1.0),
    "atan": (mp.atan, [L(1e-8, 1e8), U(-4, 4)], 1.5, 1.5),
    "sinh": (mp.sinh, [L(1e-8, 80), L(1, 700)], 0.6, 2.5),
    "cosh": (mp.cosh, [L(1e-8, 80), L(1, 700)], 0.6, 2.5),
    "tanh": (mp.tanh, [L(1e-8, 30), U(-2, 2)], 1.5, 3.0),
    "asinh": (mp.asinh, [L(1e-8, 1e30), U(-2, 2)], 0.6, 2.0),
    "acosh": (mp.acosh, [P(1.0001, 1e30), U(1.001, 2)], 0.6, 2.0),
    "atanh": (mp.atanh, [L(1e-8, 0.999), U(-0.9, 0.9)], 0.6, 2.0),
    "erf": (mp.erf, [L(1e-8, 6), U(-2, 2)], 1.25, 1.5),
    "erfc": (mp.erfc, [L(1e-8, 5), U(0, 9), U(0, 26)], 0.6, 4.0),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [L(1e-8, 5), P(0.1, 25)], 0.6, 4.0),
    "normcdf": (normcdf, [L(1e-8, 9), U(-37, 6)], 0.6, 4.0),
    "erfinv": (mp.erfinv, [L(1e-8, 0.99), P(0.9, 0.9999999)], 3.0, None),
    "tgamma": (mp.gamma, [U(0.01, 30), P(1e-8, 170), U(-20.4, -0.1)], 0.6, 6.0),
    "lgamma": (mp.loggamma, [U(0.01, 30), P(1e-8, 1e15)], 0.6, 5.0),
    "round": (lambda x: mp.sign(x) * mp.floor(abs(x) + mp.mpf("0.5")), [L(1e-3, 1e10)], 0.0, 0.0),
}
BINARY: dict[str, tuple[Callable[..., Any], list[tuple[Range, Range]], float, float]] = {
    "pow": (mp.power, [(P(1e-3, 1e3), U(-12, 12)), (P(0.5, 2), U(-120, 120)), (P(1e-30, 1e30), U(-9, 9))], 0.6, 1.0),
    "atan2": (mp.atan2, [(L(1e-6, 1e6), L(1e-6, 1e6))], 0.6, 1.5),
    "hypot": (mp.hypot, [(L(1e-15, 1e15), L(1e-15, 1e15)), (L(1, 2), L(1, 2))], 0.6, 0.6),
    "fmod": (mp.fmod, [(P(1e-5, 1e30), P(1e-3, 10)), (P(1, 1e6), P(0.5, 2))], 0.0, 0.0),
    "remainder": (remainder, [(P(1e-5, 1e30), P(1e-3, 10)), (P(1, 1e6), P(0.5, 2))], 0.0, 0.0),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Each public function as a loop over an array, in one shared library."""
    folder = tmp_path_factory.mktemp("math")
    loops = ['#include "hw/half.h"\n#include "hw/bf16.h"\n']
    for name in UNARY:
        for c, t in (("f", "float"), ("d", "double")):
            if name != "erfinv" or c == "f":
                loops.append(
                    f'extern "C" void {name}_{c}(const {t}* x, {t}* y, long n) {{ '
                    f"for (long i = 0; i < n; ++i) y[i] = {name}(x[i]); }}\n"
                )
    for name in BINARY:
        for c, t in (("f", "float"), ("d", "double")):
            loops.append(
                f'extern "C" void {name}_{c}(const {t}* x, const {t}* z, {t}* y, long n) {{ '
                f"for (long i = 0; i < n; ++i) y[i] = {name}(x[i], z[i]); }}\n"
            )
    loops.append(
        'extern "C" void half_d(const double* x, unsigned short* y, long n) {'
        "for (long i = 0; i < n; ++i) y[i] = __half_as_ushort(__double2half(x[i])); }\n"
        'extern "C" void half_rz(const float* x, unsigned short* y, long n) {'
        "for (long i = 0; i < n; ++i) y[i] = __half_as_ushort(__float2half_rz(x[i])); }\n"
        'extern "C" void bf16(const float* x, unsigned short* y, long n) {'
        "for (long i = 0; i < n; ++i) y[i] = __bfloat16_as_ushort(__float2bfloat16(x[i])); }\n"
    )
    (folder / "m.cc").write_text("".join(loops))
    march = ["-march=x86-64-v3"] if platform.machine() == "x86_64" else []
    flags = ["-O2", "-std=c++17", "-nostdinc", "-nostdinc++", "-fno-math-errno", "-ffp-contract=fast-honor-pragmas"]
    program = [
        clang.find().program,
        "clang",
        "-target",
        f"{platform.machine()}-linux-gnu",
        "-x",
        "c++",
        *march,
        *flags,
        "-fPIC",
        "-I",
        str(clang.INCLUDE),
        "-c",
        "m.cc",
        "-o",
        "m.o",
    ]
    subprocess.run(program, cwd=folder, check=True)
    link = [clang.find().program, "ld.lld", "-shared", "--no-undefined", "m.o", "-o", "m.so"]
    subprocess.run(link, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "m.so"))


def call(library: ctypes.CDLL, name: str, *arrays: np.ndarray) -> np.ndarray:
    out = np.empty_like(arrays[0])
    suffix = "f" if out.dtype == np.float32 else "d"
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(library, f"{name}_{suffix}")(*pointers, ctypes.c_long(out.size))
    return out


def worst(library: ctypes.CDLL, name: str, reference: Callable[..., Any], ranges: list[Any], dtype: type) -> float:
    rng = np.random.default_rng(7)
    top = 0.0
    for entry in ranges:
        kinds = entry if isinstance(entry[0], tuple) else (entry,)
        arguments = [sample(rng, kind, dtype) for kind in kinds]
        got = call(library, name, *arguments)
        want = [reference(*map(mp.mpf, row)) for row in zip(*(a.tolist() for a in arguments), strict=True)]
        top = max(top, float(ulps(got, want).max()))
    return top


CASES = [
    (name, dtype, reference, ranges, limit)
    for name, (reference, ranges, *limits) in (UNARY | BINARY).items()
    for dtype, limit in zip((np.float32, np.float64), limits, strict=True)
    if limit is not None
]


@pytest.mark.parametrize(
    ("name", "dtype", "reference", "ranges", "limit"), CASES, ids=[f"{c[0]}-{c[1].__name__}" for c in CASES]
)
def test_accuracy(
    library: ctypes.CDLL, name: str, dtype: type, reference: Callable[..., Any], ranges: list[Any], limit: float
) -> None:
    assert worst(library, name, reference, ranges, dtype) <= limit


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    3.0,
    -3.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    1e-310,
    88.0,
    1e30,
]
NUMPY = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "pow": "power",
}
WITH_NUMPY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*WITH_NUMPY, *("pow", "atan2", "hypot", "fmod")])
def test_special_values_are_those_of_the_c_library(library: ctypes.CDLL, name: str, dtype: type) -> None:
    values = np.array(SPECIAL, dtype)
    arguments = [values] if name in WITH_NUMPY else [a.ravel().copy() for a in np.meshgrid(values, values)]
    with np.errstate(all="ignore"):
        want = getattr(np, NUMPY.get(name, name))(*arguments)
    got = call(library, name, *arguments)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=float(np.finfo(dtype).smallest_subnormal))
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_rounding_halves_away_from_zero(library: ctypes.CDLL) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994, 4503599627370495.5])
    assert call(library, "round", x).tolist() == [1.0, 2.0, 3.0, -1.0, -3.0, 0.0, 4503599627370496.0]


def test_gamma_and_error_functions_at_their_edges(library: ctypes.CDLL) -> None:
    x = np.array([1.0, 5.0, 0.0, -0.0, -1.0, np.inf, 180.0, np.nan])
    np.testing.assert_array_equal(call(library, "tgamma", x), [1, 24, np.inf, -np.inf, np.nan, np.inf, np.inf, np.nan])
    x = np.array([1.0, 2.0, 0.0, -3.0, np.inf])
    np.testing.assert_array_equal(call(library, "lgamma", x), [0, 0, np.inf, np.inf, np.inf])
    x = np.array([np.inf, -np.inf, 0.0, 30.0, -30.0, np.nan])
    np.testing.assert_array_equal(call(library, "erf", x), [1, -1, 0, 1, -1, np.nan])
    np.testing.assert_array_equal(call(library, "erfc", x), [0, 2, 1, 0, 2, np.nan])


def as_bits(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty(x.size, np.uint16)
    getattr(library, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(x.size))
    return out


def halves() -> np.ndarray:
    """Every finite half of either sign in order, as double."""
    return np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)


def test_double_to_half_rounds_once(library: ctypes.CDLL) -> None:
    x = halves()
    middles = (x[:-1] + x[1:]) / 2
    probe = np.concatenate(
        [x, middles, np.nextafter(middles, 1e9), np.nextafter(middles, 0), [65519.9, 65520.0, 1e300]]
    )
    probe = np.concatenate([probe, -probe])
    with np.errstate(over="ignore"):
        want = probe.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(as_bits(library, "half_d", probe), want)


def test_float_to_half_toward_zero(library: ctypes.CDLL) -> None:
    x = halves()
    above = np.nextafter(x[1:].astype(np.float32), np.float32(1e9))
    below = np.nextafter(x[1:].astype(np.float32), np.float32(0))
    got = as_bits(library, "half_rz", np.concatenate([above, -above, below]))
    bits = np.arange(1, 0x7C00, dtype=np.uint16)
    np.testing.assert_array_equal(got, np.concatenate([bits, bits | 0x8000, bits - 1]))


def test_float_to_bf16_rounds_to_even_and_keeps_nan(library: ctypes.CDLL) -> None:
    bits = np.arange(0, 0x7F80, 7, dtype=np.uint32) << 16
    probe = np.concatenate([bits, bits | 0x8000, bits | 0x8001, bits | 0x7FFF, np.array([0x7F800000], np.uint32)])
    even = (probe + 0x7FFF + ((probe >> 16) & 1)) >> 16
    np.testing.assert_array_equal(as_bits(library, "bf16", probe.view(np.float32)), even.astype(np.uint16))
    nan = as_bits(library, "bf16", np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32))
    assert all((n & 0x7F80) == 0x7F80 and n & 0x7F for n in nan.tolist())


def test_the_polynomials_are_those_of_the_fit() -> None:
    from . import fit_math

    assert fit_math.header() == (clang.INCLUDE / "hw/poly.h").read_text()


def test_docs_state_the_limits_that_are_tested() -> None:
    table = (ROOT / "docs/toolchain.md").read_text()
    rows = {m[1]: (m[2], m[3]) for m in re.finditer(r"^\| `(\w+)` \| ([\d.]+|-) \| ([\d.]+|-) \|", table, re.MULTILINE)}
    limits = {
        name: tuple("-" if v is None else f"{v:g}" for v in entry[2:]) for name, entry in (UNARY | BINARY).items()
    }
    assert rows == limits
