"""Other shapes for a task: which sizes may change together, and to what. Does not import torch.

Sizes that are equal across the inputs usually are one symbol (a batch, a sequence length), so they change together; a
group that cannot is split by dimension, then by which of a tensor's equal dimensions it is (task/size_ties.py). What
does not change even so may be tied to a multiple of it (an image and its enlargement). Only the reference knows which
choices are valid: the probe runs it, on shapes alone where possible, so that a query needs no arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import islice, repeat
from math import prod

from hipwright.records import content_key
from hipwright.task.size_ties import Place, SharedSize, across, multiples, partitions

__all__ = ["Probe", "ShapeSpace", "Shapes", "SharedSize", "elements", "shape_name"]

Shapes = tuple[tuple[int, ...], ...]
Probe = Callable[[Shapes], int | None]
"""Elements of inputs and outputs together at these shapes; None where the reference refuses them."""

_SMALLEST = (3, 5, 7, 11, 2, 4, 8, 16, 32)
_FIXED_PART = 64
_QUESTIONS = 300  # probes per task
_TIES_UNTIL, _TIED_SIZES = 150, 3  # probes after which ties are not sought, and sizes tried for each
_DERIVED_ELEMENTS = 1 << 16
_ROUND = (32, 16, 8, 4, 2)


class ShapeSpace:
    """The shapes near those given that the reference accepts. Deterministic: it depends on the task alone."""

    def __init__(self, given: Shapes, probe: Probe) -> None:
        self.given = given
        self._probe = probe
        self._answers: dict[Shapes, int | None] = {}
        self.symbols = tuple(self._free())

    def parts(self, *, ties: bool = False) -> Iterator[ShapeSpace]:
        """This space, then those in which one symbol keeps its size, then those in which one alone changes.

        ties: before the last, those in which a size and a multiple of it change together, which shapes alone may not
        ask for.
        """
        yield self
        subsets = [*_but_one(self.symbols)]
        for symbols in self._tied_symbols() if ties else ():
            subsets += [symbols, *_but_one(symbols)]
        subsets += [(symbol,) for symbol in self.symbols] if len(self.symbols) > 2 else []
        for symbols in filter(None, dict.fromkeys(subsets)):
            part = copy(self)  # the results of the probes are shared
            part.symbols = symbols
            yield part

    def _tied_symbols(self) -> Iterator[tuple[SharedSize, ...]]:
        """The symbols, two of which have become multiples of one size."""
        places = {s.size: s.places for s in self.symbols if not s.factors}
        for small, large in multiples(places):
            others = [s for s in self.symbols if s.factors or s.size not in (small, large)]
            yield from ((*tied, *others) for tied in self._ties(small, large, places))

    def smallest(self, limit: int) -> Shapes | None:
        """The smallest other shapes, under `limit` elements or, where a fixed size prevents that, 16, 64 or 256 times
        as many; else None. Where outputs stay large at every shape, such as gradients of parameters, little more than
        those have.

        No size shrinks to 1 where that can be avoided: along such a dimension many operators do nothing.
        """
        given = self.cost(self.given)
        if given is None or not self.symbols:
            return None
        for least, factors in ((2, (1, 16, 64)), (1, (1, 16)), (2, ()), (2, (256,)), (1, (64, 256))):
            limits = [factor * limit for factor in factors] or self._above_fixed(limit)
            for most in limits:
                shapes = self.shrink(min(most, max(given - 1, 1)), least)
                if shapes is not None and shapes != self.given:
                    return shapes
        return None

    def _above_fixed(self, limit: int) -> list[int]:
        """A limit that leaves `limit` elements, or a small part of it, beside those that no size changes."""
        sizes: dict[SharedSize, int] = {}
        for symbol in self.symbols:
            small = (n for n in _SMALLEST if n < symbol.size and n not in sizes.values())
            tried = (n for n in small if self.cost(self.put({**sizes, symbol: n})) is not None)
            if (size := next(tried, None)) is not None:
                sizes[symbol] = size
        least = self.cost(self.put(sizes))
        few = sizes and least is not None and least <= 256 * limit
        return [least + max(limit, least // _FIXED_PART)] if few and least else []

    def cost(self, shapes: Shapes) -> int | None:
        """The probe's result, cached; None also after too many probes."""
        if shapes not in self._answers:
            self._answers[shapes] = self._probe(shapes) if len(self._answers) < _QUESTIONS else None
        return self._answers[shapes]

    def _free(self) -> Iterator[SharedSize]:
        if self.cost(self.given) is None:
            return
        places: dict[int, list[Place]] = {}
        for leaf, shape in enumerate(self.given):
            for dim, size in enumerate(shape):
                places.setdefault(size, []).append((leaf, dim))
        fixed: dict[int, tuple[Place, ...]] = {}
        for size in sorted(filter(lambda n: n > 1, places), reverse=True):
            group = tuple(places[size])
            candidates = [*([SharedSize(size, part) for part in parts] for parts in partitions(group))]
            candidates += [[SharedSize(size, part)] for part in (*across(group), *((place,) for place in group))]
            found = next((free for parts in candidates if (free := list(filter(self._changes, parts)))), None)
            if found is None:
                fixed[size] = group
            yield from found or ()
        yield from self._tied(fixed)

    def _tied(self, fixed: dict[int, tuple[Place, ...]]) -> Iterator[SharedSize]:
        """Symbols of sizes that change only with a multiple of them. fixed: the sizes that do not change alone."""
        done: set[int] = set()
        for small, large in multiples(fixed):
            if done & {small, large} or len(self._answers) > _TIES_UNTIL:
                continue
            found = next((tied for tied in self._ties(small, large, fixed) if all(map(self._changes, tied))), ())
            done |= {small, large} if found else set()
            yield from found

    def _ties(self, small: int, large: int, places: dict[int, tuple[Place, ...]]) -> Iterator[tuple[SharedSize, ...]]:
        """Guesses of which places of two sizes change together, the finest first."""
        for parts in reversed(list(partitions((*places[small], *places[large])))):
            factors = [tuple(self.given[leaf][dim] // small for leaf, dim in part) for part in parts]
            if all(set(row) == {1, large // small} for row in factors):
                yield tuple(SharedSize(small, part, row) for part, row in zip(parts, factors, strict=True))

    def split(self) -> list[SharedSize]:
        """The symbols, those of equal sizes in different dimensions apart where the reference lets each change alone.

        The rows and columns of a square matrix are one symbol: here they are two if forward runs on any rectangle.
        """
        found: list[SharedSize] = []
        for symbol in self.symbols:
            others = [] if symbol.factors else list(partitions(symbol.places))[1:]
            split = ([SharedSize(symbol.size, part) for part in parts] for parts in others)
            found += next((parts for parts in split if all(map(self._changes, parts))), [symbol])
        return found

    def _changes(self, symbol: SharedSize) -> bool:
        # a size of 1 alone would show nothing: it broadcasts against parameters that it does not fit
        others = [n for n in (*_near(symbol.size, symbol.size), symbol.size + 1) if n > 1]
        others = others[:_TIED_SIZES] if symbol.factors else others
        return any(self.cost(self.put({symbol: n})) is not None for n in others)

    def put(self, sizes: dict[SharedSize, int]) -> Shapes:
        """The given shapes with other sizes for some symbols."""
        shapes = [list(shape) for shape in self.given]
        for symbol, size in sizes.items():
            for (leaf, dim), factor in zip(symbol.places, symbol.factors or repeat(1), strict=False):
                shapes[leaf][dim] = size * factor
        return tuple(tuple(shape) for shape in shapes)

    # ---------------------------------------------------------------- choices

    def shrink(self, limit: int, least: int = 1) -> Shapes | None:
        """Shapes with at most `limit` elements and sizes of at least `least`, the largest size reduced first, odd or
        prime where possible.
        """
        sizes: dict[SharedSize, int] = {}
        stuck: set[SharedSize] = set()
        while (cost := self.cost(self.put(sizes))) is not None and cost > limit:
            movable = [s for s in self.symbols if s not in stuck and sizes.get(s, s.size) > least]
            if not movable:
                return None
            symbol = max(movable, key=lambda s: (sizes.get(s, s.size), s.places))
            now = sizes.get(symbol, symbol.size)
            target = max(least, int(now * max(limit / cost, 0.3)))
            if not self._move(sizes, symbol, target, below=now, least=least):
                stuck.add(symbol)
        if cost is None:
            return None
        for symbol in self.symbols:
            self._make_odd(sizes, symbol, limit)
        return self.put(sizes)

    def _make_odd(self, sizes: dict[SharedSize, int], symbol: SharedSize, limit: int) -> None:
        now = sizes.get(symbol, symbol.size)
        if now % 2 == 0:
            for size in (n for n in _near(now, now + 2) if n % 2 and n > 1 and n not in sizes.values()):
                cost = self.cost(self.put({**sizes, symbol: size}))
                if cost is not None and cost <= limit:
                    sizes[symbol] = size
                    return

    def _move(self, sizes: dict[SharedSize, int], symbol: SharedSize, target: int, *, below: int, least: int) -> bool:
        taken = {size for other, size in sizes.items() if other != symbol}
        choices = [size for size in _near(target, below) if size not in taken and size >= least]
        for size in choices:
            if self.cost(self.put({**sizes, symbol: size})) is not None:
                sizes[symbol] = size
                return True
        return False

    def held(self) -> list[ShapeSpace]:
        """The parts of this space that keep a size, for programs of one size (such as that of an attention head)."""
        return [part for part in self.parts() if part is not self]

    def derived(self) -> list[Shapes]:
        """Up to four other shapes, cheap ones: odd, a size of 1 in the first and in the last symbol, skewed."""
        small = self.smallest(_DERIVED_ELEMENTS)
        if small is None:
            return []
        least = self.cost(small) or 0
        sizes = {symbol: small[symbol.places[0][0]][symbol.places[0][1]] for symbol in self.symbols}
        ordered = sorted(self.symbols, key=lambda s: min(s.places))
        first, last = ordered[0], ordered[-1]
        choices = [small, self.put({**sizes, first: 1}), self.put({**sizes, last: 1})]
        for symbol, up in (
            (first, first.size * 3 // 2 + 1),
            (first, sizes[first] * 2 + 1),
            (last, sizes[last] * 2 + 1),
        ):
            shapes = self.put({**sizes, symbol: up})
            if (cost := self.cost(shapes)) is not None and cost <= max(2 * _DERIVED_ELEMENTS, 5 * least // 4):
                choices.append(shapes)
                break
        valid = [shapes for shapes in choices if self.cost(shapes) is not None and shapes != self.given]
        return list(dict.fromkeys(valid))[:4]


def _but_one(symbols: tuple[SharedSize, ...]) -> Iterator[tuple[SharedSize, ...]]:
    """The symbols without each of them."""
    return (tuple(s for s in symbols if s != kept) for kept in symbols)


def _near(target: int, below: int) -> list[int]:
    """Sizes under `below`, best first: primes and odd ones near the target, then round ones for divisions."""
    odd = range(target | 1, max(target // 2, 1), -2)  # of a size of a billion, two primes are soon found
    primes = islice((n for n in odd if n < below and _is_prime(n)), 2)
    nearest = islice((n for n in odd if n < below), 2)
    rounded = [max(target // step, 1) * step for step in _ROUND]
    halves = [below // 2, below // 4, below - 1]
    choices = [*primes, *nearest, *rounded, *halves, 1]
    return list(dict.fromkeys(n for n in choices if 1 <= n < below))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def shape_name(shapes: Shapes) -> str:
    """A short name that tells shapes apart: "17x33,33x9"."""
    name = ",".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
    return name if len(name) <= 60 else f"{name[:48]}~{content_key(name)[:8]}"


def elements(shapes: Shapes) -> int:
    """Elements of all leaves together."""
    return sum(prod(shape) for shape in shapes)
