"""Fits the polynomials of `include/hw/poly.h`: `python tests/toolchain/fit_math.py > src/.../include/hw/poly.h`.

Each is the interpolant in Chebyshev nodes (within a small factor of minimax), computed with 120 digits, then rounded
to the working type. The functions are chosen so that the leading, exactly known part stays outside the polynomial.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 120
Function = Callable[[Any], Any]


def chebyshev(f: Function, lo: Any, hi: Any, degree: int) -> list[Any]:
    """Monomial coefficients (low first) of the interpolant of `f` on [lo, hi]."""
    lo, hi, n = mp.mpf(lo), mp.mpf(hi), degree + 1
    nodes = [mp.cos(mp.pi * (mp.mpf(2 * k + 1) / (2 * n))) for k in range(n)]
    xs = [(lo + hi) / 2 + (hi - lo) / 2 * t for t in nodes]
    divided = [f(x) for x in xs]
    for level in range(1, n):
        for k in range(n - 1, level - 1, -1):
            divided[k] = (divided[k] - divided[k - 1]) / (xs[k] - xs[k - level])
    poly = [mp.mpf(0)]
    for k in range(n - 1, -1, -1):
        shifted = [mp.mpf(0), *poly]
        for j, c in enumerate(poly):
            shifted[j] -= xs[k] * c
        shifted[0] += divided[k]
        poly = shifted
    return poly[:n]


def series(f: Function) -> Function:
    """`f` with a removable singularity at 0, taken a hair away from it (120 digits make that harmless)."""
    return lambda z: f(z if abs(z) > mp.mpf(10) ** -30 else mp.mpf(10) ** -30)


def atanh_tail(z: Any) -> Any:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3


def atanh_tail2(z: Any) -> Any:
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5


def odd_tail(f: Function) -> Function:
    """(f(x) - x) / x^3 as a function of z = x^2."""
    return lambda z: (f(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3


def erf_small(z: Any) -> Any:
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def erfcx_mapped(t: Any) -> Any:
    """(1 + 2x) erfcx(x) with t = (x - 4) / (x + 4): the mapping of Shepherd and Laframboise (1981)."""
    t = min(t, 1 - mp.mpf(10) ** -8)
    x = 4 * (1 + t) / (1 - t)
    if x > 60:  # asymptotic series
        u = 1 / (2 * x * x)
        total = 1 - u + 3 * u**2 - 15 * u**3 + 105 * u**4 - 945 * u**5 + 10395 * u**6 - 135135 * u**7
        return (1 + 2 * x) * total / (x * mp.sqrt(mp.pi))
    with mp.workdps(60 + int(x * x / 2.3)):
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def lgamma_core(t: Any) -> Any:
    """ln Gamma(x) / ((x - 1) (x - 2)) with t = x - 3/2: small arguments keep Horner's scheme well conditioned."""
    x = t + mp.mpf(3) / 2
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def rgamma_core(t: Any) -> Any:
    """1 / Gamma(x) with t = x - 3/2."""
    return mp.rgamma(t + mp.mpf(3) / 2)


def erfinv_core(t: Any) -> Any:
    """erfinv(x) / x with w = -log(1 - x^2), the variable of Giles (2010), and t = w - 5/2."""
    return erfinv_of_w(t + mp.mpf(5) / 2)


def erfinv_of_w(w: Any) -> Any:
    x = mp.sqrt(-mp.expm1(-w)) if w > 1e-12 else mp.sqrt(mp.mpf(w if w > 0 else 1e-20))
    return mp.erfinv(x) / x


def erfinv_tail(t: Any) -> Any:
    """The same for w >= 5, as a function of t = sqrt(w) - 3."""
    return erfinv_of_w((t + 3) ** 2)


LN2 = mp.log(2)
# name: (function, lo, hi, degree for double or None, degree for float or None)
FITS: dict[str, tuple[Function, Any, Any, int | None, int | None]] = {
    "exp": (series(lambda r: (mp.exp(r) - 1 - r) / r**2), -LN2 / 2 - 0.001, LN2 / 2 + 0.001, 10, 4),
    "log": (series(atanh_tail), 0, 0.0296, 6, 3),
    "log_dd": (series(atanh_tail2), 0, 0.0296, 7, None),
    "sin": (series(odd_tail(mp.sin)), 0, 0.62, 6, 3),
    "cos": (series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2), 0, 0.62, 6, 3),
    "atan": (series(odd_tail(mp.atan)), 0, 1, 20, 9),
    "asin": (series(odd_tail(mp.asin)), 0, 0.2501, 12, 5),
    "tanh": (series(odd_tail(mp.tanh)), 0, 0.4, None, 5),
    "erf": (series(erf_small), 0, 1, 13, 7),
    "erf_tail": (lambda x: mp.log(mp.erfc(x)), 0.95, 4, None, 8),
    "erfcx": (erfcx_mapped, -0.78, 1, 22, None),
    "lgamma": (lgamma_core, -0.5, 0.5, 21, None),
    "rgamma": (rgamma_core, -0.5, 0.5, 15, None),
    "erfinv": (erfinv_core, -2.5, 2.5, None, 10),
    "erfinv_tail": (erfinv_tail, mp.sqrt(5) - 3, 1.1, None, 9),
}


def horner(name: str, coefficients: list[Any], ctype: str) -> str:
    """One inline function; literals are hexadecimal-exact by printing 17 (9) digits."""
    digits, suffix, fma = (17, "", "__builtin_fma") if ctype == "double" else (9, "f", "__builtin_fmaf")
    literals = [mp.nstr(c, digits, min_fixed=0, max_fixed=0) + suffix for c in coefficients]
    body = [f"    {ctype} p = {literals[-1]};"]
    body += [f"    p = {fma}(p, x, {c});" for c in reversed(literals[:-1])]
    return f"HW_FN {ctype} hw_p_{name}{suffix}({ctype} x) {{\n" + "\n".join(body) + "\n    return p;\n}\n"


def header() -> str:
    """The whole of `poly.h`."""
    parts = [
        "// Polynomials of hw/math.h, written by tests/toolchain/fit_math.py: change that, not this.\n#pragma once\n"
        '#include "attr.h"\n'
    ]
    for name, (f, lo, hi, double, single) in FITS.items():
        parts += [
            horner(name, chebyshev(f, lo, hi, n), t)
            for n, t in ((double, "double"), (single, "float"))
            if n is not None
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(header(), end="")
