"""Reductions of a product's rows that its kernel begins: what a tile of columns comes to is stored, not the product.

The distances of k-means, the scores of a retrieval and the norms of a low-rank update are products of which only the
minimum, maximum or sum of a row is read, or the place of one. A template that says so (`Offer.row_dim`) stores one
value for each row and ROW_TILE columns, which an ordinary reduction finishes. Of equal values the first tile's first
counts, as in a row. A sum of exponentials that are shifted by the row's maximum (logsumexp, a loss over a vocabulary)
is begun under the tile's own maximum, and rescaled (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018). The channels of a convolution are such a row of each position.

A product whose blocks compute all columns of their rows in turn (`Offer.row_whole`) stores one value for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.row_picks import picked, picks_one
from hipwright.engine.ir.index import ONE, ZERO, Ind, Ix, ix, product
from hipwright.engine.lower.values import Index, LoweredItem, Tensor

if TYPE_CHECKING:
    from hipwright.engine.fuse.schedule import Scheduler
    from hipwright.engine.ir.expr import E

KINDS = ("sum", "max", "min", "argmax", "argmin")
"""Reductions that may be begun by tiles."""


@dataclass(frozen=True)
class _Maximum:
    """The maximum that shifts the exponentials of a sum. body: both's values; safe: an infinite one shifts none."""

    item: LoweredItem
    body: Callable[[Index], E]
    safe: bool


@dataclass
class RowTiles:
    """Begins reductions in the groups of a scheduler. items: all, in program order; wanted: those that are returned."""

    s: Scheduler
    items: Iterable[LoweredItem]
    wanted: Collection[str]
    whole: Callable[
        [str, bool], bool
    ]  # may a block reduce all columns of its rows of this product? (name, the default)
    _made: dict[tuple[str, int], LoweredItem] = field(default_factory=dict, init=False)
    _reduced: dict[str, bool] = field(default_factory=dict, init=False)
    _picks: dict[str, tuple[str, Ix]] = field(default_factory=dict, init=False)  # (buffer, its columns) by reader
    _maxima: dict[str, _Maximum] = field(default_factory=dict, init=False)  # of the sums that are shifted by one

    @cached_property
    def readers(self) -> dict[str, list[LoweredItem]]:
        """The items that read each buffer; found where a product may be reduced, as all expressions are walked."""
        found: dict[str, list[LoweredItem]] = {}
        for item in self.items:
            for name in self.s.item_reads(item):
                found.setdefault(name, []).append(item)
        return found

    @cached_property
    def kept(self) -> set[str]:
        """The buffers that are returned, or read by library calls and views."""
        return set(self.wanted).union(*self.s.external.values())

    def begin(self, item: LoweredItem) -> list[LoweredItem]:
        """Rewrites a reduction that a product's kernel can begin; returns the items to add before it.

        The reduction then reads one value for each tile; a place becomes the element at the best tile's place. A reader
        of one element of each row reads a sum of it.
        """
        if item.name in self._picks:
            made = picked(self.s.c, item, *self._picks[item.name])
            self.s.reread(item)
            return [made]
        if item.kind != "red":
            return []
        group = self._product_of(item)
        if group is None:
            return []
        if item.name in self._maxima:
            self._begin_exponentials(group, item, self._maxima[item.name])
            return []
        place = item.reduction.startswith("arg")
        kind = item.reduction.removeprefix("arg")
        values = self._tiles(group, item, kind, "float32")
        places = self._tiles(group, item, f"arg{kind}", "int32") if place and values is not None else None
        if values is None or (place and places is None):
            return []
        tiled = self.s.c.stored(values.name, values.dtype, values.shape)
        if places is None:
            self._finish(item, values.shape, tiled.at)
            return []
        listed = self.s.c.stored(places.name, places.dtype, places.shape)
        if places.shape[-1] == ONE:
            self._finish(item, places.shape, lambda index: self.s.c.to(listed.at(index), "int64"))
            return []
        name, last = self.s.c.unique(f"{item.name}_tile"), (len(values.shape) - 1,)
        best = LoweredItem(name, "red", "int64", list(values.shape), tiled.at, last, item.reduction, item.node)
        found = self.s.c.stored(best.name, "int64", best.shape)
        item.kind, item.space, item.dims, item.reduction = "pw", item.shape, (), ""
        item.body = lambda index: self._at(listed, found, index)
        self.s.reread(item)
        return [best]

    def _finish(self, item: LoweredItem, space: Sequence[Ix], body: Callable[[Index], E]) -> None:
        """Rewrites an item as the reduction of the tiles' values, or the only tile's. body: a tile's value."""
        if space[-1] == ONE:
            item.kind, item.space, item.dims, item.reduction = "pw", item.shape, (), ""
            item.body = lambda index: body([*index, ZERO])
        else:
            item.space, item.dims, item.body = list(space), (len(space) - 1,), body
        self.s.reread(item)

    def _begin_exponentials(self, group: Group, item: LoweredItem, top: _Maximum) -> None:
        """Rewrites a sum of exponentials: sum_t s_t exp(m_t - m), with the maxima m_t of tiles and m of the row."""
        c, whole = self.s.c, self.s.c.stored(top.item.name, "float32", top.item.shape)
        maxima = self._tiles(group, item, "max", "float32", top.body)
        sums = self._tiles(group, item, "sumexp", "float32", top.body)
        if maxima is None or sums is None:
            return
        tops, totals = (c.stored(made.name, "float32", made.shape) for made in (maxima, sums))

        def term(index: Index) -> E:
            row = whole.at(index[:-1])
            shift = c.arena.call("finite_or_zero", row) if top.safe else row
            scale = c.arena.call("exp", c.arena.binary("-", tops.at(index), shift))
            return c.arena.binary("*", totals.at(index), scale)

        self._finish(item, sums.shape, term)

    def _at(self, listed: Tensor, found: Tensor, index: Index) -> E:
        return self.s.c.to(listed.at([*index, ix(Ind(found.at(index)))]), "int64")

    # ------------------------------------------------------------ which

    def _product_of(self, item: LoweredItem) -> Group | None:
        """The group of the product of which this is a reduction by rows, where only such reductions read it."""
        homes = {id(g): g for r in self.s.reads[item.name] if (g := self.s.home.get(r)) and g.kind == "call"}
        group = next(iter(homes.values()), None)
        if group is None or len(homes) > 1 or not self._fits(group, item):
            return None
        name = group.items[0].name
        if name not in self._reduced:
            self._reduced[name] = self._is_reduced(group)
        return group if self._reduced[name] else None

    def _fits(self, group: Group, item: LoweredItem) -> bool:
        offer = group.items[0].placed.offer
        if offer.row_dim is None or item.reduction not in KINDS or item.target or len(item.dims) != 1:
            return False
        columns, (dim,) = group.space[offer.row_dim], item.dims
        before = product(item.space[:dim]) == product(group.space[: offer.row_dim])
        if not before or item.space[dim] != columns or product(item.space) != product(group.space):
            return False
        if self.s.c.hint(columns) < offer.row_least:
            return False
        return item.body(self.s.c.probe(item.space)).ctype == "float"

    def _is_reduced(self, group: Group) -> bool:
        """Whether the product, and what is computed from it point by point in its kernel, is read by reductions of its
        rows alone, none of which needs another one's result.
        """
        inside = {i.name for i in group.items}
        readers = [r for name in inside for r in self.readers.get(name, ()) if r.name not in inside]
        if inside & self.kept:
            return False
        of_rows = [r for r in readers if r.kind == "red" and self._fits(group, r)]
        picks: dict[str, tuple[str, Ix]] = {}
        for reader in [r for r in readers if r not in of_rows]:
            buffers = inside & self.s.item_reads(reader)
            rows = reader.kind in ("pw", "red") and product([*reader.space, group.space[-1]]) == product(group.space)
            if not rows or len(buffers) > 1 or group.items[0].placed.offer.row_dim != len(group.space) - 1:
                return False
            (buffer,) = buffers
            picks[reader.name] = buffer, group.space[-1]
            if not picks_one(self.s.c, reader, buffer, group.space[-1]):
                return False
        if not of_rows or not self._are_apart(inside, of_rows):
            return False
        self._picks |= picks
        return True

    def _are_apart(self, inside: Collection[str], readers: Sequence[LoweredItem]) -> bool:
        """Whether no reduction needs another one's result, but for exponentials that are shifted by the maximum."""
        later = self._computed_from(inside)
        for reader in readers:
            needed = self.s.item_reads(reader) & later
            top = self._maximum_of(reader, [r for r in readers if r.name in needed]) if needed else None
            if needed and (top is None or needed != {top.item.name}):
                return False
            if top is not None:
                self._maxima[reader.name] = top
        return True

    def _maximum_of(self, item: LoweredItem, others: Sequence[LoweredItem]) -> _Maximum | None:
        """The maximum of the same values that shifts the exponentials of which an item is the sum, if it is one."""
        index = self.s.c.probe(item.space)
        element = item.body(index)
        if item.reduction != "sum" or element.op != "fn" or element.attr != "exp":
            return None
        (shifted,) = element.args
        if shifted.op != "bin" or shifted.attr != "-":
            return None
        value, shift = shifted.args
        safe = shift.op == "fn" and shift.attr == "finite_or_zero"
        read = shift.args[0] if safe else shift
        top = next((o for o in others if o.reduction == "max" and read.op == "load" and read.attr[0] == o.name), None)
        if top is None or list(top.space) != list(item.space) or top.body(index) is not value:
            return None
        return _Maximum(top, top.body, safe)

    def _computed_from(self, names: Collection[str]) -> set[str]:
        """The names of all items that are computed from others, directly or not."""
        left, found = list(names), set[str]()
        while left:
            for reader in self.readers.get(left.pop(), ()):
                if reader.name not in found and reader.name not in names:
                    found.add(reader.name)
                    left.append(reader.name)
        return found

    # ------------------------------------------------------------ what is stored

    def _tiles(
        self, group: Group, item: LoweredItem, kind: str, dtype: str, body: Callable[[Index], E] | None = None
    ) -> LoweredItem | None:
        """The item of the tiles' values in the product's group; None where it cannot be there. body: not the item's."""
        body = body or item.body
        key = (kind, body(self.s.c.probe(item.space)).id)
        if key not in self._made:
            name = self.s.c.unique(f"{item.name}_{'places' if kind.startswith('arg') else 'tiles'}")
            made = LoweredItem(name, "tiles", dtype, list(item.space), body, item.dims, kind, item.node)
            placed = group.items[0].placed
            usual = placed.offer.row_whole
            made.whole = usual is not None and self.whole(placed.call.node.name, usual)
            if not self.s.join(group, made):
                return None
            self.s.c.items.append(made)
            self._made[key] = made
        return self._made[key]
