"""The places of a program that fault kinds change: functions, stored values, launches, guards, returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hipwright.program import Parsed, parse
from hipwright.program.blanking import blank, blank_directives

_BRACE = re.compile(r"[{}]")
_HEAD = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\($")
_PARAMETER = re.compile(r"^(?P<type>.*?)\b(?P<name>[A-Za-z_]\w*)\s*$", re.DOTALL)
_STORE = re.compile(r"(?P<to>\b\w+)(?:\.v)?\[[^\[\];=]*(?:\[[^\[\];=]*\][^\[\];=]*)*\] = (?P<value>[^;{}]+);")
_LAUNCH = re.compile(r"(?m)^(?P<indent> +)(?P<kernel>\w+)\[(?P<grid>.+), (?P<block>[^,\[\]]+)\]\((?P<args>.*)\)$")
_GUARD = re.compile(r"(?m)^ +assert (?P<test>.+?)(?P<why>, [\"'].*)?$")
_RETURN = re.compile(r"(?m)^ +return (?P<value>[A-Za-z_]\w*)$")


@dataclass(frozen=True)
class Edit:
    """A piece of a program's text and what replaces it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Parameter:
    """A parameter of a device function. type: as written, without the name."""

    type: str
    name: str

    @property
    def pointer(self) -> bool:
        """Whether it is a pointer."""
        return "*" in self.type

    @property
    def written(self) -> bool:
        """Whether the function may write through it."""
        return self.pointer and "const" not in self.type.split("*")[0]


@dataclass(frozen=True)
class Function:
    """A function of the HIP source. The body's offsets, braces included, count in the program's text."""

    name: str
    parameters: tuple[Parameter, ...]
    begin: int
    end: int
    closing: int  # offset of the parenthesis after the parameters
    entry: bool

    def pointers(self, base: str) -> list[str]:
        """Names of pointers to elements of a type."""
        return [p.name for p in self.parameters if p.pointer and re.search(rf"\b{base}\b", p.type)]

    def integers(self) -> list[str]:
        """Names of integer parameters."""
        return [p.name for p in self.parameters if not p.pointer and re.search(r"\b(?:int|long|unsigned)\b", p.type)]


@dataclass(frozen=True)
class Store:
    """A value that a kernel stores; start and end of its expression."""

    function: Function
    start: int
    end: int
    to: str


@dataclass(frozen=True)
class Subject:
    """A program whose places are known. sizes: those of the task's own inputs and their elements, ascending."""

    parsed: Parsed
    sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, sizes: Sequence[int] = ()) -> Subject:
        """The subject of a program's text. Raises ProgramError."""
        return cls(parse(text), tuple(sizes))

    def reaches(self, size: int) -> bool:
        """Whether a loop or an index of the task's own inputs may exceed a size; True where sizes are unknown."""
        return not self.sizes or self.sizes[-1] > size

    @property
    def text(self) -> str:
        """The program's text."""
        return self.parsed.text

    @cached_property
    def hip_span(self) -> tuple[int, int]:
        """Start and end of the HIP source."""
        start = self.text.index(self.parsed.hip)
        return start, start + len(self.parsed.hip)

    @cached_property
    def code(self) -> str:
        """The text with comments, literals, directives and all but the HIP source blanked; offsets stay."""
        start, end = self.hip_span
        hip = blank_directives(blank(self.parsed.hip))
        return " " * start + hip + " " * (len(self.text) - end)

    @cached_property
    def plan(self) -> str:
        """The text with the HIP source blanked; offsets stay."""
        start, end = self.hip_span
        return self.text[:start] + re.sub(r"[^\n]", " ", self.text[start:end]) + self.text[end:]

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the HIP source with their bodies."""
        return tuple(self._functions())

    def _functions(self) -> Iterator[Function]:
        depth, begin = 0, 0
        for match in _BRACE.finditer(self.code):
            if match.group() == "{":
                begin = match.start() if depth == 0 else begin
                depth += 1
                continue
            depth -= 1
            if depth == 0 and (found := self._function(begin, match.end())) is not None:
                yield found

    def _function(self, begin: int, end: int) -> Function | None:
        closing = self.code.rfind(")", max(0, begin - 20), begin)
        opening = _opening(self.code, closing) if closing >= 0 else -1
        head = _HEAD.search(self.code, max(0, opening - 80), opening + 1) if opening >= 0 else None
        if head is None:
            return None
        listed = [_PARAMETER.match(one.strip()) for one in _split(self.code[opening + 1 : closing])]
        parameters = tuple(Parameter(one["type"].strip(), one["name"]) for one in listed if one)
        entry = head["name"] in self.parsed.signatures
        return Function(head["name"], parameters, begin, end, closing, entry)

    def bodies(self) -> Iterator[tuple[Function, str]]:
        """Every function with the blanked text of its body."""
        for function in self.functions:
            yield function, self.code[function.begin : function.end]

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """The values that kernels store in memory they may write, or in the tile that they store."""
        found = []
        for function, body in self.bodies():
            written = {p.name for p in function.parameters if p.written}
            for match in _STORE.finditer(body):
                if match["to"] in written or match["to"].endswith("_out"):
                    start = function.begin + match.start("value")
                    found.append(Store(function, start, function.begin + match.end("value"), match["to"]))
        return tuple(found)

    @cached_property
    def launches(self) -> tuple[re.Match[str], ...]:
        """The plan's launches that stand on one line: groups kernel, grid, block, args."""
        return tuple(_LAUNCH.finditer(self.plan))

    @cached_property
    def guards(self) -> tuple[re.Match[str], ...]:
        """The plan's asserts: groups test, why."""
        return tuple(_GUARD.finditer(self.plan))

    @cached_property
    def returns(self) -> tuple[re.Match[str], ...]:
        """The plan's returns of one name: group value."""
        return tuple(_RETURN.finditer(self.plan))

    def line(self, at: int) -> int:
        """The line of an offset, from 1."""
        return self.text.count("\n", 0, at) + 1


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with every edit made; edits do not overlap."""
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def split_arguments(text: str) -> list[str]:
    """The arguments of a call, with the spaces around them."""
    return _split(text)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, mark in enumerate(text):
        depth += (mark in "([{<") - (mark in ")]}>")
        if mark == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]] if text.strip() else []


def _opening(code: str, closing: int) -> int:
    """The offset of the parenthesis that one at `closing` ends, -1 without."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += (code[at] == ")") - (code[at] == "(")
        if depth == 0:
            return at
    return -1
