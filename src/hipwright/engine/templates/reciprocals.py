"""Divisions as products with a reciprocal, or as approximate quotients, where all results are half types: far coarser
than their error of 2 units in the last place. Where results are floats, a row's divisions by one value share its
reciprocal, and quotients are nearly rounded (hipwright/shared_division.h): a rounded division takes half as many
instructions again, and a branch that keeps those of neighbours apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hipwright.engine.fuse.costs import ITEM_BYTES
from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import ROUNDING, E, indices, walk
from hipwright.engine.ir.index import Ind, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.templates.base import Need, depends

SMALLEST, LARGEST = 2.0**-126, 2.0**126  # divisors whose reciprocal is neither subnormal nor infinite
_FUNCTIONS = """absolute acos acosh asin asinh atan atan2 atanh celu clamp cos cosh elu erf erfc exp exp2 expm1 fma fmax
    fmin gelu gelu_tanh hardsigmoid hardswish hypot leaky_relu log log10 log1p log2 logsigmoid mish nan_max nan_min pow
    pow_three_quarters reciprocal relu relu6 rsqrt saturated_reciprocal selu sigmoid silu sin sinh softplus
    softshrink softsign sqrt square squared_error sub_rn tan tanh tanhshrink"""
CONTINUOUS = frozenset({*_FUNCTIONS.split(), *ROUNDING.values()})
"""Functions that turn a small change of an argument into a small change of their result, as they are called in C."""
QUOTIENTS = ("reciprocal", "softsign")
"""Functions that are divisions."""
OFFERED = 1 / 8
"""Divisions for each byte that a pointwise kernel of floats moves, from which on quotients with an error of 2 units in
the last place are an option. They are no default: a third of a division a byte took an H200 33.3 us rounded, 35.5 so.
"""
LEAST_ROW = 64
"""Elements of a row of which a thread has so many that the reciprocal, itself a division, costs less than theirs."""


def approximates(need: Need) -> bool:
    """Whether all results of a kernel are half types."""
    return all(dtype in ("float16", "bfloat16") for _, dtype in need.stores.values())


def use_reciprocals(
    c: LoweringContext, group: Group, need: Need, choose: Callable[[str, Sequence[bool], bool], bool]
) -> None:
    """Replaces divisions by a constant and those of a row's elements by a value of the row, and approximates others;
    where results are floats, those by a value of the row alone, and all others of a pointwise kernel that they slow
    down, if chosen. choose: (kind, options, default) -> the choice.

    Divisions of a row's values happen once a row and stay as they are. So do divisions whose last bit may decide (below
    floor, comparisons, conversions to integers).
    """
    along = {group.variables[d].name for d in group.dims} | {v.name for v in group.columns.values()}
    memo: dict[int, bool] = {}
    before = [m.value for m in group.members]

    def of_elements(e: E) -> bool:
        return not along or depends(e, along, memo)

    if approximates(need):
        values = without_divisions(c, before, of_elements)
    elif along and c.hint(product(group.inner)) >= LEAST_ROW:
        values = with_close_quotients(c, before, of_elements)
        if values == before or not choose("close_quotients", (True, False), True):
            return
    elif not along and _divisions_per_byte(before, need) >= OFFERED:
        values = without_divisions(c, before, of_elements)
        if values == before or not choose("approximate_quotients", (False, True), False):
            return
    else:
        return
    for member, value in zip(group.members, values, strict=True):
        member.value = value


def _divisions_per_byte(values: Sequence[E], need: Need) -> float:
    """Divisions of float elements for each byte that a pointwise kernel moves."""
    nodes = list(walk(values))
    divisions = sum(e.op == "bin" and e.attr == "/" and e.ctype == "float" for e in nodes)
    moved = {e.attr[0]: ITEM_BYTES.get(e.attr[2], 1) for e in nodes if e.op == "load"}
    stored = sum(ITEM_BYTES.get(dtype, 1) for _, dtype in need.stores.values())
    return float(divisions / max(sum(moved.values()) + stored, 1))


def with_close_quotients(c: LoweringContext, values: Sequence[E], of_elements: Callable[[E], bool]) -> list[E]:
    """The values with nearly rounded quotients for divisions of elements by a row's value."""
    exact, arena = _deciding(values), c.arena

    def quotient(e: E, before: E) -> E | None:
        x, divisor = e.args
        if e.ctype != "float" or before.id in exact or divisor.op == "const" or of_elements(divisor):
            return None
        if not of_elements(x):
            return None
        scale = arena.call("divisor_scale", divisor)
        scaled = arena.binary("*", divisor, scale)
        return arena.call("divide_closely", x, scale, scaled, arena.binary("/", arena.const(1.0, "float"), scaled))

    return arena.rewrite(values, lambda atom: None, lambda load: None, quotient)


def without_divisions(c: LoweringContext, values: Sequence[E], of_elements: Callable[[E], bool]) -> list[E]:
    """The values with products and approximate quotients for divisions whose last bit does not decide.

    of_elements: whether an expression has more than one value a row.
    """
    values = _divided(c, values, of_elements)
    exact = _deciding(values)

    def product_of(e: E, before: E) -> E | None:
        x, divisor = e.args
        if e.ctype != "float" or before.id in exact:
            return None
        if divisor.op == "const":
            plain = SMALLEST <= abs(divisor.attr) <= LARGEST
            return c.arena.binary("*", x, c.arena.const(1 / divisor.attr, "float")) if plain else None
        if of_elements(divisor):
            return c.arena.call("divide_approx", x, divisor)
        return c.arena.binary("*", x, c.arena.call("saturated_reciprocal", divisor)) if of_elements(x) else None

    return c.arena.rewrite(values, lambda atom: None, lambda load: None, product_of)


def _divided(c: LoweringContext, values: Sequence[E], wanted: Callable[[E], bool]) -> list[E]:
    """The values with divisions for the functions of `QUOTIENTS` that are wanted."""

    def division(e: E) -> E | None:
        if e.attr not in QUOTIENTS or e.ctype != "float" or not wanted(e):
            return None
        (x,), one = e.args, c.arena.const(1.0, "float")
        if e.attr == "reciprocal":
            return c.arena.binary("/", one, x)
        return c.arena.binary("/", x, c.arena.binary("+", c.arena.call("absolute", x), one))

    return c.arena.rewrite(values, lambda atom: None, lambda load: None, call=division)


def _deciding(values: Iterable[E]) -> set[int]:
    """Ids of expressions of which the last bit may decide about more than the last bit of a result."""
    found: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    stack = [(value, False) for value in values]
    while stack:
        e, decides = stack.pop()
        if (e.id, decides) in seen:
            continue
        seen.add((e.id, decides))
        if decides:
            found.add(e.id)
        stack += [(a, decides or _is_step(e, n)) for n, a in enumerate(e.args)]
        stack += [(a.value, True) for position in indices(e) for a in position.atoms() if isinstance(a, Ind)]
    return found


def _is_step(e: E, argument: int) -> bool:
    """Whether a small change of an argument may change e's value much."""
    if e.op in ("sel", "guard"):
        return argument == 0
    if e.op == "fn":
        return e.attr not in CONTINUOUS
    if e.op == "loop":
        return bool(e.attr.kind.startswith("arg"))
    if e.op in ("bin", "cast"):
        return e.ctype not in ("float", "double")
    return e.op not in ("un", "row", "load", "const", "index")
