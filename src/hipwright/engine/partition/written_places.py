"""Lowers writes into parts of a tensor (places.py) to the kernels of templates/scatter/places.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Mutation, Node, references, returned, short, users
from hipwright.engine.ir.expr import COMPUTE, walk
from hipwright.engine.ir.index import ONE, Ix, divide, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten, reindex, row_major
from hipwright.engine.knobs import Choice
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import Tensor
from hipwright.engine.lower.views import permutation, select_position, slice_start
from hipwright.engine.partition.places import PlacedWrite, TouchedPlaces, touched_places
from hipwright.engine.partition.state import LoweringState
from hipwright.engine.templates.offers import KernelCall, place
from hipwright.engine.templates.scatter.places import Places, places_offer

At = Callable[[Sequence[Ix]], Ix]


class WrittenPlaces:
    """The mutations of a graph that touch parts of a tensor only.

    inside: the nodes of their chains. indices: values that nothing reads but these writes, as places: each kernel
    computes them anew, once a thread.
    """

    def __init__(self, state: LoweringState) -> None:
        self._state, self.c = state, state.c
        self._found: dict[str, tuple[Mutation, TouchedPlaces]] = {}
        for mutation in state.graph.mutations:
            if not state.library_only and (touched := touched_places(state.graph, mutation)) is not None:
                self._offer(mutation, touched)
        self.inside = {name for _, touched in self._found.values() for name in touched.inside}
        self.indices = self._indices()

    def _indices(self) -> set[str]:
        writes = [w.node for _, touched in self._found.values() for w in touched.writes if w.node is not None]
        named: dict[str, int] = {}
        for node in writes:
            given = node.args[1] if short(node.op) == "index_put" else node.args[2]
            for name in set(references([given])) - set(
                references([node.args[2 if short(node.op) == "index_put" else 3 :]])
            ):
                named[name] = named.get(name, 0) + 1
        readers, kept = users(self._state.graph), returned(self._state.graph)
        return {name for name, count in named.items() if count == len(readers[name]) and name not in kept}

    def _offer(self, mutation: Mutation, touched: TouchedPlaces) -> None:
        """Notes a mutation, where it is chosen and a kernel can write it."""
        tensor = next(i for i in self._state.graph.inputs if i.access == mutation.access)
        if self._state.given_up & {mutation.node, *touched.inside} or not self._usable(tensor.meta.dtype, touched):
            return
        if tensor.kind != "input" and not row_major(tensor.meta.shape, tensor.meta.stride):
            return
        key = f"write:{mutation.node}"
        self._state.out.structure[key] = Choice(options=("places", "whole"), default="places")
        if self._state.choices.get(key, "places") == "places":
            self._found[mutation.node] = mutation, touched

    def _usable(self, dtype: str, touched: TouchedPlaces) -> bool:
        """Whether kernels read and write all of the dtypes, and places are named by whole numbers."""
        graph = self._state.graph
        metas = {i.name: i.meta for i in graph.inputs} | {n.name: n.outs[0] for n in graph.nodes if n.outs}

        def known(name: str) -> str:
            meta = metas.get(name)
            return meta.dtype if meta is not None else ""

        for write in touched.writes:
            node, values = write.node, [write.value]
            if any(kind == "slice" and len(given) > 3 and given[3] != 1 for kind, given in write.views):
                return False
            if node is not None:
                put = short(node.op) == "index_put"
                if "reduce" in node.op or (put and len(node.args) > 3 and node.args[3]):
                    return False
                named = list(references([node.args[1] if put else node.args[2]]))
                if not named or any(known(name) not in ("int64", "int32") for name in named):
                    return False
                values = list(references([node.args[2] if put else node.args[3]]))
            if any(known(name) not in COMPUTE for name in values):
                return False
        return dtype in COMPUTE

    def lower(self, node: Node) -> bool:
        """Lowers a chain's last node; False where it is none, or where it cannot be written in place."""
        if node.name not in self._found:
            return False
        mutation, touched = self._found[node.name]
        tensor = next(i for i in self._state.graph.inputs if i.access == mutation.access)
        whole = self.c.shape(tensor.meta)
        self._target = tensor.name
        writes = [self._places(write, whole) for write in touched.writes]
        for made, write in zip(writes, touched.writes, strict=True):
            made.within = _within(self._state, write, whole)
        call = KernelCall(node, short(node.op), self.c, [], {}, self._state.choices)
        placed, value = place(call, places_offer(writes, whole))
        item = placed.items[0]
        assert item is not None
        item.target = tensor.name
        self._state.values[node.name] = value
        self._state.out.written[node.name] = tensor.name
        for name in (node.name, *touched.inside):
            self._state.out.in_hip[name] = "write"
        return True

    def _places(self, write: PlacedWrite, whole: list[Ix]) -> Places:
        """A write with the positions of its elements in the whole tensor."""
        shape, at = _viewed(self._state, write, whole)
        if write.node is None:
            value = self._state.values[write.value]
            wide = self._stored(value, shape)
            return Places(shape, [], lambda i, _: at(i), lambda i, _: list(i), wide)
        return self._set(write.node, shape, at)

    def _set(self, node: Node, shape: list[Ix], at: At) -> Places:
        """The places that an index_copy, index_put or scatter names in a view of this shape."""
        kind = short(node.op)
        args = [None, *self._state.resolve(list(node.args[1:]))]
        if kind == "index_put":
            return self._put(args, shape, at)
        dim, index, value = as_int(args[1]) % len(shape), args[2], args[3]
        each = kind == "scatter"

        def position(i: Sequence[Ix], named: Sequence[Ix]) -> Ix:
            return at([named[0] if d == dim else place for d, place in enumerate(i)])

        space = list(index.shape) if each else [index.shape[0] if d == dim else s for d, s in enumerate(shape)]
        space = space if each else self._own_sizes(value, space)
        wide = self._stored(value, value.shape if each else space) if isinstance(value, Tensor) else value
        if each:
            others = [(n, s) for d, (n, s) in enumerate(zip(space, shape, strict=True)) if d != dim]
            self._holds([*others, *(zip(space, value.shape, strict=True) if isinstance(value, Tensor) else ())], "<=")
        return Places(space, [(index, shape[dim])], position, lambda i, _: list(i) if each else [i[dim]], wide)

    def _put(self, args: list[Any], shape: list[Ix], at: At) -> Places:
        """The places of `x[indices] = value`, whose index tensors broadcast together."""
        listed = [*args[1], *([None] * (len(shape) - len(args[1])))]
        used = [d for d, tensor in enumerate(listed) if tensor is not None]
        tensors = [listed[d] for d in used]
        width = max(tensor.rank for tensor in tensors)
        longest = next(tensor for tensor in tensors if tensor.rank == width)
        start = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
        rest = [s for d, s in enumerate(shape) if d not in used]
        space = [*rest[:start], *longest.shape, *rest[start:]]
        for tensor in tensors:
            self._spreads(tensor, longest.shape)
        space = self._own_sizes(args[2], space)

        def position(i: Sequence[Ix], named: Sequence[Ix]) -> Ix:
            others, places = iter([*i[:start], *i[start + width :]]), iter(named)
            return at([next(places) if d in used else next(others) for d in range(len(shape))])

        def index(i: Sequence[Ix], tensor: Tensor) -> list[Ix]:
            return self.c.broadcast(tensor, list(i)[start : start + width])

        return Places(space, [(listed[d], shape[d]) for d in used], position, index, self._stored(args[2], space))

    def _stored(self, value: Tensor, space: list[Ix]) -> Tensor:
        """A value spread over the space that it fills. One that reads the tensor that is written is computed before."""
        element = value.at(self.c.probe(value.shape))
        if any(e.op == "load" and e.attr[0] == self._target for e in walk([element])):
            value = self.c.realise(value, between=False)
        if [s.key for s in value.shape] == [s.key for s in space]:
            return value
        self._spreads(value, space)
        return self.c.tensor(value.dtype, space, lambda i: value.at(self.c.broadcast(value, i)))

    def _own_sizes(self, value: Any, space: list[Ix]) -> list[Ix]:
        """The space that a value fills, in the value's own sizes where it is not repeated: those of the kernels that
        compute it.
        """
        if not isinstance(value, Tensor) or value.rank != len(space):
            return space
        if any(mine == ONE != size for mine, size in zip(value.shape, space, strict=True)):
            return space
        self._spreads(value, space)
        return list(value.shape)

    def _spreads(self, value: Tensor, space: Sequence[Ix]) -> None:
        """Guards that a tensor's sizes are those of a space, but for those that are 1 when captured: export asks for
        none, and a size of 1 would be repeated.
        """
        pairs = zip(reversed(value.shape), reversed(list(space)), strict=False)
        self._holds([(mine, size) for mine, size in pairs if mine != ONE], "==")

    def _holds(self, pairs: Sequence[tuple[Ix, Ix]], how: str) -> None:
        texts = [f"{to_python(a)} {how} {to_python(b)}" for a, b in pairs if a.key != b.key]
        self._state.out.guards += [text for text in texts if text not in self._state.out.guards]


def _viewed(state: LoweringState, write: PlacedWrite, whole: list[Ix]) -> tuple[list[Ix], At]:
    """(the shape of the view that is written in, the position in the whole tensor of an index into it)."""
    shape: list[Ix] = list(whole)
    at: At = lambda i: flatten(whole, i)  # noqa: E731 - the first of several
    for kind, given in write.views:
        arguments = state.resolve(list(given))
        shape, at = _view(state.c, kind, arguments, shape, at)
    return shape, at


def _within(state: LoweringState, write: PlacedWrite, whole: list[Ix]) -> dict[int, tuple[Ix, Ix]]:
    """Between which places of each dimension a write lies, by the slices that come first and a `select` behind them."""
    sizes: list[Ix] = list(whole)
    firsts: list[Ix] = [ix(0)] * len(whole)
    for kind, given in write.views:
        if kind == "select":
            arguments = state.resolve(list(given))
            d = as_int(arguments[0]) % len(sizes)
            firsts[d], sizes[d] = firsts[d] + select_position(state.c, arguments[1], sizes[d]), ix(1)
        if kind != "slice":
            break
        d, first, last = _bounds(state.c, state.resolve(list(given)), sizes)
        firsts[d], sizes[d] = firsts[d] + first, last - first
    return {d: (first, first + size) for d, (first, size) in enumerate(zip(firsts, sizes, strict=True))}


def _view(c: LoweringContext, kind: str, args: list[Any], shape: list[Ix], at: At) -> tuple[list[Ix], At]:
    if kind == "select":
        d, place = as_int(args[0]) % len(shape), select_position(c, args[1], shape[as_int(args[0]) % len(shape)])
        return [s for n, s in enumerate(shape) if n != d], lambda i: at([*i[:d], place, *i[d:]])
    if kind == "slice":
        return _sliced(c, args, shape, at)
    if kind == "unsqueeze":
        d = as_int(args[0]) % (len(shape) + 1)
        return [*shape[:d], ix(1), *shape[d:]], lambda i: at([*i[:d], *i[d + 1 :]])
    if kind in ("transpose", "permute"):
        order = permutation(len(shape), args)
        back = [order.index(n) for n in range(len(shape))]
        return [shape[n] for n in order], lambda i: at([i[n] for n in back])
    sizes = _sizes(args[0], shape)
    return sizes, lambda i: at(reindex(sizes, shape, i))


def _bounds(c: LoweringContext, args: list[Any], shape: list[Ix]) -> tuple[int, Ix, Ix]:
    """(the dimension of a slice, its first place, the first behind it)."""
    given: list[Any] = [*args, None, None, None]
    d, start, end = as_int(given[0] or 0) % len(shape), given[1], given[2]
    size, first = shape[d], slice_start(c, start, shape[d])
    last = size if end is None or (isinstance(end, int) and end >= c.hint(size)) else slice_start(c, end, size)
    return d, first, last


def _sliced(c: LoweringContext, args: list[Any], shape: list[Ix], at: At) -> tuple[list[Ix], At]:
    d, first, last = _bounds(c, args, shape)
    sizes = [last - first if n == d else s for n, s in enumerate(shape)]
    return sizes, lambda i: at([first + place if n == d else place for n, place in enumerate(i)])


def _sizes(wanted: Sequence[Any], shape: list[Ix]) -> list[Ix]:
    """The shape that a view asks for; one size may be -1."""
    sizes = [size if isinstance(size, Ix) else ix(size) for size in wanted]
    known = product([s for s in sizes if s.value != -1])
    return [divide(product(shape), known) if s.value == -1 else s for s in sizes]
