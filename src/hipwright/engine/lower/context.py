"""The define-by-run lowering: every tensor is a function from an index to a scalar expression.

Views, casts and pointwise operators stay functions, which their consumers inline; a reduction, a value used in several
places, and whatever a library call reads become *items*, which the scheduler groups into kernels.
The idea is that of TorchInductor's loop-level IR (Ansel et al., ASPLOS 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, ROUNDING, SMALL_INTS, STORAGE, E, ExprArena, weight
from hipwright.engine.ir.index import ONE, ZERO, Ix, Var, ix
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.ir.sizes import SizeReader, evaluate
from hipwright.engine.lower.one_hot import summed_one_hot
from hipwright.engine.lower.short_rows import LARGE, SHARED, few, written_out
from hipwright.engine.lower.table import BITS, held
from hipwright.engine.lower.values import Index, LoweredItem, NotLowered, Tensor


class LoweringContext:
    """Makes the values and items of one graph; the lowerings of operators are written with it."""

    def __init__(self, reader: SizeReader, hints: dict[str, int]) -> None:
        self.arena = ExprArena()
        self.reader = reader
        self.hints = hints
        self.items: list[LoweredItem] = []
        self.origin = ""
        self.names: set[str] = set()
        self._reduced: dict[Any, Tensor] = {}
        self.parameters: set[str] = set()  # the model's, which no call changes
        self.stored_operands: dict[Any, Tensor] = {}  # operands of call templates that are stored
        self._probes: dict[tuple[int, str], Ix] = {}
        self.bit_ranks = True  # running sums of bits are counted where they are read (bit_ranks.py)
        self.wide = False  # keep half and bfloat16 in float32 between kernels
        self.narrow: set[str] = set()  # items that `wide` is about
        self.places: dict[
            tuple[str, str], list[Ix] | None
        ] = {}  # the index at which a stored value was read; None: several

    # ------------------------------------------------------------ making values

    def tensor(self, dtype: str, shape: Sequence[Ix], fn: Callable[[Index], E]) -> Tensor:
        """A value that its consumers inline."""
        return Tensor(dtype, shape, fn)

    def stored(self, name: str, dtype: str, shape: Sequence[Ix]) -> Tensor:
        """A contiguous tensor in memory."""
        sizes = list(shape)
        return Tensor(dtype, sizes, lambda i: self.arena.load(name, flatten(sizes, i), dtype), buffer=name)

    def unique(self, name: str) -> str:
        """`name`, with a number when it is taken."""
        count, candidate = 1, name
        while candidate in self.names:
            count += 1
            candidate = f"{name}_{count}"
        self.names.add(candidate)
        return candidate

    def realise(self, value: Tensor, name: str = "", *, between: bool = True, alone: bool = False) -> Tensor:
        """The same value, stored by an item. between: only kernels read it, so that its width may be chosen. alone: it
        has a kernel of its own.
        """
        if value.buffer:
            return value
        item = LoweredItem(
            self.unique(name or self.origin), "pw", value.dtype, value.shape, value.at, node=name or self.origin
        )
        item.alone = alone
        return self.keep(item, between=between)

    def keep(self, item: LoweredItem, *, between: bool = True) -> Tensor:
        """Add an item. Returns the tensor for its readers, which has a buffer where that has the tensor's dtype."""
        self.items.append(item)
        dtype, shape = item.dtype, item.shape
        halves = between and dtype in ("float16", "bfloat16")
        if halves:
            self.narrow.add(item.name)
        if not (halves and self.wide):
            return Tensor(dtype, shape, lambda i: self._noted(item.name, dtype, shape, i), buffer=item.name)
        item.dtype = "float32"
        return self.tensor(dtype, shape, lambda i: self._noted(item.name, "float32", shape, i))

    def _noted(self, name: str, dtype: str, shape: Sequence[Ix], index: Index) -> E:
        """The element of a stored value; its index is recorded, as a position alone may not determine it."""
        position = flatten(shape, index)
        known = self.places.setdefault((name, position.key), list(index))
        if known is not None and [i.key for i in known] != [i.key for i in index]:
            self.places[name, position.key] = None
        return self.arena.load(name, position, dtype)

    def index_of(self, item: LoweredItem, position: Ix) -> list[Ix]:
        """The index into an item's space of a position in memory that was read."""
        return self.places.get((item.name, position.key)) or unflatten(item.space, position)

    def reduce(
        self, kind: str, value: Tensor, dims: Sequence[int], *, keep: bool = False, dtype: str = "", name: str = ""
    ) -> Tensor:
        """sum, prod, max, min, any, all, argmax or argmin of a value over dims, in the compute type; or the mean, its
        rounding error (`rest`), or the sum of squared deviations from it (`squares`).
        """
        if value.dtype == "bool":
            kind = {"max": "any", "min": "all"}.get(kind, kind)
            value = self.cast(value, "int32") if kind.startswith("arg") else value
        if dtype == "":
            dtype = "int64" if kind.startswith("arg") else ("bool" if kind in ("any", "all") else value.dtype)
        if dtype in ROUNDING:
            dtype = "float32"  # a row value is not rounded before it is stored
        reduced = tuple(sorted(d % value.rank for d in dims)) if value.rank else ()
        reduced = tuple(d for d in reduced if value.shape[d] != ONE)
        best = kind.startswith("arg")
        once = self._summed_one_hot(self.cast(value, dtype), reduced) if kind == "sum" and len(reduced) == 1 else None
        once = once or (self._written_out(kind, self.cast(value, dtype), reduced) if reduced else None)
        if once is not None:
            result = once
        elif reduced and self._few_columns(kind, value, reduced):
            result = self._by_columns(kind, self.cast(value, dtype), reduced, dtype, name)
        elif reduced:
            flat = self._rows(kind, value if best else self.cast(value, dtype), reduced, dtype, name)
            shape = [ONE if i in reduced else s for i, s in enumerate(value.shape)]
            result = self.tensor(dtype, shape, lambda i: flat.at([x for k, x in enumerate(i) if k not in reduced]))
        elif best:
            result = self.tensor(dtype, value.shape, lambda i: self.arena.const(0, "long"))
        elif kind in ("squares", "rest"):
            result = self.cast(value, dtype)
            result = self.map(lambda x: self.arena.binary("-", x, x), result, dtype=dtype, shape=value.shape)
        else:
            result = self.cast(value, dtype)
        return result if keep else self.squeeze(result, dims)

    def _summed_one_hot(self, value: Tensor, dims: tuple[int, ...]) -> Tensor | None:
        """The sum over one dimension of a value that is not zero at one place of it at most; None for any other."""
        (dim,) = dims
        size = value.shape[dim]
        variable = next(a for a in self.probe(value.shape)[dim].atoms() if isinstance(a, Var))

        def at(index: Index) -> E | None:
            full = [ix(variable) if k == dim else i for k, i in enumerate(index)]
            return summed_one_hot(self.arena, self._computed(value.at(full)), variable, size)

        if at(self.probe(value.shape)) is None:
            return None

        def element(index: Index) -> E:
            found = at(index)
            if found is None:
                raise NotLowered("a sum of one term that has become another one at a place of its own")
            return found

        shape = [ONE if k == dim else s for k, s in enumerate(value.shape)]
        return self.tensor(value.dtype, shape, element)

    def _written_out(self, kind: str, value: Tensor, dims: tuple[int, ...]) -> Tensor | None:
        """A reduction over few elements as an expression of them; None for any other."""
        shape = [ONE if k in dims else s for k, s in enumerate(value.shape)]
        if self.numel_hint(shape) < LARGE:
            return None
        at = written_out(self.arena, kind, value, dims, value.at(self.probe(value.shape)))
        return self.tensor(value.dtype, shape, at) if at is not None else None

    def _few_columns(self, kind: str, value: Tensor, dims: tuple[int, ...]) -> bool:
        """Whether each of a few columns is reduced as a row of its own: what they share is computed once then."""
        if value.rank - 1 in dims or kind not in ("sum", "max", "min") or not few(value.shape[-1].value or 0):
            return False
        rows = [ONE if k in dims else s for k, s in enumerate(value.shape)]
        return self.numel_hint(rows) >= LARGE and weight([value.at(self.probe(value.shape))]) >= SHARED

    def _by_columns(self, kind: str, value: Tensor, dims: tuple[int, ...], dtype: str, name: str) -> Tensor:
        """The reduction over dims, kept, by one reduction for each place of the last dimension."""
        title, columns = name or f"{self.origin}_{kind}", value.shape[-1].value or 0
        slices = [self._column(value, place) for place in range(columns)]
        found = [self._rows(kind, part, dims, dtype, f"{title}_{n}") for n, part in enumerate(slices)]
        shape = [ONE if k in dims else s for k, s in enumerate(value.shape)]

        def at(index: Index) -> E:
            row = [i for k, i in enumerate(index[:-1]) if k not in dims]
            result = found[-1].at(row)
            for place in reversed(range(columns - 1)):
                here = self.arena.compare(index[-1], "==", ix(place))
                result = self.arena.select(here, found[place].at(row), result)
            return result

        return self.tensor(dtype, shape, at)

    def _column(self, value: Tensor, place: int) -> Tensor:
        """The value at one place of its last dimension."""
        return self.tensor(value.dtype, value.shape[:-1], lambda i: value.at([*i, ix(place)]))

    def _computed(self, e: E) -> E:
        """What a pointwise item that is loaded computes, if it is stored as it is computed."""
        if e.op != "load":
            return e
        item = next((i for i in self.items if i.name == e.attr[0] and i.kind == "pw" and not i.alone), None)
        if item is None or item.dtype not in ("float32", "float64", "int64") or item.target:
            return e
        return item.body(self.index_of(item, e.attr[1]))

    def _rows(self, kind: str, value: Tensor, dims: tuple[int, ...], dtype: str, name: str) -> Tensor:
        """One stored value per row; equal reductions of equal values share one item."""
        element = value.at(self.probe(value.shape))
        key = (kind, dtype, dims, tuple(s.key for s in value.shape), element.id)
        if key in self._reduced:
            return self._reduced[key]
        title = self.unique(name or f"{self.origin}_{kind}")
        self._reduced[key] = self._reduction(title, kind, value, dims, dtype)
        return self._reduced[key]

    def probe(self, shape: Sequence[Ix]) -> list[Ix]:
        """An index of variables, the same for equal shapes: equal values have equal elements there."""
        for k, size in enumerate(shape):
            self._probes.setdefault((k, size.key), ix(self.arena.var("p", size)))
        return [self._probes[k, size.key] for k, size in enumerate(shape)]

    def _reduction(self, title: str, kind: str, value: Tensor, dims: Sequence[int], dtype: str) -> Tensor:
        item = LoweredItem(title, "red", dtype, value.shape, value.at, tuple(dims), kind, self.origin)
        self.items.append(item)
        return self.stored(title, dtype, item.shape)

    def rollback(self, count: int) -> None:
        """Drop every item after the first `count`: their operator stays a library call."""
        gone = {item.name for item in self.items[count:]}
        del self.items[count:]
        self.narrow -= gone
        self._reduced = {key: flat for key, flat in self._reduced.items() if flat.buffer not in gone}

    def squeeze(self, value: Tensor, dims: Sequence[int]) -> Tensor:
        """The value without the given dimensions of size 1."""
        gone = {d % max(value.rank, 1) for d in dims}
        kept = [k for k in range(value.rank) if k not in gone]

        def at(index: Index) -> E:
            full = [ZERO] * value.rank
            for k, i in zip(kept, index, strict=True):
                full[k] = i
            return value.at(full)

        return self.tensor(value.dtype, [value.shape[k] for k in kept], at)

    # ------------------------------------------------------------ scalars

    def cast(self, value: Tensor, dtype: str) -> Tensor:
        """value.to(dtype); rounding to half happens when it is stored."""
        if value.dtype == dtype:
            return value
        return self.tensor(dtype, value.shape, lambda i: self.to(value.at(i), dtype))

    def to(self, e: E, dtype: str) -> E:
        """An expression converted to a dtype's compute type, wrapped to the width of small integers."""
        if dtype in SMALL_INTS:
            return self.wrap(self.arena.cast(e, "int"), dtype)
        return self.arena.cast(e, COMPUTE[dtype])

    def wrap(self, e: E, dtype: str) -> E:
        """The value of a small integer type, wrapped around as in memory."""
        if dtype not in SMALL_INTS or _fits(e, dtype):
            return e
        if e.op == "const":
            return self.arena.const(held(int(e.attr), dtype), "int")
        return self.arena.make("cast", (e,), "int", STORAGE[dtype])

    def operand(self, value: Any, ctype: str, shape: Sequence[Ix], index: Index) -> E:
        """An argument's element at an index of the broadcast shape: a Tensor, a number or a size."""
        if isinstance(value, Tensor):
            e = value.at(self.broadcast(value, index))
            return self.arena.cast(e, ctype)
        if isinstance(value, Ix):
            return self.arena.cast(self.arena.index(value), ctype)
        if ctype in ("int", "long") and isinstance(value, float) and not math.isfinite(value):
            raise NotLowered("an infinite scalar in integer arithmetic")
        return self.arena.const(value, ctype)

    def narrowed(self, value: Any, dtype: str) -> Any:
        """An operand beside integers of a narrow dtype, wrapped to it: a number, or a scalar of a wider one."""
        if dtype not in BITS:
            return value
        return self.cast(value, dtype) if isinstance(value, Tensor) else held(value, dtype)

    def broadcast(self, value: Tensor, index: Index) -> list[Ix]:
        """The index into `value` for an index of a broadcast shape."""
        tail = list(index)[len(index) - value.rank :]
        return [ZERO if size == ONE else i for i, size in zip(tail, value.shape, strict=True)]

    def map(self, fn: Callable[..., E], *args: Any, dtype: str, shape: Sequence[Ix], ctype: str = "") -> Tensor:
        """Elementwise: fn of the operands' expressions, all in one compute type; narrow integers wrap beside it too."""
        kind = ctype or COMPUTE[dtype]
        args = args if ctype else tuple(self.narrowed(a, dtype) for a in args)

        def at(index: Index) -> E:
            e = fn(*(self.operand(a, kind, shape, index) for a in args))
            return self.wrap(self.arena.cast(e, COMPUTE[dtype]), dtype)

        return self.tensor(dtype, shape, at)

    def joint(self, *args: Any) -> str:
        """The type in which values of different types are compared."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        dtypes = [t.dtype for t in tensors if t.rank] or [t.dtype for t in tensors]
        dtypes += [t.dtype for t in tensors if t.dtype in FLOATING and not any(d in FLOATING for d in dtypes)]
        if "float64" in dtypes:
            return "double"
        if any(d in FLOATING for d in dtypes) or any(isinstance(a, float) for a in args):
            return "float"
        return "bool" if set(dtypes) == {"bool"} and not any(type(a) is int for a in args) else "long"

    # ------------------------------------------------------------ sizes

    def size(self, value: Any) -> Ix:
        """A size from the graph."""
        return value if isinstance(value, Ix) else self.reader.read(value)

    def shape(self, meta: Meta) -> list[Ix]:
        """A shape from the graph."""
        return [self.reader.read(s) for s in meta.shape]

    def hint(self, value: Ix) -> int:
        """The number that a size had at capture, at least 1."""
        return max(self.captured(value), 1)

    def captured(self, value: Ix) -> int:
        """What a place or a size was at capture."""
        return int(evaluate(value, self.hints))

    def numel_hint(self, shape: Sequence[Ix]) -> int:
        """The number of elements at capture."""
        return math.prod(self.hint(s) for s in shape)


def _fits(e: E, dtype: str) -> bool:
    """Whether a value certainly lies in the range of a small integer: its bits are masked or shifted down."""
    if e.op == "load":
        return bool(e.attr[2] in (dtype, "uint8", "int8") if dtype == "int16" else e.attr[2] == dtype)
    if e.op == "const":
        return bool(held(int(e.attr), dtype) == e.attr)
    if e.op != "bin":
        return False
    if e.attr == ">>":
        return _fits(e.args[0], dtype)
    most = {"uint8": 255, "int8": 127, "int16": 32767}[dtype]
    return e.attr == "&" and any(a.op == "const" and 0 <= int(a.attr) <= most for a in e.args)
