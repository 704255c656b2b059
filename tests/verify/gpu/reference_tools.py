"""What a worker sends to a device reference and receives from it, and the policy of most tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from hipwright.digest import span
from hipwright.records import TensorSpec, TolerancePolicy
from hipwright.tensors import HostTensor, Tree, leaves, map_tensors, tensor_leaves
from hipwright.torchio import to_torch

STRICT = TolerancePolicy()
DATA = Path(__file__).parents[2] / "task" / "data"


def specs(tree: Tree) -> Tree:
    return map_tensors(tree, lambda t: t.spec)


def stream(tree: Tree, size: int = 4096):
    """What a worker sends: chunks of every leaf's span."""
    for leaf, tensor in enumerate(tensor_leaves(tree)):
        raw = span(to_torch(tensor)).numpy()
        for start in range(0, raw.size, size):
            yield leaf, start, HostTensor.of(raw[start : start + size])


def specs_of(source) -> list[TensorSpec]:
    return [leaf for leaf in leaves(source.arguments) if isinstance(leaf, TensorSpec)]


def gathered(source) -> list[torch.Tensor]:
    """A source's tensors, assembled from its chunks as a worker does."""
    raw = [np.zeros(size, np.uint8) for size in source.sizes]
    for leaf, offset, chunk in source.chunks(1 << 12):
        raw[leaf][offset : offset + chunk.numel] = chunk.storage
    found = []
    for spec, data in zip(specs_of(source), raw, strict=True):
        found.append(to_torch(HostTensor(spec.dtype, spec.shape, spec.stride, 0, data)))
    return found
