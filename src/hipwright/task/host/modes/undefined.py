"""Outputs that a module leaves undefined: memory of torch.empty and its kin that nothing wrote (in the task host)."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hipwright.errors import TaskError
from hipwright.tensors import HostTensor, Tree

MAKING = frozenset(["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"])
"""Functions whose result holds what the memory held before."""
FILLS = (0, 1)


class FilledMemory(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """A context in which memory that torch leaves as it is holds one number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs every function, and fills what it made."""
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in MAKING and isinstance(result, torch.Tensor) and not result.is_meta:
            with torch.no_grad():
                result.fill_(self._number)
        return result


def check_defined(name: str, one: Tree, other: Tree) -> None:
    """Raises TaskError where the outputs of two runs whose empty memory was filled differently are not the same.

    name: the task file.
    """
    first = first_difference(one, other)
    if first is not None:
        raise TaskError(
            f"{name}: output{first} is not defined: it holds memory that torch.empty (or its kin) left as it was",
            hint="write all of it in forward, or begin with torch.zeros",
        )


def first_difference(a: Tree, b: Tree, path: str = "") -> str | None:
    """The path of the first leaf that differs ("" for the whole), None where all tensors have the same bits."""
    if isinstance(a, HostTensor) and isinstance(b, HostTensor):
        same = a.shape == b.shape and a.dtype == b.dtype and a.bits().tobytes() == b.bits().tobytes()
        return None if same else path
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        found = (first_difference(x, y, f"{path}[{n}]") for n, (x, y) in enumerate(zip(a, b, strict=True)))
        return next((one for one in found if one is not None), None)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        found = (first_difference(a[key], b[key], f"{path}[{str(key)!r}]") for key in a)
        return next((one for one in found if one is not None), None)
    return None if a == b or (a != a and b != b) else path
