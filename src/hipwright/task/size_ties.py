"""Which dimensions of a task's inputs may hold one size: guesses, best first, that only a run can confirm."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

Place = tuple[int, int]  # (tensor leaf, dimension)
_MOST_ACROSS = 16
_MOST_FACTOR = 16


@dataclass(frozen=True)
class SharedSize:
    """Places that hold one size, or with `factors` multiples of it, one for each place."""

    size: int
    places: tuple[Place, ...]
    factors: tuple[int, ...] = ()


def partitions(places: Sequence[Place]) -> Iterator[list[tuple[Place, ...]]]:
    """All places together; by dimension; the first of each tensor, the second of each, and so on.

    Never one tensor of several alone, which the reference may broadcast unintentionally: that is tried last.
    """
    seen = [[tuple(places)]]
    dims = sorted({dim for _, dim in places})
    seen.append([tuple(p for p in places if p[1] == dim) for dim in dims])
    number = {p: sum(q[0] == p[0] and q[1] < p[1] for q in places) for p in places}
    seen.append([tuple(p for p in places if number[p] == k) for k in sorted(set(number.values()))])
    for k, groups in enumerate(seen):
        if groups not in seen[:k]:
            yield groups


def across(places: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    """One place of each tensor that has any: its equal dimensions may be different sizes."""
    leaves = sorted({leaf for leaf, _ in places})
    if len(leaves) > 1 and len(places) > len(leaves):
        yield from islice(product(*([p for p in places if p[0] == leaf] for leaf in leaves)), _MOST_ACROSS)


def multiples(sizes: Collection[int]) -> list[tuple[int, int]]:
    """Pairs of a size and a small multiple of it: the smallest factors first, of equal ones the largest sizes."""
    pairs = [(a, b) for a in sizes for b in sizes if 1 < a < b <= _MOST_FACTOR * a and b % a == 0]
    return sorted(pairs, key=lambda pair: (pair[1] // pair[0], -pair[0]))
