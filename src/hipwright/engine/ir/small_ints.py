"""Conversion of small integers, such as weights of 8 and 4 bits, to float.

NVIDIA converts bytes more slowly than it adds (at 16 a cycle and multiprocessor, the rate of exponentials, 268 million
weights would take an H200 72 microseconds; 75 were measured, where memory takes 65; the rate itself was not measured).
Instead, an integer below 2^22 is added to the bits of 1.5 x 2^23, whose unit is 1, and that number is subtracted again.
This is exact, and a following whole number is subtracted with it (Kim, Henry, Fahim & Hassan, arXiv:2211.10017, for
half types).
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.ir.expr import SMALL_INTS, E
from hipwright.engine.ir.index import Var

LIMIT = 1 << 22
LOADED = {"int8": (-128, 127), "uint8": (0, 255)}


def bounds(e: E) -> tuple[int, int] | None:
    """The least and greatest value of an integer that comes from bytes or keeps a few bits; else None."""
    if e.ctype != "int":
        return None
    if e.op == "load":
        return LOADED.get(e.attr[2])
    if e.op == "const":
        return _within(int(e.attr), int(e.attr))
    if e.op == "cast":
        return bounds(e.args[0])
    if e.op in ("sel", "guard"):
        some = [bounds(a) for a in e.args[1:]]
        known = [b for b in some if b is not None]
        return (min(a for a, _ in known), max(b for _, b in known)) if len(known) == len(some) else None
    if e.op != "bin" or e.attr not in ("&", ">>", "+", "-"):
        return None
    left, right = e.args
    number = right.attr if right.op == "const" else None
    if e.attr == "&":
        return (0, number) if isinstance(number, int) and 0 <= number < LIMIT else None
    within = bounds(left)
    if within is None or not isinstance(number, int):
        return None
    if e.attr == ">>":
        return (within[0] >> number, within[1] >> number) if 0 <= number < 32 else None
    moved = number if e.attr == "+" else -number
    return _within(within[0] + moved, within[1] + moved)


def _within(low: int, high: int) -> tuple[int, int] | None:
    return (low, high) if -LIMIT < low <= high < LIMIT else None


def converted(e: E) -> E | None:
    """The small integer that e converts to float; None for any other expression."""
    cast = e.op == "cast" and e.ctype == "float" and bounds(e.args[0]) is not None
    return e.args[0] if cast else None


def whole(e: E) -> float | None:
    """The value of a whole constant that the conversion can subtract, else None."""
    value = e.attr if e.op == "const" and e.ctype == "float" else None
    if value is None or value != value or abs(value) >= LIMIT // 2:
        return None
    return float(value) if float(value).is_integer() else None


def in_64_bits(e: E) -> bool:
    """Whether e is arithmetic of an int32 tensor of positions (`arange`), whose text is of 64 bits."""
    return e.ctype == "int" and e.op == "bin" and any(a.op == "index" or in_64_bits(a) for a in e.args)


def is_distance(e: E) -> bool:
    """Whether e is the difference of two positions along dimensions, which 32 bits hold where kernels count in int.

    Masks compare it for every element (causal, windows), and GPUs add 64 bits in two steps.
    """
    return e.op == "bin" and e.attr == "-" and e.ctype == "long" and all(map(_is_place, e.args))


def _is_place(e: E) -> bool:
    """Whether e is a place along one dimension, which has fewer than 2^30, moved by less than 2^29."""
    if e.op != "index":
        return False
    terms = dict(e.attr.terms)
    moved = terms.pop((), 0)
    return abs(moved) < 1 << 29 and all(
        coefficient == 1 and len(one) == 1 and isinstance(one[0], Var) and len(terms) == 1
        for one, coefficient in terms.items()
    )


def is_short(e: E) -> bool:
    """Whether e is a constant of 32 bits."""
    return e.op == "const" and isinstance(e.attr, int) and abs(e.attr) < 1 << 31


def is_narrower(e: E, known: Callable[[E], str | None]) -> bool:
    """Whether e's text may have a narrower C type than e: a small integer as memory holds it, or wrapped.

    known: the variable that holds an expression, which has the expression's own type.
    """
    if e.op == "load":
        return e.attr[2] in SMALL_INTS
    if known(e) is not None:
        return False
    if e.op in ("sel", "guard"):
        return any(is_narrower(a, known) for a in e.args[1:])
    return bool(e.op == "cast" and e.attr != e.ctype)


def wants_type(e: E, known: Callable[[E], str | None]) -> bool:
    """Whether e's text may have another C type than e, so that an argument of a function template needs a cast."""
    plain = e.op in ("index", "const") and e.ctype == "long"
    return plain or is_narrower(e, known) or in_64_bits(e) or (known(e) is None and _of_constants(e))


def _of_constants(e: E) -> bool:
    """Whether e is 64-bit arithmetic on constants alone, whose text is an int."""
    if e.ctype != "long" or e.op not in ("const", "bin", "un", "sel", "guard"):
        return False
    return all(map(_of_constants, e.args[1:] if e.op in ("sel", "guard") else e.args))
