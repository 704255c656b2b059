"""A chosen call as its template sees it (offers.py): operands, outputs, choices, knobs, and memory between kernels.

The template asks it for kernels (call_kernel.py) and writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import INT_LIMIT, Need
from hipwright.engine.templates.call_kernel import CallKernel


@dataclass
class TemplateOptions:
    """How choices and knobs are asked for: choose(key, options, default), knob(name, default, options, comment)."""

    choose: Callable[[str, Sequence[Any], Any], Any]
    knob: Callable[[str, int, Sequence[int], str], str]


@dataclass
class Temporary:
    """Memory between the kernels of one call; zeroed before the first if `zero`."""

    shape: list[Ix]
    dtype: str
    zero: bool = False


@dataclass(eq=False)
class CallBody:
    """A chosen call: its operands, its outputs, and what is fused after it."""

    c: LoweringContext
    group: Group
    name: str
    need: Need
    options: TemplateOptions
    temporaries: dict[str, Temporary] = field(default_factory=dict)
    made: list[CallKernel] = field(default_factory=list)

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

    def choose(self, key: str, options: Sequence[Any], default: Any) -> Any:
        """A structural choice of this call, `call:<node>:<key>` in the search space."""
        return self.options.choose(f"call:{self.call.node.name}:{key}", options, default)

    def knob(self, name: str, default: int, options: Sequence[int], comment: str) -> str:
        """A knob; returns its macro's name: `name`, or with a number if another kernel's `name` has another default."""
        return self.options.knob(name, default, options, comment)

    def temporary(self, name: str, shape: Sequence[Ix], dtype: str, *, zero: bool = False) -> str:
        """Allocates memory between kernels, before the first kernel is made; returns the name of its buffer."""
        buffer = self.c.unique(f"{name}_{self.call.node.name}")
        self.temporaries[buffer] = Temporary(list(shape), dtype, zero)
        if self.c.hint(product(shape)) >= INT_LIMIT:
            self.index_type = "long"
        return buffer

    def stored(self, number: int) -> str | None:
        """The buffer of output `number`, or None if nothing needs it (with whole=True)."""
        item = self.placed.items[number]
        return self.need.stores[item.name][0] if item is not None and item.name in self.need.stores else None

    def dtype(self, buffer: str) -> str:
        """A buffer's dtype."""
        return self.temporaries[buffer].dtype if buffer in self.temporaries else self.need.dtypes[buffer]

    def kernel(self, suffix: str = "", names: str = "") -> CallKernel:
        """A new kernel of this call. names: the C identifiers that the template declares, separated by spaces."""
        kernel = CallKernel(self, f"{self.name}_{suffix}" if suffix else self.name, names.split())
        self.made.append(kernel)
        return kernel
