"""Static warnings about HIP source, each with a line; never a verdict.

It reads the text, so that it works on source that does not compile. Comments and strings are blanked first. Lines count
from 1 in the program file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from hipwright.program import Parsed
from hipwright.program.blanking import blank
from hipwright.records import Record
from hipwright.targets import OFFLINE, TARGETS
from hipwright.toolchain.amd.rocm_names import rocm_findings

Kind = Literal["wave_size", "portability", "resources", "bounds", "host"]

LDS_LIMIT = min(architecture.lds_per_block for architecture in OFFLINE.values())
"""Bytes that a block may use on every AMD target."""
_MORE_LDS = "; ".join(f"{name}: {one.lds_per_block}" for name, one in OFFLINE.items() if one.lds_per_block > LDS_LIMIT)
KNOWN_HEADERS = re.compile(
    r"hip/\w+(\.h)?|hip\w*\.h|c?stdint(\.h)?|c?math(\.h)?|c?float(\.h)?|c?limits(\.h)?|c?stddef(\.h)?|c?assert(\.h)?|"
    r"type_traits|utility|algorithm|c?stdio(\.h)?|rocwmma/\S+|hipwright/\w+\.h"
)
ELEMENT_BYTES = {
    "char": 1,
    "bool": 1,
    "half": 2,
    "__half": 2,
    "_Float16": 2,
    "__hip_bfloat16": 2,
    "hip_bfloat16": 2,
    "short": 2,
    "float": 4,
    "int": 4,
    "unsigned": 4,
    "float2": 8,
    "double": 8,
    "long": 8,
    "float4": 16,
    "int4": 16,
    "half2": 4,
    "__half2": 4,
}


class LintWarning(Record, frozen=True, kw_only=True):
    """One finding. `fix` says what to do instead."""

    line: int
    kind: Kind
    message: str
    fix: str = ""


_PATTERNS: tuple[tuple[str, Kind, str, str], ...] = (
    (
        r"\b__shfl(?:_up|_down|_xor)?_sync\b|\b__(?:ballot|any|all|activemask|syncwarp)_sync\b|\b__syncwarp\b",
        "portability",
        "{0} with a mask is CUDA's; HIP's own form has no mask on CDNA, and a 32-bit mask is wrong with 64 lanes",
        "use __shfl_xor(v, offset), __ballot(p) (64 bits)",
    ),
    (
        r"\b(?:cp\.async|wmma::|nvcuda\b|__nv_\w+|cooperative_groups\b|__ldcg|__ldcs|cudaMemcpy\w*|cub::\w+|cute::)",
        "portability",
        "{0} exists on NVIDIA only",
        "write it with plain HIP, or by a header of hipwright",
    ),
    (
        r"\b(?:asm|__asm__|__asm)\b",
        "portability",
        "inline assembly ties the kernel to one target and is refused on the cpu target",
        "use a builtin or plain HIP",
    ),
    (
        r"\bwarpSize\s*==\s*32\b|\bWARP_SIZE\s*=?\s*32\b|\bconstexpr\s+int\s+\w*[wW]arp\w*\s*=\s*32\b",
        "wave_size",
        f"a wave has 64 lanes on {TARGETS.with_wave(64)}",
        "use warpSize, or a knob built per target",
    ),
    (
        r"\b__ballot\s*\([^;]*\)\s*==\s*0x[fF]{8}\b|\b(?:unsigned|uint32_t|int)\s+\w+\s*=\s*__ballot\b",
        "wave_size",
        "__ballot returns 64 bits; half of the wave is cut off here",
        "keep it in unsigned long long",
    ),
    (
        r"\b(?:malloc|free|new|delete|printf)\s*[(\[]",
        "host",
        "{0} on the device is slow and refused on the cpu target",
        "allocate in the plan with torch.empty",
    ),
)


def lint(parsed: Parsed, targets: Sequence[str] = ()) -> list[LintWarning]:
    """Findings in line order. targets: names from `OFFLINE`; wave-size findings need one with 64 lanes."""
    source = parsed.hip
    code = blank(source)
    wide = any(OFFLINE[name].wave == 64 for name in targets) or not targets
    found = [*_patterns(code), *_rocm(code), *_lds(code), *_tails(code), *_headers(source)]
    if wide:
        found += _shuffles(code)
    else:
        found = [w for w in found if w.kind != "wave_size"]
    shift = parsed.hip_line - 1
    return sorted((_shifted(w, shift) for w in found), key=lambda w: (w.line, w.message))


def _shifted(warning: LintWarning, lines: int) -> LintWarning:
    return LintWarning(line=warning.line + lines, kind=warning.kind, message=warning.message, fix=warning.fix)


def _line(code: str, at: int) -> int:
    return code.count("\n", 0, at) + 1


def _patterns(code: str) -> Iterator[LintWarning]:
    for pattern, kind, message, fix in _PATTERNS:
        for match in re.finditer(pattern, code):
            name = match.group().rstrip("([ ")
            yield LintWarning(line=_line(code, match.start()), kind=kind, message=message.format(name), fix=fix)


def _rocm(code: str) -> Iterator[LintWarning]:
    """What AMD's own headers do not take."""
    for at, message, fix in rocm_findings(code):
        yield LintWarning(line=_line(code, at), kind="portability", message=message, fix=fix)


def _shuffles(code: str) -> Iterator[LintWarning]:
    """A butterfly that starts at 16 reduces 32 lanes, half of a 64-lane wave."""
    loop = r"for\s*\(\s*(?:unsigned\s+)?\w+\s+(\w+)\s*=\s*16\s*;[^)]*(?:>>=|/=)[^)]*\)(?P<body>[^;{]*;|[^}]*\})"
    for match in re.finditer(loop, code):
        body = match["body"]
        if "__shfl" in body and not re.search(r"__shfl\w*\([^;]*,\s*32\s*\)", body):
            yield LintWarning(
                line=_line(code, match.start()),
                kind="wave_size",
                message="this shuffle reduction starts at 16: it covers 32 lanes, and a wave has 64 on "
                f"{TARGETS.with_wave(64)}",
                fix="start at warpSize / 2, or give width 32 as the last argument",
            )


def _lds(code: str) -> Iterator[LintWarning]:
    """Static shared arrays whose literal sizes add up to more than a block may have."""
    total = 0
    for match in re.finditer(r"__shared__\s+(?:volatile\s+)?(\w+)\s+\w+((?:\s*\[\s*\d+\s*\])+)", code):
        count = 1
        for extent in re.findall(r"\d+", match[2]):
            count *= int(extent)
        total = max(total, count * ELEMENT_BYTES.get(match[1], 4))
        if total > LDS_LIMIT:
            yield LintWarning(
                line=_line(code, match.start()),
                kind="resources",
                message=f"{total} bytes of LDS; a block has {LDS_LIMIT} ({_MORE_LDS})",
                fix="use a smaller tile",
            )
            return


def _tails(code: str) -> Iterator[LintWarning]:
    """A kernel that indexes by block and thread but has no bounds check."""
    for match in re.finditer(r"__global__[^;{]*?\b(\w+)\s*\([^{;]*\)\s*\{", code):
        end = _block_end(code, match.end() - 1)
        body = code[match.end() : end]
        indexed = re.search(r"blockIdx\.x\s*\*\s*(?:blockDim\.x|\w+)\s*\+\s*threadIdx\.x", body)
        if indexed and not re.search(r"[<>]=?|\bmin\s*\(", body.replace("<<", "").replace(">>", "")):
            yield LintWarning(
                line=_line(code, match.end() + indexed.start()),
                kind="bounds",
                message=f"kernel {match[1]} compares no index with a size: the last block may run past the end",
                fix="if (i < n)",
            )


def _block_end(code: str, at: int) -> int:
    depth = 0
    for match in re.finditer(r"[{}]", code[at:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return at + match.start()
    return len(code)


def _headers(source: str) -> Iterator[LintWarning]:
    for number, text in enumerate(source.splitlines(), 1):
        match = re.match(r"\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", text)
        if match and not KNOWN_HEADERS.fullmatch(match[1]):
            yield LintWarning(
                line=number,
                kind="portability",
                message=f"<{match[1]}> is not there when the kernel is compiled",
                fix="device code needs <hip/hip_runtime.h> and, for half types, <hip/hip_fp16.h> or <hip/hip_bf16.h>",
            )
