"""One element of each row of a product, read at a place that a tensor names: the logit of a label.

A loss over a vocabulary reads it beside the row's maximum and sum. As the sum of a row that is zero elsewhere it is
begun in the product's kernel as they are (row_tiles.py), so that the product need not be stored for it.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ind, Ix, ix
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, LoweredItem


def picks_one(c: LoweringContext, item: LoweredItem, buffer: str, columns: Ix) -> bool:
    """Whether an item over the rows of a buffer reads one element of each row, at one named place."""
    index = c.probe(item.space)
    found = _loads(item.body(index), buffer)
    return len(found) == 1 and _column(item, found[0], index, columns) is not None


def picked(c: LoweringContext, item: LoweredItem, buffer: str, columns: Ix) -> LoweredItem:
    """The sum of each row of what it holds at the named place; the item is rewritten to read that."""
    name, body, space = c.unique(f"{item.name}_pick"), item.body, list(item.space)

    def term(index: Index) -> E:
        row, column = list(index[:-1]), index[-1]
        (load,) = _loads(body(row), buffer)
        place = _column(item, load, row, columns)
        if place is None:
            raise RuntimeError(f"{item.name} reads another place of {buffer}")
        here = c.arena.compare(column, "==", ix(place))
        value = c.arena.load(buffer, flatten([*space, columns], [*row, column]), load.attr[2])
        return c.arena.select(here, value, c.arena.const(0.0, "float"))

    def reading(index: Index) -> E:
        element = c.arena.load(name, flatten(space, list(index)), "float32")
        (found,) = c.arena.rewrite([body(index)], lambda atom: None, lambda e: element if e.attr[0] == buffer else None)
        return found

    item.body = reading
    dims = (len(space),)
    return LoweredItem(name, "red", "float32", [*space, columns], term, dims, "sum", item.node)


def _loads(element: E, buffer: str) -> list[E]:
    found = {e.id: e for e in walk([element]) if e.op == "load" and e.attr[0] == buffer}
    return list(found.values())


def _column(item: LoweredItem, load: E, index: Index, columns: Ix) -> Ind | None:
    """The named place in a row that a load at an index of the item reads; None where it reads another row."""
    position: Ix = load.attr[1]
    named = [atom for atom in position.atoms() if isinstance(atom, Ind)]
    if len(named) != 1 or position - ix(named[0]) != flatten(item.space, list(index)) * columns:
        return None
    return named[0]
