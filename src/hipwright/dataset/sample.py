"""A small sample of a data set that covers its kinds, families of operators and tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from hipwright.dataset.records import KINDS, Pair


def varied_sample(pairs: Iterable[Pair], count: int, seed: int) -> list[Pair]:
    """At most `count` rows, in the data set's order.

    Kinds alternate; of each kind, the row whose task and families were drawn least is next. The seed breaks ties.
    """
    rows = list(pairs)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    left = {kind: [at for at in order if rows[at].kind == kind] for kind in KINDS}
    used: Counter[str] = Counter()
    chosen: list[int] = []
    while len(chosen) < min(count, len(rows)):
        for kind in KINDS:
            if left[kind] and len(chosen) < count:
                best = min(left[kind], key=lambda at: _use(rows[at], used))
                left[kind].remove(best)
                chosen.append(best)
                used.update([f"task {rows[best].task}", *rows[best].families])
    return [rows[at] for at in sorted(chosen)]


def _use(pair: Pair, used: Counter[str]) -> tuple[int, int, int]:
    """How often its task, its rarest family, and all its families were drawn."""
    families = [used[family] for family in pair.families]
    return used[f"task {pair.task}"], min(families, default=0), sum(families)
