"""Operators of half types that torch has on GPUs alone, such as three-dimensional average pooling, on the processor."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

T = TypeVar("T")
HALVES = (torch.float16, torch.bfloat16)
_LACKING = re.compile(r"not implemented for '(?:Half|BFloat16)'")


def lacks_halves(error: BaseException) -> bool:
    """Whether torch says that an operator has no form for a half type here."""
    return isinstance(error, RuntimeError) and _LACKING.search(str(error)) is not None


class WidenedHalves(TorchDispatchMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """A context in which such operators run in float32 and round their results, as they do on a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs every operator, and again in float32 where it has no form for the half type of its arguments."""
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if not lacks_halves(error) or func._schema.is_mutable:
                raise
        halves: list[torch.dtype] = []

        def widened(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dtype not in HALVES:
                return tensor
            halves.append(tensor.dtype)
            return tensor.float()

        args, kwargs = tree_map_only(torch.Tensor, widened, (args, kwargs))
        result = func(*args, **kwargs)
        return tree_map_only(torch.Tensor, lambda t: t.to(halves[0]) if t.dtype == torch.float32 else t, result)


class Widening:
    """Runs functions, from the first that lacks an operator on with its half types widened."""

    def __init__(self) -> None:
        self.on = False

    def run(self, fn: Callable[[], T]) -> T:
        """fn(), or where torch lacks an operator of it for half types, fn() once more, widened."""
        if not self.on:
            try:
                return fn()
            except RuntimeError as error:
                if not lacks_halves(error):
                    raise
                self.on = True
        with WidenedHalves():
            return fn()


@functools.lru_cache(maxsize=4096)
def widened(call: Callable[..., T]) -> Callable[..., T]:
    """The call of an operator, which runs widened where torch lacks the operator for half types."""

    def run(*args: Any, **kwargs: Any) -> T:
        return Widening().run(lambda: call(*args, **kwargs))

    return run
