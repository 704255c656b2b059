"""HIP source as AMD's own compilers take it: hipRTC, whose headers are built in, and hipcc, which has ROCm's folder.

hipRTC always includes its built-in header first: HIP's device side with half types, but without `__hip_bfloat16` (up to
ROCm 6.4), without C's standard headers and their names (INFINITY, FLT_MAX, uint8_t). An #include of ROCm's own files
defines the same names again ("redefinition of 'integral_constant'"), so hipRTC gets stand-ins by those names: what the
built-in header lacks, and nothing that it has. Checked with hipRTC 5.2.3 and 6.4.3 (docs/toolchain.md).
"""

from __future__ import annotations

import re
from functools import cache

from hipwright.toolchain import clang, device_headers

BFLOAT16 = "hip/hip_bf16.h"
_EMPTY = ("hip/hip_fp16.h", "hip/hip_bfloat16.h", "hip/hip_vector_types.h", "cmath", "math.h", "stddef.h", "cstddef")
_STANDARD = {"cstdint": "stdint.h", "cfloat": "float.h", "climits": "limits.h"}
_LONG = re.compile(r"^typedef __(U?)INT64_TYPE__ ", re.MULTILINE)
"""Built in up to ROCm 6.4, as `long long`; a second typedef must name the same type."""
_ONCE = re.compile(r"^#(?:pragma once|include [<\"].*)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]*)", re.MULTILINE)


def rocm_source(hip: str, file: str) -> str:
    """The source with the text of the device headers in it; lines keep their numbers in messages about `file`.

    `__hip_bfloat16` is always that of <hipwright/bfloat16_type.h>: AMD's header of it is missing in some releases, and
    cannot stand beside hipRTC's built-in one.
    """
    own = device_headers.BFLOAT16_INCLUDE.sub("#include <hipwright/bfloat16_type.h>", hip)
    return device_headers.inlined_for(own, file)


def without_stand_in(source: str) -> list[str]:
    """The headers that a source (of `rocm_source`) includes and hipRTC has no stand-in for; it goes to hipcc then."""
    return sorted(set(_INCLUDE.findall(source)) - stand_ins().keys())


@cache
def stand_ins() -> dict[str, str]:
    """Header name -> text, for hiprtcCreateProgram."""
    integers = _LONG.sub(lambda found: f"typedef {'unsigned' if found[1] else 'signed'} long long ", _text("stdint.h"))
    pointers = "typedef __PTRDIFF_TYPE__ ptrdiff_t;\n"
    standard = {"stdint.h": integers + pointers, "float.h": _text("float.h"), "limits.h": _text("limits.h")}
    constants = _ONCE.sub("", device_headers.text("constants"))
    out = dict.fromkeys(_EMPTY, "")
    out |= standard | {name: f"#include <{of}>\n" for name, of in _STANDARD.items()}
    out["hip/hip_runtime.h"] = constants + "".join(f"#include <{name}>\n" for name in sorted(standard))
    out[BFLOAT16] = _ONCE.sub("", device_headers.text("bfloat16_type"))
    return {name: f"#pragma once\n{text}" for name, text in out.items()}


def _text(name: str) -> str:
    """One of the C headers of hipwright, which define nothing but C's names."""
    return _ONCE.sub("", (clang.INCLUDE / name).read_text(encoding="utf-8"))
