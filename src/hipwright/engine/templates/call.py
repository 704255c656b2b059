"""A chosen call as its template sees it: choices, knobs, memory between kernels, and the kernels to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipwright.engine.ir.index import Ix, product
from hipwright.engine.templates.base import INT_LIMIT
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.call_scope import CallScope, Temporary


@dataclass
class TemplateOptions:
    """How choices and knobs are asked for: choose(key, options, default), knob(name, default, options, comment)."""

    choose: Callable[[str, Sequence[Any], Any], Any]
    knob: Callable[[str, int, Sequence[int], str], str]


@dataclass(eq=False)
class CallBody(CallScope):
    """A chosen call; the template writes its kernels (call_kernel.py)."""

    options: TemplateOptions
    kernels: list[CallKernel] = field(default_factory=list, kw_only=True)  # in the order in which they are made

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

    def kernel(self, suffix: str = "", names: str = "") -> CallKernel:
        """A new kernel of this call. names: the C identifiers that the template declares, separated by spaces."""
        kernel = CallKernel(self, f"{self.name}_{suffix}" if suffix else self.name, names.split())
        self.kernels.append(kernel)
        return kernel
