"""A chosen call of a call template (offers.py): its operands, its outputs, what is fused after it, and its memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import INT_LIMIT, Need


@dataclass
class Temporary:
    """Memory between the kernels of one call; zeroed before the first if `zero`."""

    shape: list[Ix]
    dtype: str
    zero: bool = False


@dataclass(eq=False)
class CallScope:
    """A chosen call, as its kernels see it."""

    c: LoweringContext
    group: Group
    name: str
    need: Need
    temporaries: dict[str, Temporary] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self.placed = self.group.items[0].placed
        self.call = self.placed.call
        self.operands: list[Tensor | None] = self.placed.operands
        self.data = self.placed.offer.data
        self.index_type = "int" if all(self.c.hint(s) < INT_LIMIT for s in self._sizes()) else "long"

    def _sizes(self) -> list[Ix]:
        """All numbers of elements that the kernels index."""
        values = [*self.placed.elements(), *(m.value for m in self.group.members)]
        loads = {e.attr[0] for e in walk(values) if e.op == "load"}
        sizes = [self.need.numels[b] for b in sorted(loads) if b in self.need.numels]
        sizes += [product(i.space) for i in self.group.items]
        return sizes + [product(t.shape) for t in self.temporaries.values()]

    def limits(self) -> list[Ix]:
        """The sizes that must stay below INT_LIMIT because the kernels count in int."""
        return [s for s in self._sizes() if s.value is None] if self.index_type == "int" else []

    def hint(self, size: Ix) -> int:
        """A size at capture."""
        return self.c.hint(size)

    def stored(self, number: int) -> str | None:
        """The buffer of output `number`, or None if nothing needs it (with whole=True)."""
        item = self.placed.items[number]
        return self.need.stores[item.name][0] if item is not None and item.name in self.need.stores else None

    def dtype(self, buffer: str) -> str:
        """A buffer's dtype."""
        return self.temporaries[buffer].dtype if buffer in self.temporaries else self.need.dtypes[buffer]
