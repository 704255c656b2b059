"""A reader of textual LLVM IR, for the parts that the cpu target needs.

The lines of a function are one list, which passes edit in place; `clang -S -emit-llvm` writes one instruction a line (a
switch takes several).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r'(?:[-\w.$]+|"[^"]*")'
_DEFINE = re.compile(rf"^define\b.*?@({NAME})\(")
_DECLARE = re.compile(rf"^declare\b.*?@({NAME})\(")
_GLOBAL = re.compile(rf"^@({NAME}) = (.*)$")
_SECTION = re.compile(r'section "([^"]*)"')
_WIDE = re.compile(r"\balign (?:32|64|128|256)\b")
_SCALAR_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8, "x86_fp80": 16, "fp128": 16}
_PARAM_TYPES = ("ptr", "half", "bfloat", "float", "double", "i1", "i8", "i16", "i32", "i64")


class Unreadable(Exception):
    """The IR has a construct that this reader does not support; the message names it."""


@dataclass
class IrFunction:
    """One definition. lines[0] is the `define` line, lines[-1] the closing brace."""

    name: str
    lines: list[str]

    @property
    def section(self) -> str:
        """The function's section, "" without one."""
        found = _SECTION.search(self.lines[0])
        return found.group(1) if found else ""

    def params(self) -> list[tuple[str, str]]:
        """(type, extension attribute or "") of each parameter. Raises Unreadable for any other type."""
        head = self.lines[0]
        start = head.index("@" + self.name + "(") + len(self.name) + 1
        inside = head[start + 1 : closing(head, start)]
        return [self._param(text) for text in split_commas(inside)] if inside.strip() else []

    def _param(self, text: str) -> tuple[str, str]:
        kind = text.split()[0]
        if kind not in _PARAM_TYPES or "byval(" in text or "sret(" in text:
            raise Unreadable(
                f"kernel {self.name} has a parameter that is neither a scalar nor a pointer: {text.strip()}"
            )
        extension = next((word for word in ("zeroext", "signext") if word in text.split()), "")
        return kind, extension


@dataclass
class IrModule:
    """A module in parts. rest: the lines outside functions, in order."""

    rest: list[str]
    functions: list[IrFunction]
    globals: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> IrModule:
        """Split the text of a `.ll` file. No access promises more than 16 bytes (see `_limit_alignment`)."""
        module = cls([], [])
        current: list[str] | None = None
        for line in text.splitlines():
            if current is not None:
                current.append(line)
                if line == "}":
                    current = None
            elif found := _DEFINE.match(line):
                current = [line]
                module.functions.append(IrFunction(found.group(1), current))
            else:
                module._outside(line)
        module._limit_alignment()
        return module

    def _outside(self, line: str) -> None:
        self.rest.append(line)
        if line.startswith("!"):
            name, _, value = line.partition(" = ")
            self.metadata[name] = value
        elif found := _GLOBAL.match(line):
            self.globals[found.group(1)] = found.group(2)
        elif found := _DECLARE.match(line):
            self.declared.append(found.group(1))

    def text(self) -> str:
        """The module as one `.ll` file."""
        head = [line for line in self.rest if not line.startswith("!")]
        tail = [line for line in self.rest if line.startswith("!")]
        body = [line for function in self.functions for line in function.lines]
        return "\n".join([*head, *body, *tail, ""])

    def kernels(self) -> list[IrFunction]:
        """The functions that were written with `__global__`."""
        return [f for f in self.functions if f.section == "hw_kernels"]

    def _limit_alignment(self) -> None:
        """Let no access promise more than 16 bytes, as HIP's double4 does: a buffer begins at a multiple of 16."""
        for function in self.functions:
            function.lines[:] = [
                line if " = alloca " in line else _WIDE.sub("align 16", line) for line in function.lines
            ]

    def size_of(self, kind: str) -> int:
        """Bytes of a type, array and struct padding included."""
        return self._layout(kind.strip())[0]

    def _layout(self, kind: str) -> tuple[int, int]:
        if kind in _SCALAR_BYTES:
            return _SCALAR_BYTES[kind], _SCALAR_BYTES[kind]
        if found := re.fullmatch(r"i(\d+)", kind):
            size = 1 << max(0, (int(found.group(1)) - 1).bit_length() - 3)
            return size, size
        if found := re.fullmatch(r"<(\d+) x (.+)>", kind):
            if not found.group(2).startswith("i") or (int(found.group(2)[1:]) % 8 == 0):
                size = int(found.group(1)) * self._layout(found.group(2))[0]
            else:
                size = (int(found.group(1)) * int(found.group(2)[1:]) + 7) // 8
            return size, size
        if found := re.fullmatch(r"\[(\d+) x (.+)\]", kind):
            size, align = self._layout(found.group(2))
            return int(found.group(1)) * size, align
        return self._struct(kind)

    def _struct(self, kind: str) -> tuple[int, int]:
        if kind.startswith("%"):
            line = next((line for line in self.rest if line.startswith(f"{kind} = type ")), "")
            kind = line.partition(" = type ")[2] or kind
        packed = kind.startswith("<{")
        if not packed and not kind.startswith("{"):
            raise Unreadable(f"a type of unknown size: {kind}")
        total, widest = 0, 1
        for item in split_commas(kind.strip("<>").strip("{} ")):
            size, align = self._layout(item.strip())
            align = 1 if packed else align
            total, widest = (total + align - 1) // align * align + size, max(widest, align)
        return (total + widest - 1) // widest * widest, widest


def closing(text: str, start: int) -> int:
    """The index of the bracket that closes the one at `start`; quotes are skipped."""
    depth, i = 0, start
    while i < len(text):
        c = text[i]
        if c == '"':
            i = text.index('"', i + 1)
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
            if not depth:
                return i
        i += 1
    raise Unreadable(f"unbalanced brackets: {text[start : start + 60]}")


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, i, begin = [], 0, 0
    while i < len(text):
        if text[i] == '"':
            i = text.index('"', i + 1)
        elif text[i] in "([{<":
            i = closing(text, i)
        elif text[i] == ",":
            parts.append(text[begin:i])
            begin = i + 1
        i += 1
    return [*parts, text[begin:]]


def take_type(text: str) -> tuple[str, str]:
    """(the type at the start of `text`, the text behind it)."""
    text = text.lstrip()
    end = closing(text, 0) + 1 if text[0] in "<[{" else len(text.split(" ", 1)[0].rstrip(","))
    return text[:end], text[end:]


_INLINED = re.compile(r"inlinedAt: (!\d+)")
_LINE = re.compile(r"line: (\d+)")
_SCOPE = re.compile(r"scope: (!\d+)")
_FILE = re.compile(r"file: (!\d+)")
_DBG = re.compile(r"!dbg (!\d+)")


@dataclass
class SourceLines:
    """Source lines of instructions: the innermost location of the inlining chain that is in the user's file."""

    metadata: dict[str, str]
    source_name: str
    _known: dict[str, int] = field(default_factory=dict)

    def of(self, instruction: str) -> int:
        """The line, 0 where none is known."""
        found = _DBG.search(instruction)
        if not found:
            return 0
        name = found.group(1)
        if name not in self._known:
            self._known[name] = self._resolve(name)
        return self._known[name]

    def _resolve(self, name: str) -> int:
        while location := self.metadata.get(name, ""):
            line, scope, outer = _LINE.search(location), _SCOPE.search(location), _INLINED.search(location)
            if line and scope and self._is_own(scope.group(1)):
                return int(line.group(1))
            if not outer:
                break
            name = outer.group(1)
        return 0

    def _is_own(self, scope: str) -> bool:
        file = _FILE.search(self.metadata.get(scope, ""))
        return bool(file) and f'filename: "{self.source_name}"' in self.metadata.get(file.group(1) if file else "", "")
