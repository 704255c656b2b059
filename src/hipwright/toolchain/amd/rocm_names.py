"""What hipwright's headers take and AMD's do not: names, overloads and types, each with the reason and what to write.

Kept equal to AMD's headers of ROCm 5.7 to 7.2 by tests/benchmarks/test_header_names.py: a body for every name of
hipwright's headers either compiles with all of them or is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TYPES = r"(?<!unsigned )long long|(?<!unsigned )(?<!long )long|__half2|half2|__hip_bfloat162|__hip_bfloat16"
_DECLARED = re.compile(rf"\b({_TYPES})\b(?! (?:long|int))\s*(?:const\s*)?[*&]?\s*(?:__restrict__\s*)?(\w+)\b")
_ATOMIC = re.compile(
    rf"\batomic(?:Add|Sub|Min|Max|Exch|And|Or|Xor|CAS)\w*\s*\(\s*(?:\(\s*({_TYPES})\s*\*\s*\)|&?\s*(\w+))"
)
_SHUFFLE = re.compile(r"\b(__shfl\w*)\s*\(\s*(?:[*&]\s*)?(\w+)")
_FLOAT_LIMITS = re.compile(r"\b((?:FLT|DBL)_(?:MAX|MIN|EPSILON|DIG|MANT_DIG))\b")
_HAS_LIMITS = re.compile(r"#\s*include\s*<(?:c?float(?:\.h)?|c?limits|algorithm)>|#\s*define\s+(?:FLT|DBL)_")
_NAMES: tuple[tuple[str, str, str], ...] = (
    (r"\batomic\w+_block\b", "ROCm has no {0}", "use the form without _block"),
    (r"\batomicAddNoRet\b", "ROCm's {0} takes float alone", "use atomicAdd"),
    (r"\b(?:htanh|h2tanh)\b", "ROCm has no {0}", "use __float2half(tanhf(__half2float(x)))"),
    (r"\b(?:__hmax2|__hmin2)\b", "ROCm has no {0} for __half2", "use __hmax or __hmin on each half"),
    (r"\b__double2half\b", "ROCm has no {0}", "use __float2half((float)x)"),
    (r"\b__activemask\b", "ROCm has no {0}", "use __ballot(1)"),
    (r"\b__syncwarp\b", "ROCm has no {0} before 7", "a wave runs in step; use __syncthreads() for LDS"),
    (r"\b__trap\b", "ROCm has no {0}", "use abort()"),
    (r"\bsincos\s*\((?=[^;]*\bfloat\b)", "ROCm's sincos takes double alone", "use sincosf"),
    (
        r"\b(?:exp10|rsqrt|sinpi|cospi|erfcx|normcdf)\s*(?=\()",
        "ROCm's {0} is a function of double: a float is computed in double",
        "write the name with an f for float",
    ),
    (r"\b__ffsll\s*\(\s*\*?\s*\(?\s*unsigned long\b", "ROCm's __ffsll is ambiguous for unsigned long", "cast it"),
    (
        r"\b__shared__[^;\[]*\[[^\];]*\bwarpSize\b",
        "ROCm 7's warpSize is no constant, which an array's size must be",
        "size it for the widest wave, 64",
    ),
    (r"\buint3\s+\w+\s*=\s*(?:threadIdx|blockIdx)\b", "ROCm's {0} is no uint3", "use auto, or its members"),
    (r"\bdim3\s+\w+\s*=\s*(?:gridDim|blockDim)\b", "ROCm's {0} is no dim3", "use auto, or its members"),
    (r"\bstatic_assert\s*\([^;]*\b(?:min|max)\s*\(", "ROCm's min and max are no constant expressions", "use ?:"),
    (r"\bstd::swap\b", "std::swap runs on the host alone in ROCm", "swap by a local variable"),
)


def rocm_findings(code: str) -> Iterator[tuple[int, str, str]]:
    """(place, what is wrong, what to do instead) of all that ROCm does not take in HIP text without comments."""
    for pattern, said, fix in _NAMES:
        for found in re.finditer(pattern, code):
            yield found.start(), said.format(found[0].strip(" (")), fix
    types = {name: kind for kind, name in _DECLARED.findall(code)}
    for found in _ATOMIC.finditer(code):
        kind = found[1] or types.get(found[2], "")
        if kind and kind != "__hip_bfloat16":
            fix = "cast to unsigned long long*" if "long" in kind else "use unsafeAtomicAdd, or float"
            yield found.start(), f"ROCm has no {found[0].split('(')[0].strip()} for {kind}", fix
    for found in _SHUFFLE.finditer(code):
        if types.get(found[2], "").startswith("__hip_bfloat16"):
            yield found.start(), f"ROCm has no {found[1]} for {types[found[2]]}", "shuffle a float, or its bits"
    if "hip/hip_bfloat16.h" not in code and (old := re.search(r"(?<![\w/])hip_bfloat16\b", code)):
        yield old.start(), "hip_bfloat16 needs <hip/hip_bfloat16.h> in ROCm", "use __hip_bfloat16 of <hip/hip_bf16.h>"
    for found in () if _HAS_LIMITS.search(code) else _FLOAT_LIMITS.finditer(code):
        yield found.start(), f"{found[1]} needs <cfloat> in ROCm", "#include <cfloat>"
