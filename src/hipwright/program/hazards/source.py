"""HIP source as the hazards see it, and those that single lines show: waves, masks, CUDA, double literals."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hipwright.errors import ProgramError
from hipwright.program.hazards.launch import evaluate_text, launches
from hipwright.program.parsed import Parsed
from hipwright.program.signature import SCALARS, SIZES, VECTORS, blank, canonical

if TYPE_CHECKING:
    from hipwright.program.hazards.report import Name


@dataclass(frozen=True)
class HazardMatch:
    """A hazard at a position of the blanked HIP source, or on a line of the program."""

    name: Name
    message: str
    at: int = 0
    error: bool = False
    line: int | None = None


@dataclass(frozen=True)
class SourceFunction:
    """A function with a body. start, end: of the body in the blanked source, braces included."""

    name: str
    head: str
    start: int
    end: int

    @property
    def kernel(self) -> bool:
        """Whether it is an entry."""
        return "__global__" in self.head


@dataclass(frozen=True)
class BlankedSource:
    """A parsed program with its HIP source blanked (comments, strings) and taken apart into functions."""

    parsed: Parsed
    code: str
    functions: tuple[SourceFunction, ...]
    constants: dict[str, int]
    breaks: list[int] = field(repr=False)

    @classmethod
    def of(cls, parsed: Parsed) -> BlankedSource:
        """From a parsed program."""
        code = blank(parsed.hip)
        breaks = [m.start() for m in re.finditer("\n", code)]
        return cls(parsed, code, tuple(_functions(code)), _constants(code), breaks)

    def line(self, at: int) -> int:
        """The program's line of a position."""
        return self.parsed.hip_line + bisect(self.breaks, at - 1)

    def body(self, function: SourceFunction) -> str:
        """A function's body."""
        return self.code[function.start : function.end]

    def around(self, at: int) -> SourceFunction | None:
        """The function that holds a position."""
        return next((f for f in self.functions if f.start <= at < f.end), None)

    def number(self, text: str, knobs: Mapping[str, int]) -> int | None:
        """The value of a constant C++ expression under some knobs; None where it is not known."""
        plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text).replace("/", "//").strip()
        plain = re.sub(r"\bsizeof[ ]?\(([\w ]+)\)", lambda m: str(element_bytes(m[1]) or m.group()), plain)
        try:
            return int(evaluate_text(plain, {**self.constants, **knobs}))
        except ProgramError:
            return None


def element_bytes(name: str) -> int | None:
    """Bytes of a C++ type by name; None for one that is not known."""
    known = canonical(" ".join(name.split()))
    if known in SCALARS:
        return SIZES[SCALARS[known]]
    if known in VECTORS:
        kind, lanes = VECTORS[known]
        return SIZES[kind] * (4 if lanes == 3 else lanes)
    return None


_NOT_FUNCTION = re.compile(r"\b(?:struct|class|union|enum)\b[^()]*\Z")


def _functions(code: str) -> Iterator[SourceFunction]:
    """Function bodies at the top level; `extern "C" {` and namespaces are looked into."""
    plain = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.MULTILINE)
    depth, start, begun, head = 0, 0, 0, ""
    for match in re.finditer(r"[{};]", plain):
        at, token = match.start(), match.group()
        if token == "{":
            if depth == 0:
                head = plain[start:at]
                if re.fullmatch(r'\s*(?:extern\s+"C"|(?:inline\s+)?namespace[\s\w:]*)\s*', head):
                    start = match.end()
                    continue
                begun = at
            depth += 1
        elif token == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                name = re.findall(
                    r"([A-Za-z_]\w*)\s*\(", re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", head)
                )
                if begun and name and not _NOT_FUNCTION.search(head):
                    yield SourceFunction(name[0], head, begun, match.end())
                start, begun, head = match.end(), 0, ""
        elif depth == 0:
            start = match.end()


def _constants(code: str) -> dict[str, int]:
    """Integer constants of the source: #define NAME number-expression, constexpr int NAME = ..."""
    found: dict[str, int] = {}
    patterns = (
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([\w+\-*/%() <>]+?)[ \t]*$",
        r"\b(?:constexpr|const)\s+(?:static\s+)?(?:int|unsigned|long|size_t|uint32_t"
        r"|auto)\s+(\w+)\s*=\s*([\w+\-*/%() <>]{1,80});",
    )
    for pattern in patterns:
        for name, text in re.findall(pattern, code, flags=re.MULTILINE):
            try:
                found[name] = int(evaluate_text(re.sub(r"(?<=\d)[uUlL]+\b", "", text).replace("/", "//"), found))
            except ProgramError:
                continue
    return found


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
    """Code that takes a wave to have another number of lanes than a target's."""
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
                "wave_size", f"{match[1]} is 32; a wave has 64 lanes on gfx90a, gfx942 and gfx950", match.start()
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
                "wave_size", "lanes 32 apart do not exist where a wave has 32 lanes (gfx1100)", match.start(), error
            )


def _shuffled(code: str, loop: re.Match[str]) -> str:
    """The loop's body when it shuffles by the loop's variable without a width of its own."""
    end = code.find("}", loop.end()) if code[loop.end() :].lstrip()[:1] == "{" else code.find(";", loop.end())
    body = code[loop.end() : end if end >= 0 else len(code)]
    calls = re.findall(rf"\b__?shfl\w*\s*\([^;]*?\b{re.escape(loop[1])}\s*(\)|,)|\bshuffle_\w+\(", body)
    return body if any(call != "," for call in calls) else ""


def _reduction(source: BlankedSource, at: int, first: int, sizes: set[int], shuffle: str) -> Iterator[HazardMatch]:
    """A butterfly that starts at 16 (32 lanes) or at 32 (64 lanes)."""
    if first == 16 and 64 in sizes:
        grouped = _groups_of_32(source, at)
        message = "this shuffle starts at 16 and covers 32 lanes; a wave has 64 on gfx90a, gfx942 and gfx950"
        yield HazardMatch("wave_size", message, at, not grouped)
    if first == 32 and 32 in sizes:
        message = "this shuffle starts at 32; a wave has 32 lanes on gfx1100, so its first step adds a lane to itself"
        yield HazardMatch("wave_size", message, at, not _KNOWS_WIDTH.search(source.code))


def _groups_of_32(source: BlankedSource, at: int) -> bool:
    """Whether the code around works in groups of 32 lanes, which is right in a wave of 64 as well."""
    names = {"32", *(k for k, v in {**source.constants, **source.parsed.defines()}.items() if v == 32)}
    function = source.around(at)
    told = source.code if function is None or not function.kernel else source.body(function)
    if re.search(r"&\s*(?:0x1[fF]|31)\b|>>\s*5\b", told) or re.search(
        rf"[/%]\s*(?:{'|'.join(map(re.escape, names))})\b", told
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
    """CUDA's wave operations with a mask; a macro of that name is the program's own."""
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
    """Names that exist on NVIDIA only, and inline assembly."""
    own = _defined(source.code)
    for match in _CUDA.finditer(source.code):
        if match.group() not in own:
            yield HazardMatch(
                "cuda_only", f"{' '.join(match.group().split())} exists on NVIDIA only", match.start(), True
            )
    for match in _ASM.finditer(source.code):
        yield HazardMatch("cuda_only", "inline assembly ties a kernel to one architecture", match.start())


def doubles(source: BlankedSource) -> Iterator[HazardMatch]:
    """Literals without an f in arithmetic of a source that has no doubles otherwise."""
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
