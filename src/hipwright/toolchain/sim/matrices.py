"""Matrix instructions as micro-ops: MFMA of waves of 64 lanes, WMMA of waves of 32.

Shapes and types are in the mnemonics. Scaled MFMA (gfx950) has the types of its operands in cbsz and blgp, and says by
op_sel and op_sel_hi which byte of a scale register counts.
"""

from __future__ import annotations

import re
from typing import Any

from hipwright.toolchain.sim.modifiers import Modifiers
from hipwright.toolchain.sim.operands import UnknownOperand, parse

_MFMA = re.compile(r"v_mfma_(f32|i32|f64)_(\d+)x\d+x(\d+)_?(?:\d+b_)?(\w+)$")
_MIXED = re.compile(r"v_mfma_(scale_)?f32_(\d+)x\d+x(\d+)_f8f6f4$")
_WMMA = re.compile(r"v_wmma_(f32|i32)_16x16x16_(f16|bf16|iu8)$")
_ELEMENTS = {"f32": 0, "f16": 1, "bf16": 2, "bf16_1k": 2, "i8": 3, "f64": 4, "fp8": 5, "bf8": 6, "xf32": 7}
_SMALL = (5, 6, 8, 9, 10)
"""The elements of scaled MFMA by the number in cbsz or blgp: fp8, bf8, fp6 (E2M3), bf6 (E3M2), fp4 (E2M1)."""
SCALED, INTERLEAVED = 4, 8
"""Bits of the sums' kind: there are scale registers; a lane holds two runs of 16 elements, half of k apart."""


def fields(mnemonic: str, words: list[str], mods: Modifiers) -> dict[str, Any]:
    """The fields of a matrix instruction's micro-op. Raises UnknownOperand for a form that is not executed."""
    name = mnemonic.removesuffix("_e64")
    if found := _MIXED.match(name):
        return _mixed(found, words, mods)
    return _wmma(name, words, mods) if name.startswith("v_wmma") else _mfma(name, words, mods)


def _mfma(name: str, words: list[str], mods: Modifiers) -> dict[str, Any]:
    found = _MFMA.match(name)
    if found is None or any(mods.number(word) for word in ("cbsz", "abid", "blgp")):
        raise UnknownOperand(name)
    out, size, depth, types = found[1], int(found[2]), int(found[3]), found[4]
    first, second = types.split("_") if types in ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8") else (types, types)
    sums = {"f32": 0, "i32": 1, "f64": 2}[out]
    operands = [parse(word, "f64" if sums == 2 else "b32") for word in words]
    blocks = operands[0].count * 64 // (size * size * (2 if sums == 2 else 1))
    data = _ELEMENTS[first] | _ELEMENTS[second] << 4 | sums << 8
    extra = size | depth << 8 | blocks << 16
    return {"dst": operands[:1], "src": operands[1:], "mods": mods, "extra": extra, "data": data}


def _mixed(found: re.Match[str], words: list[str], mods: Modifiers) -> dict[str, Any]:
    """f8f6f4. The layout of 8-bit elements is published for two operands of 8 bits, the other one for fewer bits
    (AMD, "Matrix Core Programming on AMD CDNA3 and CDNA4 architecture", 2025); a mix of both is refused.
    """
    types = [_SMALL[mods.number(word)] for word in ("cbsz", "blgp")]
    bytes_each = [one < 8 for one in types]
    if mods.number("abid") or bytes_each[0] != bytes_each[1]:
        raise UnknownOperand(found[0])
    operands = [parse(word) for word in words]
    kind = (SCALED if found[1] else 0) | (INTERLEAVED if bytes_each[0] else 0)
    low, high = mods.bits("op_sel", 0), mods.bits("op_sel_hi", 0)
    chosen = [(low >> i & 1) | (high >> i & 1) << 1 for i in range(2)]
    return {
        "dst": [operands[0], *operands[5:6]],  # the second: the scales of B
        "src": operands[1:5],
        "extra": int(found[2]) | int(found[3]) << 8 | 1 << 16,
        "data": types[0] | types[1] << 4 | kind << 8,
        "target": chosen[0] | chosen[1] << 2,
    }


def _wmma(name: str, words: list[str], mods: Modifiers) -> dict[str, Any]:
    found = _WMMA.match(name)
    if found is None or mods.has("neg_hi") or mods.has("clamp") or (mods.has("neg_lo") and found[2] != "iu8"):
        raise UnknownOperand(name)
    if found[2] == "iu8" and mods.bits("neg_lo", 0) & 3 != 3:  # unsigned bytes
        raise UnknownOperand(name)
    element = {"f16": 1, "bf16": 2, "iu8": 3}[found[2]]
    operands = [parse(word) for word in words]
    sums = int(found[1] == "i32")
    return {"dst": operands[:1], "src": operands[1:], "data": element | element << 4 | sums << 8}
