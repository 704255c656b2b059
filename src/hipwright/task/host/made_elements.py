"""What the operators of a forward make on the way: a module with small inputs may hold all pairs of them.

Runs in the task host, on tensors without data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.higher_order import OperatorMode

HUGE, LARGE = 64, 1 << 24
"""Times the elements of inputs and outputs, and elements, from which on a tensor between them decides the cost."""
_ELEMENT_OPERATIONS = 64.0
"""Operations of a product in the time in which an element is made and stored."""


class MadeElements(OperatorMode):
    """Counts the elements that operators make, views left out. largest: of one tensor; total: of all."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        if not any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns):
            sizes = [leaf.numel() for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
            self.largest = max([self.largest, *sizes])
            self.total += sum(sizes)
        return out

    def is_huge(self, held: int) -> bool:
        """Whether a tensor between inputs and outputs is far larger than these together. held: their elements."""
        return self.largest > max(HUGE * held, LARGE)

    def operations(self, held: int) -> float:
        """What making them costs, in operations of a product; 0 where none is huge."""
        return _ELEMENT_OPERATIONS * self.total if self.is_huge(held) else 0.0
