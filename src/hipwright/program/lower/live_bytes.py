"""How much memory the results of operators hold at once, known from shapes alone."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from hipwright.higher_order import OperatorMode
from hipwright.torchio import tensors_of


class LiveBytes(OperatorMode):
    """Follows which results live, on tensors with or without data.

    most: the most bytes that they hold at once; arguments that are not made inside the block count nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = self._living = 0
        self._known: dict[int, weakref.ref[Any]] = {}  # a storage's object lives as long as the storage

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs the operator and counts what lives after it, its arguments included."""
        for tensor in tensors_of((args, kwargs)):
            self._meet(tensor, made=False)
        out = func(*args, **kwargs)
        for tensor in tensors_of(out):
            self._meet(tensor, made=True)
        self.most = max(self.most, self._living)
        return out

    def _meet(self, tensor: torch.Tensor, *, made: bool) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key, nbytes = id(storage), storage.nbytes() if made else 0
        if key not in self._known:
            self._known[key] = weakref.ref(storage, lambda _: self._lose(key, nbytes))
            self._living += nbytes

    def _lose(self, key: int, nbytes: int) -> None:
        del self._known[key]
        self._living -= nbytes
