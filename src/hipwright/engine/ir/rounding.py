"""Differences whose operands must be rounded first: of two products, of a value and a statistic of such values, or of a
value and a square.

Compilers contract x * y - top into one instruction that does not round the product, while top is the largest of rounded
products: exp(x * y - top) is then off by half a unit in the last place of a possibly large product, where it should be
1. Of two products one would be rounded and one not: the determinant of a singular matrix is then not 0, but the other's
rounding error, and may be negative. A mean of squares less the square of the mean is the variance: of one element, or
of equal ones, it is 0 where both squares are rounded. Such differences are written sub_rn(a, b), which no compiler
contracts (hipwright/arithmetic.h).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from hipwright.engine.ir.expr import E

FLOATS = ("float", "double")


class Rounding:
    """Finds such differences; results are cached by expression. statistics: buffers that reductions have written."""

    def __init__(self, statistics: Collection[str] = ()) -> None:
        self.statistics = statistics
        self._statistic: dict[int, bool | None] = {}
        self._product: dict[int, bool] = {}

    def separately_rounded(self, e: E) -> tuple[E, E] | None:
        """(a, b) where e is a - b or a + -b of two products, of a statistic and possibly a product, or of a square and
        what is no constant; else None.
        """
        if e.op != "bin" or e.attr not in ("+", "-") or e.ctype not in FLOATS:
            return None
        a, b = e.args
        if e.attr == "+":
            if a.op == "un":
                a, b = b, a
            if b.op != "un":
                return None
            (b,) = b.args
        if all(one.op == "bin" and one.attr == "*" and self.product(one) for one in (a, b)):
            return a, b
        for one, other in ((a, b), (b, a)):
            if (self.statistic(one) and self.product(other)) or (one.op != "const" and _square(other)):
                return a, b
        return None

    def statistic(self, e: E) -> bool | None:
        """Whether e consists of reduced values: True, False if it holds an element, None if of constants alone."""
        if e.id not in self._statistic:
            if e.op == "load":
                alone = None if e.attr[1].value is not None else False
                self._statistic[e.id] = True if e.attr[0] in self.statistics else alone
            else:
                parts = [] if e.op == "loop" else [self.statistic(a) for a in e.args]
                found = e.op in ("row", "loop") or True in parts
                self._statistic[e.id] = False if False in parts else found or None
        return self._statistic[e.id]

    def product(self, e: E) -> bool:
        """Whether a compiler may contract e's last product into a difference.

        Functions are inlined, so any may end in a product; scaling by a power of two does not round.
        """
        if e.id not in self._product:
            self._product[e.id] = self._ends_in_product(e)
        return self._product[e.id]

    def _ends_in_product(self, e: E) -> bool:
        if e.ctype not in FLOATS or e.op in ("load", "const", "index", "row"):
            return False
        if e.op == "fn" or (e.op == "loop" and e.attr.kind != "sum"):
            return True
        if e.op == "bin":
            if e.attr in ("*", "/") and not any(map(_scale, e.args)):
                return bool(e.attr == "*")
            return self.separately_rounded(e) is None and any(map(self.product, e.args))
        return any(map(self.product, e.args))


def _square(e: E) -> bool:
    return (e.op, e.attr) == ("fn", "square") or ((e.op, e.attr) == ("bin", "*") and e.args[0].id == e.args[1].id)


def _scale(e: E) -> bool:
    """Whether e is a power of two or its negative."""
    return e.op == "const" and math.isfinite(e.attr) and abs(math.frexp(e.attr)[0]) == 0.5


__all__ = ["Rounding"]
