"""C++ types of kernel parameters: scalars, vectors, their sizes, and one spelling for each."""

from __future__ import annotations

from hipwright.float8 import FLOAT8

SCALARS: dict[str, str] = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "short": "int16",
    "int16_t": "int16",
    "unsigned short": "uint16",
    "uint16_t": "uint16",
    "int": "int32",
    "int32_t": "int32",
    "unsigned int": "uint32",
    "uint32_t": "uint32",
    "long": "int64",
    "long long": "int64",
    "int64_t": "int64",
    "ptrdiff_t": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "_Float16": "float16",
    "hip_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16",
    "bfloat16": "bfloat16",
    "__bf16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "Float8E4M3FN": "float8_e4m3fn",
    "Float8E5M2": "float8_e5m2",
    "Float8E4M3FNUZ": "float8_e4m3fnuz",
    "Float8E5M2FNUZ": "float8_e5m2fnuz",
}
"""Canonical spelling of a scalar type -> its kind: a torch dtype name, or uint16/uint32/uint64."""

_VECTORS = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "uint": "uint32",
    "short": "int16",
    "ushort": "uint16",
    "char": "int8",
    "uchar": "uint8",
    "long": "int64",
    "longlong": "int64",
}
VECTORS: dict[str, tuple[str, int]] = {f"{base}{n}": (kind, n) for base, kind in _VECTORS.items() for n in (2, 3, 4)}
VECTORS |= {"half2": ("float16", 2), "__half2": ("float16", 2), "__hip_bfloat162": ("bfloat16", 2)}
"""Vector element types, for pointers only: name -> (kind of an element, elements)."""

SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
} | dict.fromkeys(FLOAT8, 1)

_INT_WORDS = {"unsigned", "signed", "long", "short", "int", "char"}


def canonical(text: str, aliases: dict[str, str | None] | None = None) -> str | None:
    """The canonical spelling of a type ("unsigned" -> "unsigned int", "std::int64_t" -> "int64_t"); None if unknown."""
    words = text.replace("std::", "").split()
    if words and all(w in _INT_WORDS for w in words):
        return _integer(words)
    name = " ".join(w for w in words if w != "const")
    if name == "void" or name in SCALARS or name in VECTORS:
        return name
    target = (aliases or {}).get(name)
    if target is None:
        return None
    return canonical(target, {k: v for k, v in (aliases or {}).items() if k != name})


def _integer(words: list[str]) -> str | None:
    """The canonical name of C's integer words in any order; None for invalid combinations such as `long char`."""
    unsigned, longs = "unsigned" in words, words.count("long")
    rest = [w for w in words if w not in ("unsigned", "signed", "long", "int")]
    if len(set(words) - {"long"}) != len([w for w in words if w != "long"]) or ("signed" in words and unsigned):
        return None
    if longs:
        base = "" if rest or longs > 2 else " ".join(["long"] * longs)
    elif rest:
        base = rest[0] if len(rest) == 1 and not (rest[0] == "char" and "int" in words) else ""
    else:
        base = "int"
    if not base:
        return None
    if base == "char" and "signed" in words:
        return "signed char"
    return f"unsigned {base}" if unsigned else base
