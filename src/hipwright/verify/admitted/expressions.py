"""Integer expressions of kernels as trees: their values at given sizes, and their text in a plan.

A tree is made of the parameters of a kernel, the indices and extents of threads and blocks, and numbers: locals and
parameters of device functions have been replaced by what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hipwright.verify.admitted.reach import Compared, Reach, binary, compared, constant, hull, of_function, truth

COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))
LARGEST_TREE = 200  # nodes; a larger expression counts as unknown
_PYTHON = {"/": "//", "&&": "and", "||": "or"}


@dataclass(frozen=True, slots=True)
class KernelExpression:
    """One node.

    kind: "number", "name", "binary", "logical", "not", "negative", "choice" (op ? a : b), "range" (all from one to the
    other), "call" or "opaque" (not known; its parts may hold comparisons).
    """

    kind: str
    op: str = ""
    parts: tuple[KernelExpression, ...] = ()
    value: int = 0
    weight: int = field(default=1, compare=False)
    known: bool = field(default=True, compare=False)
    names: frozenset[str] = field(default=frozenset(), compare=False)


def node(kind: str, op: str = "", *parts: KernelExpression) -> KernelExpression:
    """A node with parts; opaque where it is too large or a part is not known."""
    weight = 1 + sum(part.weight for part in parts)
    names = frozenset().union(*(part.names for part in parts)) if parts else frozenset()
    if weight > LARGEST_TREE:
        return UNKNOWN
    known = kind != "opaque" and all(part.known for part in parts)
    return KernelExpression(kind, op, parts, 0, weight, known, names)


def number(value: int) -> KernelExpression:
    """A number."""
    return KernelExpression("number", value=value)


def named(name: str) -> KernelExpression:
    """A parameter, or an index or extent of threads or blocks."""
    return KernelExpression("name", name, names=frozenset((name,)))


UNKNOWN = KernelExpression("opaque", known=False)


def reach(tree: KernelExpression, values: Mapping[str, Reach]) -> Reach | None:
    """The interval of an expression's values; None where a part is not known. values: by name."""
    kind = tree.kind
    if kind == "number":
        return constant(tree.value)
    if kind == "name":
        return values.get(tree.op)
    if not tree.known:
        return None
    if (kind == "binary" and tree.op in COMPARISONS) or kind in ("logical", "not"):
        found = outcome(tree, values)
        return None if found is None else Reach(int(not found.false), int(found.true), found.sized)
    if kind == "choice":
        return _choice(tree, values)
    parts = [reach(part, values) for part in tree.parts]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    if kind == "binary":
        return binary(tree.op, known[0], known[1], floor=False)
    if kind == "negative":
        return Reach(-known[0].high, -known[0].low, known[0].sized)
    if kind == "range":
        sized = known[0].sized or known[1].sized
        return Reach(known[0].low, max(known[0].low, known[1].high), sized)
    return of_function(tree.op, known)


def _choice(tree: KernelExpression, values: Mapping[str, Reach]) -> Reach | None:
    test, yes, no = tree.parts
    found = outcome(test, values)
    if found is None:
        return hull(reach(yes, values), reach(no, values))
    if not (found.true and found.false):
        taken = reach(yes if found.true else no, values)
        return None if taken is None else Reach(taken.low, taken.high, taken.sized or found.sized)
    both = hull(reach(yes, values), reach(no, values))
    return None if both is None else Reach(both.low, both.high, both.sized or found.sized)


def outcome(tree: KernelExpression, values: Mapping[str, Reach]) -> Compared | None:
    """What a condition may come to; None where it is not known."""
    if tree.kind == "binary" and tree.op in COMPARISONS:
        left, right = (reach(part, values) for part in tree.parts)
        return None if left is None or right is None else compared(tree.op, left, right)
    if tree.kind == "not":
        found = outcome(tree.parts[0], values)
        return None if found is None else Compared(found.false, found.true, found.sized, found.gap)
    if tree.kind == "logical":
        a, b = (outcome(part, values) for part in tree.parts)
        if a is None or b is None:
            return None
        sized = a.sized or b.sized
        if tree.op == "&&":
            return Compared(a.true and b.true, a.false or b.false, sized, a.gap)
        return Compared(a.true or b.true, a.false and b.false, sized, a.gap)
    value = reach(tree, values)
    return None if value is None else truth(value)


def python_text(tree: KernelExpression, names: Mapping[str, str]) -> str | None:
    """The expression in a plan's words; None where a name has no counterpart there. names: text by name."""
    if tree.kind == "number":
        return str(tree.value)
    if tree.kind == "name":
        return names.get(tree.op)
    if not tree.known or tree.kind == "range":
        return None
    parts = [python_text(part, names) for part in tree.parts]
    if any(part is None for part in parts):
        return None
    known = [part or "" for part in parts]
    if tree.kind in ("binary", "logical"):
        return f"({known[0]} {_PYTHON.get(tree.op, tree.op)} {known[1]})"
    if tree.kind == "choice":
        return f"({known[1]} if {known[0]} else {known[2]})"
    if tree.kind in ("not", "negative"):
        return f"({'not ' if tree.kind == 'not' else '-'}{known[0]})"
    return f"{tree.op}({', '.join(known)})" if tree.op in ("min", "max", "abs") else None


def c_text(tree: KernelExpression) -> str:
    """The expression as a reader of the kernel knows it."""
    parts = [c_text(part) for part in tree.parts]
    if tree.kind == "number":
        return str(tree.value)
    if tree.kind == "name":
        return tree.op
    if tree.kind in ("binary", "logical"):
        return f"{_bracketed(tree.parts[0], parts[0])} {tree.op} {_bracketed(tree.parts[1], parts[1])}"
    if tree.kind == "choice":
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    if tree.kind in ("not", "negative"):
        return f"{'!' if tree.kind == 'not' else '-'}({parts[0]})"
    if tree.kind == "range":
        return f"{parts[0]}..{parts[1]}"
    return f"{tree.op or '...'}({', '.join(parts)})"


def _bracketed(part: KernelExpression, text: str) -> str:
    return f"({text})" if part.kind in ("binary", "logical") else text
