"""Mechanical fixes of HIP source: CUDA spellings with one exact HIP equivalent.

Names are searched with comments and strings blanked, so that comments stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.llm.answers.text import straighten
from hipwright.program.blanking import blank

_HEADERS = {
    "cuda_runtime.h": "hip/hip_runtime.h",
    "cuda.h": "hip/hip_runtime.h",
    "cuda_runtime_api.h": "hip/hip_runtime.h",
    "device_launch_parameters.h": "hip/hip_runtime.h",
    "cuda_fp16.h": "hip/hip_fp16.h",
    "cuda_bf16.h": "hip/hip_bf16.h",
    "hip_runtime.h": "hip/hip_runtime.h",
    "hip/hip_runtime_api.h": "hip/hip_runtime.h",
    "hip_fp16.h": "hip/hip_fp16.h",
}
_NAMES = {
    "__nv_bfloat16": "__hip_bfloat16",
    "nv_bfloat16": "__hip_bfloat16",
    "__nv_bfloat162": "__hip_bfloat162",
    "nv_bfloat162": "__hip_bfloat162",
    "CUDART_INF_F": "INFINITY",
    "CUDART_NAN_F": "NAN",
    "hipThreadIdx_x": "threadIdx.x",
    "hipThreadIdx_y": "threadIdx.y",
    "hipThreadIdx_z": "threadIdx.z",
    "hipBlockIdx_x": "blockIdx.x",
    "hipBlockIdx_y": "blockIdx.y",
    "hipBlockIdx_z": "blockIdx.z",
    "hipBlockDim_x": "blockDim.x",
    "hipBlockDim_y": "blockDim.y",
    "hipBlockDim_z": "blockDim.z",
    "hipGridDim_x": "gridDim.x",
    "hipGridDim_y": "gridDim.y",
    "hipGridDim_z": "gridDim.z",
}
_NAME = re.compile(rf"\b(?:{'|'.join(map(re.escape, _NAMES))})\b")
_INCLUDE = re.compile(r"^([ \t]*#[ \t]*include[ \t]*)[<\"]([\w/.]+)[>\"]", re.MULTILINE)
_SYNCWARP = re.compile(r"\b__syncwarp[ \t]*\([ \t]*(?:0x[fF]{8}[uU]?|0x[fF]{16}[uUlL]*|~0[uUlL]*|-1|FULL_MASK)[ \t]*\)")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*\n?", re.MULTILINE)


def fix_hip(source: str, launched: Iterable[str]) -> tuple[str, list[str]]:
    """Returns (fixed source, notes on the fixes). launched: the kernels that the plan launches."""
    notes = []
    for step, note in (
        (_without_fences, "a fence inside the code"),
        (_straight, "smart quotes or odd spaces outside of strings"),
        (_headers, "headers of CUDA"),
        (_renamed, "names of CUDA"),
    ):
        changed = step(source)
        if changed != source:
            notes.append(note)
            source = changed
    if not _INCLUDE.search(source) and "__global__" in source:
        source = f"#include <hip/hip_runtime.h>\n{source.removeprefix(chr(10))}"
        notes.append("#include <hip/hip_runtime.h> added")
    plain = _extern(source, set(launched))
    return (plain, [*notes, 'extern "C" added to kernels that are launched']) if plain != source else (source, notes)


def _without_fences(source: str) -> str:
    return _FENCE.sub("", source)


def _straight(source: str) -> str:
    return straighten(source, "cpp")


def _headers(source: str) -> str:
    return _INCLUDE.sub(lambda m: f"{m[1]}<{_HEADERS.get(m[2], m[2])}>" if m[2] in _HEADERS else m.group(), source)


def _renamed(source: str) -> str:
    """Replaces names outside of comments and strings; drops the full mask of __syncwarp."""
    code = blank(source)
    edits = [(m.start(), m.end(), _NAMES[m.group()]) for m in _NAME.finditer(code)]
    edits += [(m.start(), m.end(), "__syncwarp()") for m in _SYNCWARP.finditer(code)]
    out, at = [], 0
    for start, end, new in sorted(edits):
        out += [source[at:start], new]
        at = end
    return "".join([*out, source[at:]])


def _extern(source: str, launched: set[str]) -> str:
    """Adds extern "C" to a plain kernel that is launched and declared once, so that its name is not mangled."""
    code = blank(source)
    if not launched or re.search(r"\bnamespace\b|\bclass\b", code):
        return source
    found = list(re.finditer(r"\b(?:static[ \t]+)?__global__\b[^(){};]{0,400}?\b(\w+)[ \t\n]*\((?!\()", code))
    names = [_declared(code, m) for m in found]
    for match, name in reversed(list(zip(found, names, strict=True))):
        start = max(code.rfind(ch, 0, match.start()) for ch in ";{}") + 1
        head = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", code[start : match.start()], flags=re.MULTILINE)
        if name in launched and names.count(name) == 1 and not head.strip():
            at = match.start() + (len("static ") if match.group().startswith("static ") else 0)
            source = source[: match.start()] + 'extern "C" ' + source[at:]
    return source


def _declared(code: str, match: re.Match[str]) -> str:
    """The kernel's name: the word before its parameters, after any __launch_bounds__(...)."""
    if match[1] not in ("__launch_bounds__", "__attribute__"):
        return match[1]
    after = re.compile(r"[^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200})?\)+\s*(?:void\s+)?(\w+)\s*\(").match(
        code, match.end()
    )
    return after[1] if after else ""
