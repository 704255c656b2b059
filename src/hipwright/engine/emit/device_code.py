"""What the device headers define, by name: kernels note what they use, and a program includes the headers.

The headers lie in toolchain/include/hipwright (docs/device-headers.md). Functions of one arithmetic type (`math`,
`integer`) are overloads, so a use is a C name, whatever the type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from hipwright.engine.emit.c_names import C_NAMES
from hipwright.toolchain import device_headers

STREAMING = ("streaming_loads", "streaming_stores")
"""Headers that define functions of `vector_access` otherwise; a program includes them before all others."""
_OVERLOADED = {
    "block_reduce": "block_reduce",
    "combine_strided": "block_reduce",
    "lane_reduce": "lanes",
    "shuffle_xor": "lanes",
    "load_vector": "vector_access",
    "store_vector": "vector_access",
}
_STRUCT = re.compile(r"^struct (?:alignas\([^\n]*\) )?(\w+) \{", re.MULTILINE)
_TYPE = re.compile(r"^(?:typedef .*?(\w+)(?: __attribute__\(\(.*\)\))?;|using (\w+) =)", re.MULTILINE)
_FUNCTION = re.compile(r"^__device__ (?:(?:inline|__forceinline__|constexpr) )*[\w<>, *&]*?(\w+)\(", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


@cache
def defined(header: str) -> frozenset[str]:
    """The C names that a header defines itself."""
    text = device_headers.text(header)
    types = {name for pair in _TYPE.findall(text) for name in pair if name}
    return frozenset(types.union(*(kind.findall(text) for kind in (_STRUCT, _FUNCTION, _MACRO))))


@cache
def header_of() -> dict[str, str]:
    """Every C name of the device headers -> the header that defines it, or the one whose overloads are templates."""
    rest = [header for header in device_headers.names() if header not in device_headers.STREAMING]
    return {
        name: header for header in (*device_headers.STREAMING, *rest) for name in sorted(defined(header))
    } | _OVERLOADED


@cache
def reserved() -> frozenset[str]:
    """Names that nothing else in a program may have."""
    return C_NAMES | frozenset(header_of())


def headers_for(uses: Iterable[str]) -> set[str]:
    """The headers that define what is used: C names, or headers as "math.h". Raises KeyError for an unknown name."""
    return {use[:-2] if use.endswith(".h") else header_of()[use] for use in uses}


def moves_vectors(uses: Iterable[str]) -> bool:
    """Whether the headers of what is used call load_vector."""
    return "vector_access" in device_headers.with_dependencies(sorted(headers_for(uses)))


ARITHMETIC, INTEGER, INDEX = defined("arithmetic"), defined("integer"), defined("index") | defined("bit_words")
_ROUNDING = {name for name in defined("float8") if name.startswith("round_")}
_SHARED_DIVISION = {"divide_closely", "divisor_scale"}
MATH = defined("math") | defined("fast_math") | defined("float16") | defined("bfloat16") | _ROUNDING | _SHARED_DIVISION
"""The functions that expressions may call: of any arithmetic type, of floats, of integers, and of an index."""
