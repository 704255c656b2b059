"""A program's text as pages show it: its kernels with the operators each fuses, and its difference from another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hipwright.records import Program

_KERNEL = re.compile(r"\b__global__\b")
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
_NAME = re.compile(r"\b(\w+)\s*\(")
HEAD_LINES, HEAD_CHARACTERS = 3, 2000
"""The part of a declaration in which a kernel's name is looked for."""
CONTEXT = 4
"""Lines around a difference that are shown."""
MOST_LINES = 4000
"""A text of more lines is not compared: the comparison takes the square of them."""


@dataclass(frozen=True)
class FusedKernel:
    """A kernel and the comment above it: its operators by their graph names, and how their work is laid out."""

    name: str
    operators: tuple[str, ...]
    how: str = ""


@dataclass(frozen=True)
class DiffLine:
    """One line of a difference. kind: add, del, same or place."""

    kind: str
    text: str

    @property
    def sign(self) -> str:
        """The character in front of it."""
        return {"add": "+", "del": "-", "same": " ", "place": ""}[self.kind]


def fused_kernels(text: str) -> list[FusedKernel]:
    """The kernels of a program's text, in order.

    The engine writes the operators of a kernel into the line above it (`// linear, mul, add: how`); a program of
    another author has what its author wrote there, which nothing checks.
    """
    lines = text.splitlines()
    found, comment = [], list[str]()
    for place, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped.lstrip("/").strip())
            continue
        if _KERNEL.search(stripped) and (name := _name(lines[place : place + HEAD_LINES])):
            found.append(_kernel(name, " ".join(comment)))
        comment = []
    return found


def _name(head: list[str]) -> str:
    """The name of the kernel whose declaration begins the lines; "" where there is none."""
    text = " ".join(head)[:HEAD_CHARACTERS].partition("__global__")[2]
    match = _NAME.search(_LAUNCH_BOUNDS.sub(" ", text, count=1))
    return match[1] if match else ""


def _kernel(name: str, comment: str) -> FusedKernel:
    operators, _, how = comment.partition(": ")
    names = tuple(part.strip() for part in operators.split(",") if part.strip())
    if not names or any(not re.fullmatch(r"[\w.:]+", part) for part in names):
        return FusedKernel(name, (), comment)
    return FusedKernel(name, names, how)


def difference(before: Program | None, after: Program | None) -> list[DiffLine] | None:
    """The unified difference of two programs, knobs included; None without one of them or for very long ones."""
    if before is None or after is None:
        return None
    old, new = _lines(before), _lines(after)
    if max(len(old), len(new)) > MOST_LINES:
        return None
    return list(_diff_lines(old, new))


def _diff_lines(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    for line in list(difflib.unified_diff(old, new, lineterm="", n=CONTEXT))[2:]:
        if line.startswith("@@"):
            yield DiffLine("place", line)
        else:
            yield DiffLine({"+": "add", "-": "del"}.get(line[:1], "same"), line[1:])


def _lines(program: Program) -> list[str]:
    knobs = [f"# {name} = {value}" for name, value in sorted(program.knobs.items())]
    return [*knobs, *program.text.splitlines()]
