"""Operands of AMD assembly: registers, constants, modifiers.

Constants by the instruction set guides: integers of -16 to 64 and a few floating-point numbers are inline, others are
literals of 32 bits, which stand for the upper half of a float64 and are zero-extended for 64-bit integers.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

NONE, VGPR, SGPR, LITERAL, SCC = range(5)
NEG, ABS, SEXT = 1, 2, 4
ACCUMULATORS = 256
"""The number of the first AGPR among the vector registers of the simulator."""
VCC, M0, EXEC = 106, 124, 126
_NAMED = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "m0": M0, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1}
_NAMED |= {"flat_scratch": 102, "flat_scratch_lo": 102, "flat_scratch_hi": 103, "xnack_mask": 104}
_APERTURES = {"src_shared_base": 0x10000 << 32, "src_private_base": 0x20000 << 32}
_REGISTER = re.compile(r"^(v|s|a|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])$")
_INTEGER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")
_FLOAT = re.compile(r"^-?\d+\.\d*(?:e[-+]?\d+)?$")
_INVERSE_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
_SELECTS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}


class UnknownOperand(ValueError):
    """An operand in a form that the simulator does not read."""


@dataclass(frozen=True)
class Operand:
    """kind: of the constants above; reg: the first register; count: registers; value: a literal's 64 bits.

    mods: NEG, ABS, SEXT. sel: of SDWA, or a half of a register (WORD_0, WORD_1). symbol: what a literal is relative to.
    """

    kind: int = NONE
    reg: int = 0
    count: int = 1
    value: int = 0
    mods: int = 0
    sel: int = 0
    symbol: str = ""


def split(text: str) -> tuple[list[str], str]:
    """(operands, modifiers) of an instruction's rest: modifiers are the words after the last operand."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    if not last:
        return parts, ""
    words = re.split(r"\s+", last, maxsplit=1)
    if ":" in words[0] and "[" not in words[0].split(":")[0]:  # no operand at all, as in `s_barrier`
        return parts, last
    return [*parts, words[0]], words[1] if len(words) > 1 else ""


def parse(text: str, kind: str = "b32") -> Operand:
    """The operand of a text. kind: the type that constants have (b32, f32, f16, f64, b64, pk16)."""
    mods = 0
    if (text.startswith("-") and not _is_number(text)) or text.startswith("neg("):
        mods |= NEG
        text = text[4:-1] if text.startswith("neg(") else text[1:]
    if text.startswith(("|", "abs(")):
        mods |= ABS
        text = text[4:-1] if text.startswith("abs(") else text.strip("|")
    if text.startswith("sext("):
        mods |= SEXT
        text = text[5:-1]
    half = 0
    if text.endswith((".l", ".h")) and text[0] in "va":
        half = 5 if text.endswith(".l") else 6
        text = text[:-2]
    found = _place(text) or _constant(text, kind)
    return Operand(found.kind, found.reg, found.count, found.value, mods, half, found.symbol)


def select(name: str) -> int:
    """The number of an SDWA select. Raises UnknownOperand."""
    if name not in _SELECTS:
        raise UnknownOperand(f"the select {name}")
    return _SELECTS[name]


def _place(text: str) -> Operand | None:
    if text in _NAMED:
        return Operand(SGPR, _NAMED[text], 2 if text in ("vcc", "exec", "flat_scratch", "xnack_mask") else 1)
    if found := _REGISTER.match(text):
        bank, single, first, last = found.groups()
        reg = int(single if single is not None else first)
        count = int(last) - reg + 1 if last else 1
        if bank == "s":
            return Operand(SGPR, reg, count)
        if bank == "ttmp":
            return Operand(SGPR, 108 + reg, count)
        return Operand(VGPR, reg + (ACCUMULATORS if bank == "a" else 0), count)
    if text in ("scc", "src_scc"):
        return Operand(SCC)
    if text in ("off", "null"):
        return Operand(NONE)
    return None


def _is_number(text: str) -> bool:
    return bool(_INTEGER.match(text) or _FLOAT.match(text))


def _constant(text: str, kind: str) -> Operand:
    if text in _APERTURES:
        return Operand(LITERAL, value=_APERTURES[text])
    if "@" in text:
        return Operand(LITERAL, symbol=text)
    if _FLOAT.match(text):
        return Operand(LITERAL, value=_float_bits(text, kind))
    if not _INTEGER.match(text):
        raise UnknownOperand(f"the operand {text!r}")
    value = int(text, 0)
    if kind == "f64" and "x" in text and value < 1 << 32:
        return Operand(LITERAL, value=value << 32)
    return Operand(LITERAL, value=value & 0xFFFFFFFFFFFFFFFF)


def _float_bits(text: str, kind: str) -> int:
    value = float(text)
    base = kind if kind in _INVERSE_2PI else "f16" if kind == "pk16" else "f64" if kind == "b64" else "f32"
    if text.startswith("0.159154"):
        return _INVERSE_2PI[base]
    layout = {"f16": "<e", "f32": "<f", "f64": "<d"}[base]
    return int.from_bytes(struct.pack(layout, value), "little")
