"""Rows that lie across memory: a norm of them reads a copy in which they are contiguous.

Neighbouring threads take neighbouring elements of a row, or neighbouring rows. Where memory has neither beside each
other (a permuted tensor, such as the frames of a video that attention takes pixel by pixel), every element is a
transaction of its own, while a copy by tiles costs one more read and one more write.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ONE, Ix, Sym, Var
from hipwright.engine.ir.operators import STORED
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import op
from hipwright.engine.lower.values import Tensor

LARGE = 1 << 22
"""Elements from which rows are copied: fewer stay in the last-level cache. A round figure, not measured."""
SECTOR = 16
"""Elements of a half type in a transaction: shorter runs are no loss."""


def in_row_order(c: LoweringContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """x, or a stored copy of it if its rows (along the last of `dims`) lie across memory.

    What is computed is stored in the order of x's shape. Where rows are not along its last dimension, as in a softmax
    over channels, neighbouring threads therefore take neighbouring rows, and memory has to have those side by side:
    log_softmax over 256 channels of a channels-last convolution's 64 x 32 x 256 halves took an H200 586 us without, and
    torch.compile's kernel 248; with it, not measured.
    """
    if x.buffer or c.numel_hint(x.shape) < LARGE:
        return x
    index = c.probe(x.shape)
    outer = [k for k in range(x.rank) if k not in dims and x.shape[k] != ONE]
    if not outer or c.hint(x.shape[dims[-1]]) < SECTOR:
        return x
    near = {_variable(index[k]) for k in ((dims[-1], outer[-1]) if dims[-1] > outer[-1] else outer[-1:])}
    whole = {_variable(index[k]) for k in (*outer, *dims) if x.shape[k] != ONE}
    loads = [e.attr[1] for e in walk([x.at(index)]) if e.op == "load"]
    rows = [p for p in loads if whole <= p.atoms()]
    if not rows or not all(_across(p, near) for p in rows):
        return x
    return c.realise(x, f"{c.origin}_rows", alone=True)


@op(STORED)
def stored(c: LoweringContext, meta: Meta, x: Tensor) -> Tensor:
    """x in memory; itself where a tensor lies so, else a copy by a kernel of its own."""
    if x.buffer:
        return x
    index = c.probe(x.shape)
    element = x.at(index)
    if element.op == "load" and element.attr[1:] == (flatten(x.shape, index), x.dtype):
        return c.stored(element.attr[0], x.dtype, x.shape)
    return c.realise(x, c.origin, alone=True)


def _variable(index: Ix) -> Var:
    return next(a for a in index.atoms() if isinstance(a, Var))


def _across(position: Ix, near: set[Var]) -> bool:
    """Whether memory's neighbours differ in a variable, and in none of `near`."""
    steps = [mono[0] for mono, factor in position.terms.items() if len(mono) == 1 and abs(factor) == 1]
    steps = [atom for atom in steps if not isinstance(atom, Sym)]
    beside = {a for atom in steps for a in Ix({(atom,): 1}).atoms() if isinstance(a, Var)}
    return bool(beside) and not beside & near
