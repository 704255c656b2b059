"""Guards that keep a program to what was judged: an assert for each side that its own guards admit unjudged.

An assert is kept only if the program with it still accepts every judged shape and the task's own, and declines the
shapes at which the side was found.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from hipwright.errors import ProgramError
from hipwright.program import Parsed, parse
from hipwright.program.lines import with_lines
from hipwright.task.sizes import Shapes
from hipwright.verify.admitted.choice import UnjudgedSide
from hipwright.verify.admitted.expressions import KernelExpression, python_text
from hipwright.verify.admitted.plan_tracer import PlanTracer

WHY = "not judged beyond this"

Retrace = Callable[[Parsed], PlanTracer]


def guards(
    text: str, sides: Iterable[UnjudgedSide], tracer: PlanTracer, kept: Sequence[Shapes], retrace: Retrace
) -> dict[UnjudgedSide, tuple[int, str]]:
    """By side: (program line, the assert to put before it). Sides that the task itself takes get none.

    kept: shapes that must remain accepted. retrace: a tracer of a changed program.
    """
    found: dict[UnjudgedSide, tuple[int, str]] = {}
    for side in sides:
        if side.own or any(side.side in tracer.follow(shapes).sides for shapes in kept):
            continue
        for place, test in _proposals(side, tracer, kept):
            line = f"{' ' * place.col_offset}assert {test}, {WHY!r}"
            if _holds(with_lines(text, {place.lineno: line}), side, kept, retrace):
                found[side] = (place.lineno, line)
                break
    return found


def _holds(text: str, side: UnjudgedSide, kept: Sequence[Shapes], retrace: Retrace) -> bool:
    try:
        tracer = retrace(parse(text))
    except ProgramError:
        return False
    if any(tracer.follow(shapes).refused for shapes in kept):
        return False
    return bool(tracer.follow(side.shapes).refused)


def _proposals(side: UnjudgedSide, tracer: PlanTracer, kept: Sequence[Shapes]) -> Iterator[tuple[ast.stmt, str]]:
    """(statement, condition) pairs: the other side of the comparison itself, then a bound on one size."""
    forward = tracer.parsed.functions["forward"]
    condition, outcome = side.side
    text, node = None, tracer.nodes.get(condition)
    if node is not None:
        text = ast.unparse(node) if condition.text == ast.unparse(node) else None
    elif condition in tracer.launches:
        node, tree = tracer.launches[condition]
        text = _in_the_plan(node, tree, tracer)
    if node is not None and text is not None:
        for place in _places(forward.body, node):
            yield place, f"not ({text})" if outcome else text
    for name, dim, most in _bounds(side, forward, kept):
        yield forward.body[0], f"{name}.shape[{dim}] <= {most}"


def _in_the_plan(launch: ast.Call, tree: KernelExpression, tracer: PlanTracer) -> str | None:
    assert isinstance(launch.func, ast.Subscript) and isinstance(launch.func.value, ast.Name)
    signature = tracer.parsed.signatures[launch.func.value.id]
    names = {p.name: f"({ast.unparse(a)})" for p, a in zip(signature.params, launch.args, strict=False)}
    names |= {name: name for name in tracer.parsed.knobs}
    parts = launch.func.slice.elts if isinstance(launch.func.slice, ast.Tuple) else []
    for root, part in zip(("gridDim", "blockDim"), parts, strict=False):
        sizes = part.elts if isinstance(part, ast.Tuple) else [part]
        names |= {f"{root}.{axis}": f"({ast.unparse(size)})" for axis, size in zip("xyz", sizes, strict=False)}
    return python_text(tree, names)


def _places(body: Sequence[ast.stmt], node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that contain a node, the innermost first."""
    for statement in body:
        if any(inner is node for inner in ast.walk(statement)):
            for part in ("body", "orelse"):
                yield from _places(getattr(statement, part, []), node)
            yield statement


def _bounds(side: UnjudgedSide, forward: ast.FunctionDef, kept: Sequence[Shapes]) -> Iterator[tuple[str, int, int]]:
    """(argument, dimension, largest judged size) where the side's shapes are larger, if every argument is a tensor."""
    names = [argument.arg for argument in forward.args.args[1:]]
    if len(names) != len(side.shapes):
        return
    for leaf, shape in enumerate(side.shapes):
        for dim, size in enumerate(shape):
            most = max((shapes[leaf][dim] for shapes in kept), default=size)
            if size > most:
                yield names[leaf], dim, most
