"""A stand-in for the GPU's graphs on the processor: operators on a tape, played again on the tensors of the capture.

As in a graph of the device, nothing of the Python around them runs again, and results are written where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hipwright.api.live import guards
from hipwright.api.live.forward.modes import watching


class Tape(TorchDispatchMode):
    """Keeps the operators that run in it."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.ops.append((func, args, kwargs or {}, result))
        return result

    def play(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, result in self.ops:
                new = func(*args, **kwargs)
                for old, now in zip(pytree.tree_leaves(result), pytree.tree_leaves(new), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != now.data_ptr():
                        old.copy_(now)


class TapeGraphs:
    """`DeviceGraphs` of tapes. fails: why no capture ends well; most: bytes that graphs may keep."""

    def __init__(self) -> None:
        self.current, self.outer, self.fails = 0, False, ""
        self.kept, self.most = 0, 1 << 30

    def capturing(self, device: torch.device) -> bool:
        return self.outer

    def stream(self, device: torch.device) -> int:
        return self.current

    def reserve(self, device: torch.device, size: int) -> bool:
        fits = self.kept + size <= self.most
        self.kept += size if fits else 0
        return fits

    def release(self, device: torch.device, size: int) -> None:
        self.kept -= size

    def capture(self, device: torch.device, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        call()
        if self.fails:
            raise RuntimeError(self.fails)
        self.outer = True
        try:
            with mock.patch.object(guards, "watching", lambda: watching() + 1), Tape() as tape:
                result = call()
        finally:
            self.outer = False
        for one in result.tensors if hasattr(result, "tensors") else result[0]:
            one.fill_(7)  # a capture computes nothing
        return tape.play, result
