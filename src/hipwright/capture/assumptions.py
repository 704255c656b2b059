"""Assumptions of torch.export about sizes, as conditions that a plan asserts.

torch.export follows one path through the module: where Python branches on a size, or two sizes must be equal to
broadcast, it notes the choice in its shape environment and goes on. Most notes are the library's own bookkeeping
(`size != 1`, contiguity); they are left out, since kernels do not depend on them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_TORCH = re.compile(r"[\\/](torch|sympy)[\\/]")
_MODULES = re.compile(
    r"[\\/]torch[\\/](nn[\\/](?!modules[\\/]module)|distributions[\\/]|(functional|_lowrank|_lobpcg)\.py)"
)
"""Operators and modules of torch that are written in Python, whose branches are a task's; not what calls modules."""
_SHAPES = re.compile(r"[\\/]torch[\\/](_meta_registrations|_decomp[\\/])")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TYPICAL = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 30, 32, 36, 48, 60, 64, 96)
_TRIES = 300
_MOST_SIZES = 2048
"""Sizes above and below the captured one at which a relation is tried."""
_NO_END = 1 << 62
"""A slice whose end is larger goes to the last element."""


def assumptions(
    guards: Sequence[Any], spell: Callable[[Any], str], captured: Mapping[str, int] | None = None
) -> list[str]:
    """Conditions in the plan's language, from a ShapeEnv's `guards`; spell gives a size's text, or raises ValueError.

    Kept are the task's own branches on sizes, the library's by which it knows a result's size, and equal sizes wherever
    they do not follow from the rest. captured: the sizes at capture by their text; near them lie the sizes at which a
    relation of rounded fractions holds.
    """
    own: list[str] = []
    equal: list[str] = []
    given: list[str] = []
    for guard in guards:
        relation = guard.expr
        try:
            text = _condition(relation, spell)
        except (ValueError, AttributeError):
            if _is_own(guard) or getattr(relation, "rel_op", "") == "==":
                own += _spans(relation, spell, captured or {})
            continue
        remainder = "%" in text and relation.rel_op != "=="  # by which pieces differ in size
        if _is_own(guard) or remainder or (_shapes(guard) and not _follows(text, [])):
            own += [*_divisors(relation, spell), text]
        elif "%" in text:
            given += [text] if _by_a_number(relation) else []  # the operator itself refuses other sizes
        elif relation.rel_op == "==" and "max(" not in text and not _is_bound(relation):
            equal.append(text)
    equal = list(dict.fromkeys(equal))
    for text in list(equal):
        rest = [one for one in equal if one != text]
        if _follows(text, [*given, *own, *rest]):
            equal = rest
    return [text for text in dict.fromkeys([*own, *equal]) if _NAME.search(text)]


def _spans(relation: Any, spell: Callable[[Any], str], captured: Mapping[str, int]) -> list[str]:
    """Bounds of the sizes of a relation that has no text in the plan's language, such as int(0.3 * size) == 9.

    Of one size the run around its captured value in which the relation holds; several sizes are those at capture.
    """
    try:
        names = {symbol: spell(symbol) for symbol in sorted(relation.free_symbols, key=str)}
    except ValueError:  # a size that no input gives
        return []
    if not names or any(name not in captured for name in names.values()):
        return []
    if len(names) > 1:
        return [f"{name} == {captured[name]}" for name in names.values()]
    ((symbol, name),) = names.items()
    first = last = captured[name]
    while first > 0 and captured[name] - first < _MOST_SIZES and _holds_at(relation, symbol, first - 1):
        first -= 1
    while last - captured[name] < _MOST_SIZES and _holds_at(relation, symbol, last + 1):
        last += 1
    if first == last:
        return [f"{name} == {first}"]
    return [*([f"{name} >= {first}"] if first else []), f"{name} <= {last}"]


def _holds_at(relation: Any, symbol: Any, size: int) -> bool:
    try:
        return bool(relation.subs(symbol, size) == True)  # noqa: E712  # a sympy truth is no bool
    except ArithmeticError:
        return False


def slice_bounds(nodes: Iterable[Any], spell: Callable[[Any], str]) -> list[str]:
    """Conditions under which slices with constant bounds lie within sizes that vary: torch cuts them off elsewhere."""
    found = []
    for node in nodes:
        if str(node.target) != "aten.slice.Tensor":
            continue
        source, dim, start, end = (*node.args, *(0, None, None)[len(node.args) - 1 :])[:4]
        size, kept = source.meta["val"].shape[dim], node.meta["val"].shape[dim]
        bounds = [abs(one) for one in (start or 0, end) if isinstance(one, int) and abs(one) < _NO_END]
        if isinstance(size, int) or not isinstance(kept, int) or not bounds:
            continue
        try:
            found.append(f"{spell(size.node.expr)} >= {max(bounds)}")
        except ValueError:
            continue
    return list(dict.fromkeys(found))


def split_counts(nodes: Iterable[Any], spell: Callable[[Any], str]) -> list[str]:
    """Conditions under which splits of sizes that vary have all their pieces: export takes no size for 1, where `chunk`
    gives fewer.
    """
    found = []
    for node in nodes:
        if str(node.target) not in ("aten.split.Tensor", "aten.unsafe_split.Tensor", "aten.chunk.default"):
            continue
        pieces, dim = node.meta["val"], node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        last = pieces[-1].shape[dim]
        if len(pieces) < 2 or isinstance(last, int):
            continue
        try:
            found.append(f"{spell(last.node.expr)} >= 1")
        except ValueError:
            continue
    return list(dict.fromkeys(found))


def _condition(relation: Any, spell: Callable[[Any], str]) -> str:
    left, right = (_side(side, spell) for side in relation.args)
    return f"{left} {relation.rel_op} {right}"


def _side(side: Any, spell: Callable[[Any], str]) -> str:
    if side.func.__name__ == "Mod":
        dividend, divisor = (spell(part) for part in side.args)
        return f"({dividend}) % ({divisor})"
    return spell(side)


def _divisors(relation: Any, spell: Callable[[Any], str]) -> list[str]:
    """Conditions under which a relation divides by no zero; a plan asserts them before it."""
    remainders = (side for side in relation.args if side.func.__name__ == "Mod")
    return [f"{spell(side.args[1])} != 0" for side in remainders if not side.args[1].is_Integer]


def _is_own(guard: Any) -> bool:
    """The task's code asked, or a module's, not the library."""
    frame = guard.sloc.framework_loc
    place = str(getattr(frame, "filename", frame))
    return frame is not None and (not _TORCH.search(place) or bool(_MODULES.search(place)))


def _shapes(guard: Any) -> bool:
    """The library asked which of two sizes a result has, as a pooling that rounds up does."""
    frame = guard.sloc.framework_loc
    asked = guard.expr.rel_op in ("<", "<=", ">", ">=") and "check" not in str(getattr(frame, "name", ""))
    return asked and bool(_SHAPES.search(str(getattr(frame, "filename", frame))))


def _by_a_number(relation: Any) -> bool:
    """Whether a remainder is of a division by a number, as a view asks for; one by a size follows a path of sizes."""
    return all(side.args[1].is_Integer for side in relation.args if side.func.__name__ == "Mod")


def _is_bound(relation: Any) -> bool:
    """One plain size equal to another or to a number, which the graph's shapes say already; or a product of sizes equal
    to a number, which is a stride that happened to equal another."""
    left, right = sorted(relation.args, key=lambda side: bool(side.is_Integer))
    factors = left.args if left.is_Mul and right.is_Integer else (left, right)
    return all(side.is_Symbol or side.is_Integer for side in factors)


def _follows(text: str, rest: Sequence[str]) -> bool:
    """Whether the condition holds at sampled sizes wherever the others do; a test on fixed samples, not a proof.

    Only those of the others count that say something of its sizes, if by way of others: of many sizes together hardly
    a sample satisfies all. Where none does, nothing is known.
    """
    related = _related(text, rest)
    conditions = [compile(one, "sizes", "eval") for one in related]
    wanted = compile(text, "sizes", "eval")
    found = [_holds(wanted, sizes) for sizes in _sizes([text, *related]) if all(_holds(c, sizes) for c in conditions)]
    return bool(found) and all(found)


def _related(text: str, rest: Sequence[str]) -> list[str]:
    """The conditions that share a size with `text`, or with another that does."""
    names, found = _names(text), list[str]()
    left = list(rest)
    while more := [one for one in left if not names.isdisjoint(_names(one))]:
        found += more
        names.update(*map(_names, more))
        left = [one for one in left if one not in more]
    return found


def _names(text: str) -> set[str]:
    return set(_NAME.findall(text)) - {"min", "max"}


def _holds(condition: Any, sizes: dict[str, Any]) -> bool:
    try:
        return bool(eval(condition, {"__builtins__": {}}, sizes))
    except ZeroDivisionError:
        return False


def _sizes(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = sorted(_names(" ".join(texts)))
    for size in _TYPICAL:
        yield {**dict.fromkeys(names, size), "min": min, "max": max}
    rng = random.Random(0)
    for _ in range(_TRIES):
        yield {**{name: rng.choice(_TYPICAL) for name in names}, "min": min, "max": max}
