"""The HIP source of a program, blanked and split into functions, as the hazard rules read it."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from hipwright.errors import ProgramError
from hipwright.program.blanking import blank
from hipwright.program.hazards.launch import evaluate_text
from hipwright.program.kernel_types import SCALARS, SIZES, VECTORS, canonical
from hipwright.program.parsed import Parsed

HazardName = Literal[
    "wave_size",
    "sync_mask",
    "cuda_only",
    "lds_limit",
    "missing_tail_guard",
    "parameter_reinit",
    "barrier_in_branch",
    "launch_bounds",
    "double_literals",
]


@dataclass(frozen=True)
class HazardMatch:
    """A hazard at a position of the blanked HIP source, or on a line of the program."""

    name: HazardName
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
        """Whether it is a kernel."""
        return "__global__" in self.head


@dataclass(frozen=True)
class BlankedSource:
    """A parsed program with its HIP source blanked (comments, strings) and split into functions."""

    parsed: Parsed
    code: str
    functions: tuple[SourceFunction, ...]
    constants: dict[str, int]
    breaks: list[int] = field(repr=False)

    @classmethod
    def of(cls, parsed: Parsed) -> BlankedSource:
        """Builds it from a parsed program."""
        code = blank(parsed.hip)
        breaks = [m.start() for m in re.finditer("\n", code)]
        return cls(parsed, code, tuple(_functions(code)), _constants(code), breaks)

    def line(self, at: int) -> int:
        """The program line of a position."""
        return self.parsed.hip_line + bisect(self.breaks, at - 1)

    def body(self, function: SourceFunction) -> str:
        """A function's body."""
        return self.code[function.start : function.end]

    def around(self, at: int) -> SourceFunction | None:
        """The function that contains a position."""
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
    """The functions at the top level, inside `extern "C" {` and namespaces."""
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
