"""Running sums of unpacked bits: how many bits are set up to a place, counted in the words that hold them.

A bitmap names the elements that a compressed row keeps (Mustafar, arXiv:2505.22913), and the running sum of
its bits is where each of them lies. Of a row of a few words that is a population count of each, which every reader can
compute where it needs it: no bit is expanded to memory, and no scan waits for its neighbours.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import BIT_WORD, E
from hipwright.engine.ir.index import Ind, Ix, Var, divide, ix, modulo
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, Tensor

BYTE, WORD = 8, 32
MOST_WORDS = 8
"""Words of a row of bits up to which each element counts them all. A round figure, not measured."""


def summed_bits(c: LoweringContext, x: Tensor, dtype: str) -> Tensor | None:
    """The running sum along the last dimension of bits that lie in bytes in order, the lowest first; None for other
    values, and for rows that are not a few whole words.
    """
    size = x.shape[-1].value if x.rank else None
    if not c.bit_ranks or size is None or size % WORD or not 0 < size <= MOST_WORDS * WORD:
        return None
    place = c.arena.var("p", x.shape[-1])

    def found(lead: Index) -> tuple[str, Ix] | None:
        return _row_of_bits(x.at([*lead, ix(place)]), place)

    if found(c.probe(x.shape)[:-1]) is None:
        return None

    def at(index: Index) -> E:
        row = found(index[:-1])
        assert row is not None, "bits that are none at another index"
        buffer, start = row
        total: E | None = None
        for word in range(size // WORD):
            last = c.arena.index(index[-1] - word * WORD, "int")
            bits = c.arena.load(buffer, start + word * (WORD // BYTE), BIT_WORD)
            count = c.arena.call("count_bits_up_to", bits, last)
            total = count if total is None else c.arena.binary("+", total, count)
        assert total is not None
        return c.to(total, dtype)

    return c.tensor(dtype, x.shape, at)


def _row_of_bits(e: E, place: Var) -> tuple[str, Ix] | None:
    """(the bytes, the position of the row's first) of `bytes[first + place // 8] >> place % 8 & 1`, else None."""
    e = _plain(e)
    if e.op != "bin" or e.attr != "&":
        return None
    one, shifted = sorted(map(_plain, e.args), key=lambda a: a.op != "const")
    if one.op != "const" or one.attr != 1 or len(shifted.args) != 2 or shifted.attr not in ("shift_right", ">>"):
        return None
    load, by = _plain(shifted.args[0]), _number(shifted.args[1])
    if load.op != "load" or load.attr[2] != "uint8" or by is None or by != modulo(ix(place), ix(BYTE)):
        return None
    start = load.attr[1] - divide(ix(place), ix(BYTE))
    inside = [b for a in start.atoms() if not isinstance(a, Ind) for b in (a, *_inner(a))]
    words = all(factor % (WORD // BYTE) == 0 for factor in start.terms.values())  # rows begin where words do
    fixed = place not in inside and not any(isinstance(a, Ind) for a in start.atoms())
    return (load.attr[0], start) if fixed and words else None


def _inner(a: object) -> set[object]:
    """The atoms of a quotient's or remainder's operands."""
    sums = [s for s in (getattr(a, "a", None), getattr(a, "b", None)) if isinstance(s, Ix)]
    return {b for s in sums for b in s.atoms()}


def _plain(e: E) -> E:
    """An integer without conversions to wider ones."""
    while e.op == "cast" and e.attr in ("int", "long") and e.args[0].ctype in ("int", "long"):
        (e,) = e.args
    return e


def _number(e: E) -> Ix | None:
    """An integer expression as an index, where it is a sum or product of such."""
    e = _plain(e)
    if e.op == "const":
        return ix(int(e.attr))
    if e.op == "index":
        return ix(e.attr)
    if e.op != "bin" or e.attr not in ("+", "-", "*"):
        return None
    a, b = (_number(arg) for arg in e.args)
    if a is None or b is None:
        return None
    return a + b if e.attr == "+" else a - b if e.attr == "-" else a * b
