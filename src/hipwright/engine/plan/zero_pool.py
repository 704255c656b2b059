"""Small buffers that begin with zeros, made together: one launch for all of one size, instead of one each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hipwright.engine.emit.tree import Statement
from hipwright.engine.ir.index import Fn, Ix, Sym, ix
from hipwright.engine.ir.sizes import evaluate
from hipwright.engine.plan.preparation import allocation

SMALL = 1 << 16
"""Elements up to which a buffer is made at the plan's start: a larger one may leave the caches before it is used."""


class ZeroPool:
    """Counters, flags and extremes of a plan's launches. local: a name of the plan that is not taken. hints: the sizes
    at capture; a buffer of another size (of a knob) is allocated by itself.

    Buffers of one size and dtype are the rows of one tensor, which is allocated where the first of them is needed.
    """

    def __init__(self, local: Callable[[str], str], hints: Mapping[str, int]) -> None:
        self._local, self._hints = local, hints
        self._pools: dict[tuple[str, str], _Pool] = {}

    def takes(self, shape: Sequence[Ix]) -> bool:
        """Whether a buffer of this shape is small enough."""
        known = all(
            isinstance(a, Sym) and a.name in self._hints
            for size in shape
            for a in size.atoms()
            if not isinstance(a, Fn)
        )
        return len(shape) == 1 and known and evaluate(shape[0], self._hints) <= SMALL

    def allocate(self, name: str, shape: Sequence[Ix], dtype: str, statements: list[Statement]) -> None:
        """Appends the allocation of a buffer."""
        key = (shape[0].key, dtype)
        if key not in self._pools:
            self._pools[key] = _Pool(shape[0], dtype, Statement(""))
            statements.append(self._pools[key].made)
        line = Statement("")
        statements.append(line)
        self._pools[key].rows.append((name, line))

    def finish(self, statements: list[Statement]) -> list[Statement]:
        """The statements with the pools' texts; a buffer that is alone is allocated by itself."""
        texts: dict[int, str] = {}
        for pool in self._pools.values():
            texts |= pool.texts(self._local)
        left = (Statement(texts[id(s)]) if id(s) in texts else s for s in statements)
        return [s for s in left if not isinstance(s, Statement) or s.text]


class _Pool:
    """The buffers of one size and dtype. made: the place of the tensor that holds them."""

    def __init__(self, size: Ix, dtype: str, made: Statement) -> None:
        self.size, self.dtype, self.made = size, dtype, made
        self.rows: list[tuple[str, Statement]] = []

    def texts(self, local: Callable[[str], str]) -> dict[int, str]:
        """The text of each statement of the pool, by its identity."""
        if len(self.rows) == 1:
            name, line = self.rows[0]
            return {id(self.made): "", id(line): f"{name} = {allocation([self.size], self.dtype, 'zeros')}"}
        whole = local("zeroed")
        made = f"{whole} = {allocation([ix(len(self.rows)), self.size], self.dtype, 'zeros')}"
        rows = {id(line): f"{name} = {whole}[{number}]" for number, (name, line) in enumerate(self.rows)}
        return {id(self.made): made, **rows}
