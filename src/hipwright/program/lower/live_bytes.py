"""How much memory the results of operators hold at once, known from shapes alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """Follows which results live, on tensors with or without data.

    most: the most bytes that they hold at once; arguments that are not made inside the block count nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._given: dict[int, StorageWeakRef] = {}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and counts what lives after it, its arguments included."""
        for tensor in _tensors((args, kwargs)):
            ref = StorageWeakRef(tensor.untyped_storage())
            if ref.cdata not in self._made:
                self._given.setdefault(ref.cdata, ref)
        out = func(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            storage = tensor.untyped_storage()
            ref = StorageWeakRef(storage)
            if ref.cdata not in self._given:
                self._made[ref.cdata] = ref, storage.nbytes()
        self._made = {key: one for key, one in self._made.items() if not one[0].expired()}
        self.most = max(self.most, sum(nbytes for _, nbytes in self._made.values()))
        return out


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]
