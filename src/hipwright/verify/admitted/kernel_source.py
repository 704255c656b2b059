"""A HIP source as the walk over its kernels reads it: functions, macros, and the conditions found so far."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hipwright.program.hazards.source import BlankedSource, SourceFunction
from hipwright.verify.admitted.expressions import KernelExpression, number
from hipwright.verify.admitted.kernel_parser import TOKEN, KernelToken, expanded

_WORD = re.compile(r"[A-Za-z_]\w*")
_LAUNCH = frozenset(("blockIdx", "gridDim", "blockDim"))
_LEVELS = 4  # of calls through which a launch's extents are looked for
FLOATING = frozenset(("float", "double", "half", "__half", "float2", "float4", "T"))
"""Types whose values are no sizes."""


@dataclass(frozen=True)
class KernelCondition:
    """A comparison of a kernel. line: of the program. path: what must hold for it to be reached, with the outcome."""

    kernel: str
    line: int
    tree: KernelExpression
    path: tuple[tuple[KernelExpression, bool], ...] = ()


_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


def macros_of(code: str) -> Iterator[tuple[str, tuple[tuple[str, ...] | None, str]]]:
    """(name, (parameters or None, body)) of every #define."""
    for name, params, body in _DEFINE.findall(code):
        names = tuple(p.strip() for p in params[1:-1].split(",")) if params else None
        yield name, (names, body.replace("\\\n", " ").strip())


@dataclass
class KernelProgram:
    """A source's functions, and what was found in them for one kernel.

    sized: names on which sizes may act. launched: functions whose text, or that of one they call, names blocks.
    """

    source: BlankedSource
    macros: Mapping[str, tuple[tuple[str, ...] | None, str]]
    constants: dict[str, KernelExpression]
    functions: dict[str, SourceFunction] = field(default_factory=dict)
    found: list[KernelCondition] = field(default_factory=list)
    tokens: dict[str, list[KernelToken]] = field(default_factory=dict)
    sized: frozenset[str] = frozenset()
    launched: frozenset[str] = frozenset()
    calls: int = 0
    seen: dict[object, KernelExpression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = {f.name: f for f in self.source.functions}
        for name, value in self.source.constants.items():
            self.constants.setdefault(name, number(value))
        words = {name: set(_WORD.findall(self.source.body(f))) for name, f in self.functions.items()}
        found = {name for name, used in words.items() if used & _LAUNCH}
        for _ in range(_LEVELS):
            found |= {name for name, used in words.items() if used & found}
        self.launched = frozenset(found)

    def body(self, function: SourceFunction) -> list[KernelToken]:
        """The tokens of a function's body, macros expanded."""
        if function.name not in self.tokens:
            text = self.source.body(function)
            if "#" in text:
                text = _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
            plain = [(m.group(), function.start + m.start()) for m in TOKEN.finditer(text)]
            self.tokens[function.name] = expanded(plain, self.macros) if self.macros else plain
        return self.tokens[function.name]


_TEMPLATE = re.compile(r"template\s*<([^{}]*?)>\s*(?:__device__|__global__|static|inline|__forceinline__|\w)")


def parameter_names(function: SourceFunction) -> list[tuple[str, bool]]:
    """(name, whether it is a pointer or a tensor's element type) of each parameter."""
    head = re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", function.head)
    match = re.search(rf"\b{re.escape(function.name)}\s*\((.*)\)", head, re.DOTALL)
    found = []
    for part in _split(match[1]) if match else ():
        words = re.findall(r"\w+", part.split("=")[0])
        if words and words != ["void"]:
            found.append((words[-1], "*" in part or "[" in part or bool(FLOATING & set(words[:-1]))))
    return found


def template_names(function: SourceFunction) -> list[str]:
    """The template parameters of a function."""
    match = _TEMPLATE.search(function.head)
    return [re.findall(r"\w+", part.split("=")[0])[-1] for part in _split(match[1]) if part.strip()] if match else []


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        depth += (ch in "([{<") - (ch in ")]}>")
        if ch == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


class TokenSpans:
    """Where statements and brackets end in a list of tokens. path: the conditions under which a walk is there."""

    tokens: list[KernelToken]
    path: tuple[tuple[KernelExpression, bool], ...]

    def closing(self, at: int, end: int) -> int:
        """The index of the bracket that closes the one at `at`, or `end`."""
        depth = 0
        for index in range(at, end):
            word = self.tokens[index][0]
            if len(word) == 1:
                depth += (word in "([{") - (word in ")]}")
                if depth == 0:
                    return index
        return end

    def after(self, at: int, end: int) -> int:
        """The index after the statement at `at`."""
        word = self.tokens[at][0] if at < end else ""
        if word == "{":
            return self.closing(at, end) + 1
        if word in ("if", "while", "switch", "for"):
            while at < end and self.tokens[at][0] != "(":
                at += 1
            at = self.after(self.closing(at, end) + 1, end)
            return self.after(at + 1, end) if word == "if" and at < end and self.tokens[at][0] == "else" else at
        while at < end and self.tokens[at][0] != ";":
            at = self.closing(at, end) + 1 if self.tokens[at][0] in ("(", "[", "{") else at + 1
        return at + 1

    def part_end(self, at: int, end: int) -> int:
        """The index of the comma after the part at `at`, or `end`."""
        while at < end and self.tokens[at][0] != ",":
            at = self.closing(at, end) + 1 if self.tokens[at][0] in ("(", "[", "{") else at + 1
        return min(at, end)


class PathStep:
    """A context in which a condition has an outcome."""

    def __init__(self, walk: TokenSpans, test: KernelExpression, outcome: bool) -> None:
        self.walk, self.before = walk, walk.path
        self.step = ((test, outcome),) if test.known and test.names else ()

    def __enter__(self) -> None:
        self.walk.path = (*self.before, *self.step)

    def __exit__(self, *_: object) -> None:
        self.walk.path = self.before
