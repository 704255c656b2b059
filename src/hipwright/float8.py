"""The four 8-bit float formats of torch, in NumPy: their bits as float64 values and back.

Format: sign, exponent, mantissa (Micikevicius et al. 2022, "FP8 formats for deep learning"; the fnuz forms have one
zero and one NaN). Conversion rounds to nearest even. What is too large becomes Inf, in fnuz formats NaN, in e4m3fn the
largest number, Inf too, as in torch 2.13.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class _Format(NamedTuple):
    mantissa: int
    bias: int
    largest: int  # the code of the largest finite number; the next code is Inf or NaN
    nan: int
    unsigned_zero: bool = False
    saturates: bool = False


FLOAT8: dict[str, _Format] = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, 0x7F, saturates=True),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7F),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, 0x80, unsigned_zero=True),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, 0x80, unsigned_zero=True),
}


def from_float8(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """The values of stored codes."""
    found: npt.NDArray[np.float64] = _values(dtype)[bits]
    return found


def to_float8(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.uint8]:
    """The codes of the nearest values."""
    form = FLOAT8[dtype]
    steps = _magnitudes(form)
    size = np.abs(np.where(np.isnan(values), 0.0, values))
    below = np.clip(np.searchsorted(steps, size, side="right") - 1, 0, form.largest)
    middle = (steps[below] + steps[below + 1]) / 2
    up = (size > middle) | ((size == middle) & (below % 2 == 1))
    code = below + up
    if form.saturates:
        code = np.minimum(code, form.largest)
    signed = code | np.where(np.signbit(values), 0x80, 0)
    if form.unsigned_zero:
        signed = np.where((code == 0) | (code > form.largest), code, signed)
    return np.where(np.isnan(values), form.nan, signed).astype(np.uint8)


@cache
def _values(dtype: str) -> npt.NDArray[np.float64]:
    """The value of each of the 256 codes."""
    form = FLOAT8[dtype]
    positive = _magnitudes(form)[: form.largest + 1]
    found = np.full(256, np.nan)
    found[: form.largest + 1] = positive
    found[0x80 : 0x80 + form.largest + 1] = -positive
    if form.unsigned_zero:
        found[0x80] = np.nan
    elif form.nan - form.largest > 1:  # room for Inf
        found[form.largest + 1], found[0x80 + form.largest + 1] = np.inf, -np.inf
    return found


@cache
def _magnitudes(form: _Format) -> npt.NDArray[np.float64]:
    """The values of the codes from 0 up to the largest, and what would be the next."""
    code = np.arange(form.largest + 2)
    exponent, fraction = code >> form.mantissa, code & ((1 << form.mantissa) - 1)
    normal = (1.0 + fraction / 2.0**form.mantissa) * 2.0 ** (exponent - form.bias)
    return np.where(exponent > 0, normal, fraction / 2.0**form.mantissa * 2.0 ** (1 - form.bias))
