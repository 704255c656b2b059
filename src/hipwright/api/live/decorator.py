"""A function whose first call of each kind optimises it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.module import OptimizedModule

MOST_KINDS = 8
"""Kinds of arguments for which a function is optimised; further ones are the function's own."""


class OptimizedFunction:
    """A function with its drop-ins. modules: by the kind of arguments that they are for. optimize: makes one.

    Raises what `optimize` raises, with the first call of a kind; the function's own errors too.
    """

    def __init__(self, function: Callable[..., Any], optimize: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function, self._optimize = function, optimize
        self.modules: dict[Any, OptimizedModule] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the kind's program, or the function's own."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if torch.compiler.is_compiling() or not tensors or (torch.is_grad_enabled() and any(map(_wants, tensors))):
            return self.function(*args, **kwargs)
        kind = (str(structure), *map(_kind, leaves))
        with self._lock:
            if kind not in self.modules and len(self.modules) < MOST_KINDS:
                made = self._optimize(self.function, args, example_kwargs=kwargs)
                self.modules[kind] = made.module
        found = self.modules.get(kind)
        return self.function(*args, **kwargs) if found is None else found(*args, **kwargs)


def _wants(tensor: torch.Tensor) -> bool:
    return bool(tensor.requires_grad)


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return type(leaf).__name__, leaf.dtype, leaf.ndim, leaf.device.type
    return type(leaf).__name__, repr(leaf)
