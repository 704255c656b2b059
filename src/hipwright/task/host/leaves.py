"""Properties of a reference's arguments and outputs: shapes, counts, specs. Runs in the task host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from hipwright.records import TensorSpec
from hipwright.task import sizes
from hipwright.task.host import draw
from hipwright.task.host.reference import named_leaves

_FEW_INDICES = 64  # integers of an input up to which several draws are tried for indices in range at another shape


def may_index(tensor: torch.Tensor) -> bool:
    """Whether the integers are so few that one draw of them does not represent the next."""
    return not tensor.is_floating_point() and tensor.dtype != torch.bool and 0 < tensor.numel() <= _FEW_INDICES


def reshaped(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor without data with the strides that `draw.resize` would give it."""
    return torch.empty_strided(shape, draw.strides_like(tensor, shape), dtype=tensor.dtype, device="meta")


def differing(inputs: list[Any], others: Iterable[list[Any]]) -> list[list[int]]:
    """The dimensions in which inputs of the same ranks differ from these, of each tensor in order."""
    mine = shapes_of(inputs)
    alike = [shapes for shapes in map(shapes_of, others) if list(map(len, shapes)) == list(map(len, mine))]
    return [
        [d for d, size in enumerate(shape) if any(other[n][d] != size for other in alike)]
        for n, shape in enumerate(mine)
    ]


def shapes_of(inputs: list[Any]) -> sizes.Shapes:
    """The shape of every input tensor, in order."""
    return tuple(tuple(tensor.shape) for _, tensor in named_leaves("inputs", inputs))


def elements_of(value: Any) -> int:
    """Elements of all tensors in a value."""
    return sum(tensor.numel() for _, tensor in named_leaves("", value))


def ranks_of(outputs: Any) -> list[int]:
    """Dimensions of every output tensor, in order."""
    return [tensor.dim() for _, tensor in named_leaves("output", outputs)]


def finite_share(outputs: Any) -> float:
    """The smallest share of finite numbers among the float outputs; 1 without any."""
    floats = [tensor for _, tensor in named_leaves("output", outputs) if tensor.is_floating_point() and tensor.numel()]
    return min((float(tensor.double().isfinite().double().mean()) for tensor in floats), default=1.0)


def plain(value: Any) -> Any:
    """Tuples of any class as plain ones."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a tensor."""
    return TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stride=tuple(tensor.stride())
    )


def allocated(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without data with memory that is not touched, which costs nothing where nobody reads values; any other
    as it is.
    """
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype) if tensor.is_meta else tensor
