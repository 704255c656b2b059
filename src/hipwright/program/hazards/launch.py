"""The launches of a plan, with their constant geometry."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.knobs import evaluate
from hipwright.program.parsed import Parsed

MAX_COMBINATIONS = 256  # of knob values that are examined


@dataclass(frozen=True)
class PlanLaunch:
    """A launch, name[grid, block, lds_bytes](...), on a line of the program."""

    kernel: str
    line: int
    block: tuple[ast.expr, ...]
    lds_bytes: ast.expr | None

    def threads(self, values: Mapping[str, int | bool]) -> int | None:
        """Threads per block, None where they depend on the inputs."""
        count = 1
        for item in self.block:
            size = _constant(item, values)
            if size is None:
                return None
            count *= size
        return count

    def dynamic(self, values: Mapping[str, int | bool]) -> int | None:
        """Bytes of dynamic LDS, None where they depend on the inputs."""
        return 0 if self.lds_bytes is None else _constant(self.lds_bytes, values)


def launches(parsed: Parsed) -> list[PlanLaunch]:
    """Every launch of a checked plan; locals that are assigned once, outside branches and loops, are resolved."""
    found = []
    for function in parsed.functions.values():
        names = _once(function)
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Subscript)
                and isinstance(node.func.slice, ast.Tuple)
            ):
                parts = [names.get(p.id, p) if isinstance(p, ast.Name) else p for p in node.func.slice.elts]
                block = tuple(parts[1].elts) if isinstance(parts[1], ast.Tuple) else (parts[1],)
                name = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                found.append(PlanLaunch(name, node.lineno, block, parts[2] if len(parts) > 2 else None))
    return found


def _once(function: ast.FunctionDef) -> dict[str, ast.expr]:
    stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return {
        node.targets[0].id: node.value
        for node in function.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and stored.count(node.targets[0].id) == 1
    }


def _constant(node: ast.expr, values: Mapping[str, int | bool]) -> int | None:
    try:
        return int(evaluate(node, values))
    except (ProgramError, RecursionError):
        return None


def evaluate_text(text: str, names: Mapping[str, int | bool]) -> int | bool:
    """Evaluates the text of a constant integer expression. Raises ProgramError."""
    if len(text) > 200:
        raise ProgramError("too long")
    try:
        node = syntax.parse(text.strip(), mode="eval").body
        return evaluate(node, names)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ProgramError("not a constant expression") from None


def knob_choices(parsed: Parsed) -> Iterator[dict[str, int]]:
    """The defaults, then other knob values: all combinations if they are few, else one knob at a time."""
    yield {}
    knobs = parsed.knobs
    total = 1
    for knob in knobs.values():
        total *= len(knob.choices)
    if total <= MAX_COMBINATIONS:
        for combination in itertools.product(*(k.choices for k in knobs.values())):
            yield dict(zip(knobs, combination, strict=True))
        return
    for name, knob in itertools.islice(knobs.items(), MAX_COMBINATIONS):
        for choice in knob.choices[:MAX_COMBINATIONS]:
            yield {name: choice}


def knob_suffix(chosen: Mapping[str, int]) -> str:
    """ " with BLOCK=1024", or "" for the defaults."""
    return f" with {', '.join(f'{k}={v}' for k, v in chosen.items())}" if chosen else ""
