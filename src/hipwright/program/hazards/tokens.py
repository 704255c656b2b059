"""Hazards that single tokens show: wave sizes, masked wave operations, CUDA-only names, double literals."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hipwright.program.hazards.launch import launches
from hipwright.program.hazards.source import BlankedSource, HazardMatch
from hipwright.targets import TARGETS

# ---------------------------------------------------------------- waves

_BALLOT = re.compile(
    r"\b(?:unsigned(?:\s+int)?|uint32_t|int)\s+\w+\s*=\s*__ballot\s*\(|\b__(?:popc|ffs|clz)\s*\(\s*__ballot\s*\("
    r"|\b__ballot\s*\([^;()]*(?:\([^;()]*\)[^;()]*)*\)\s*==\s*0x[fF]{8}[uU]?\b"
)
_LOOP = re.compile(
    r"\bfor\s*\(\s*(?:const\s+)?(?:unsigned\s+)?\w*\s*\b(\w+)\s*=\s*([\w /]{1,40});[^;]{0,80};[^;)]{0,40}(?:>>="
    r"|/=|=\s*\w+\s*(?:/|>>))[^;)]{0,20}\)"
)
_NAMED_32 = re.compile(r"\b(\w{1,64})(?:\s*=\s*|[ \t]+)32\b")
_KNOWS_WIDTH = re.compile(
    r"\bwarpSize\s*(?:==|>=?|<=?)|__GFX9__|__AMDGCN_WAVEFRONT_SIZE|__builtin_amdgcn_wavefrontsize"
)


def waves(source: BlankedSource, sizes: set[int]) -> Iterator[HazardMatch]:
    """Finds code that assumes another wave size than a target has. sizes: the targets' wave sizes."""
    if 64 in sizes:
        for match in _BALLOT.finditer(source.code):
            yield HazardMatch(
                "wave_size",
                "__ballot has 64 bits where a wave has 64 lanes; half of them are cut off here",
                match.start(),
                True,
            )
        for match in _NAMED_32.finditer(source.code):
            if not re.search("warp|wave", match[1], re.IGNORECASE):
                continue
            yield HazardMatch(
                "wave_size", f"{match[1]} is 32; a wave has 64 lanes on {TARGETS.with_wave(64)}", match.start()
            )
    for match in _LOOP.finditer(source.code):
        first = source.number(match[2], source.parsed.defines())
        if first in (16, 32) and (shuffle := _shuffled(source.code, match)):
            yield from _reduction(source, match.start(), first, sizes, shuffle)
    if 32 in sizes:
        for match in re.finditer(
            r"\b__shfl_(?:xor|down|up)\s*\([^;(),]*(?:\([^;()]*\)[^;(),]*)*,\s*32\s*[,)]", source.code
        ):
            error = not _KNOWS_WIDTH.search(source.code)
            yield HazardMatch(
                "wave_size",
                f"lanes 32 apart do not exist where a wave has 32 lanes ({TARGETS.with_wave(32)})",
                match.start(),
                error,
            )


def _shuffled(code: str, loop: re.Match[str]) -> str:
    """The loop's body if it shuffles by the loop variable without an explicit width, else ""."""
    end = code.find("}", loop.end()) if code[loop.end() :].lstrip()[:1] == "{" else code.find(";", loop.end())
    body = code[loop.end() : end if end >= 0 else len(code)]
    calls = re.findall(rf"\b__?shfl\w*\s*\([^;]*?\b{re.escape(loop[1])}\s*(\)|,)|\bshuffle_\w+\(", body)
    return body if any(call != "," for call in calls) else ""


def _reduction(source: BlankedSource, at: int, first: int, sizes: set[int], shuffle: str) -> Iterator[HazardMatch]:
    """Reports a butterfly reduction that starts at 16 (32 lanes) or at 32 (64 lanes)."""
    if first == 16 and 64 in sizes:
        grouped = _groups_of_32(source, at)
        message = f"this shuffle starts at 16 and covers 32 lanes; a wave has 64 on {TARGETS.with_wave(64)}"
        yield HazardMatch("wave_size", message, at, not grouped)
    if first == 32 and 32 in sizes:
        narrow = TARGETS.with_wave(32)
        message = f"this shuffle starts at 32; a wave has 32 lanes on {narrow}, so its first step adds a lane to itself"
        yield HazardMatch("wave_size", message, at, not _KNOWS_WIDTH.search(source.code))


def _groups_of_32(source: BlankedSource, at: int) -> bool:
    """Whether the surrounding code works in groups of 32 lanes, which is also correct in a wave of 64."""
    names = {"32", *(k for k, v in {**source.constants, **source.parsed.defines()}.items() if v == 32)}
    function = source.around(at)
    context = source.code if function is None or not function.kernel else source.body(function)
    if re.search(r"&\s*(?:0x1[fF]|31)\b|>>\s*5\b", context) or re.search(
        rf"[/%]\s*(?:{'|'.join(map(re.escape, names))})\b", context
    ):
        return True
    return any(launch.threads(source.parsed.values()) == 32 for launch in launches(source.parsed))


# ---------------------------------------------------------------- masks, CUDA, doubles

_MASKS = re.compile(
    r"\b__(?:shfl|shfl_up|shfl_down|shfl_xor|ballot|any|all|match_any|match_all"
    r"|reduce_\w+)_sync\b|\b__syncwarp\s*\(\s*[^)\s]"
)
_CUDA = re.compile(
    r"\b(?:cooperative_groups|cg)\s*::\s*\w+|\bnvcuda\b|\bwmma::\w+|\b(?:cub|thrust|cute|cutlass)::\w+"
    r"|\bcuda::\w+|\bcp\.async\b"
    r"|\b__(?:ldcg|ldca|ldcs|ldlu|ldcv|stcg|stcs|stwb|stwt|nanosleep|pipeline_\w+|cvta_\w+|nv_\w+|dp4a"
    r"|vadd\w+)\b|\bcurand\w*|\bcuda[A-Z]\w*"
)
_ASM = re.compile(r"\b(?:asm|__asm__)\b")
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")


def _defined(code: str) -> set[str]:
    return set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, flags=re.MULTILINE))


def masks(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds CUDA's masked wave operations, except names that the program defines as macros."""
    own = _defined(source.code)
    for match in _MASKS.finditer(source.code):
        name = match.group().split("(")[0].strip()
        if name not in own:
            yield HazardMatch(
                "sync_mask",
                f"{name} with a mask is CUDA's, and a mask of 32 bits is wrong for 64 lanes",
                match.start(),
                True,
            )


def cuda_only(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds names that exist only on NVIDIA, and inline assembly."""
    own = _defined(source.code)
    for match in _CUDA.finditer(source.code):
        if match.group() not in own:
            yield HazardMatch(
                "cuda_only", f"{' '.join(match.group().split())} exists on NVIDIA only", match.start(), True
            )
    for match in _ASM.finditer(source.code):
        yield HazardMatch("cuda_only", "inline assembly ties a kernel to one architecture", match.start())


def doubles(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds double literals in the arithmetic of a source that has no doubles otherwise."""
    if re.search(r"\bdouble\b", source.code):
        return
    seen: set[int] = set()
    for match in _DOUBLE.finditer(source.code):
        before = source.code[max(match.start() - 40, 0) : match.start()]
        after = source.code[match.end() : match.end() + 20].lstrip()
        plain = re.search(r"(?:=|\breturn|\(float\)|\bfloat\(|\bhalf\(|\{)\s*-?\s*\Z", before) and after[:1] in (
            ";",
            ",",
            ")",
            "}",
            "",
        )
        line = source.line(match.start())
        if not plain and line not in seen:
            seen.add(line)
            yield HazardMatch(
                "double_literals",
                f"{match.group()} is a double: the arithmetic around it is done in 64 bits",
                match.start(),
            )
