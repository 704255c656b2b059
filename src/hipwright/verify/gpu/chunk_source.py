"""Inputs on their way to a device: what `verify.gpu.loaded.Loaded.place` takes. No torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

from hipwright.records import TensorSpec
from hipwright.tensors import BITS, HostTensor, Tree, map_tensors, tensor_leaves

CHUNK_BYTES = 64 << 20


class ChunkSource(Protocol):
    """Inputs that are placed on the device chunk by chunk (verify.reference_ends.InputSource, or `HostSource`)."""

    @property
    def arguments(self) -> list[Any]:
        """forward's arguments, a TensorSpec for each tensor."""

    @property
    def drawn(self) -> Hashable:
        """Names the values: equal names, equal values."""

    @property
    def digest_seed(self) -> int:
        """The seed of `digests`."""

    def digests(self) -> tuple[int, ...] | None:
        """hipwright.digest.digest of each tensor leaf; None where nobody has worked it out."""

    def chunks(self) -> Iterator[tuple[int, int, HostTensor]]:
        """(leaf, offset, bytes) for the span of every tensor leaf."""

    def slot(self, index: int) -> ChunkSource:
        """The inputs of another slot."""


class HostSource:
    """Inputs that the parent holds. trees: the arguments of each slot, as HostTensors."""

    def __init__(self, trees: Sequence[Tree], index: int = 0) -> None:
        self._trees, self._index = trees, index
        self._tree = trees[index]
        self.digest_seed = 1
        self.drawn: Hashable = (HostSource, id(trees), index)

    @property
    def arguments(self) -> list[Any]:
        """With a TensorSpec for each tensor."""
        return list(map_tensors(self._tree, lambda tensor: tensor.spec))

    def digests(self) -> None:
        """The worker's own, right after placing."""

    def chunks(self) -> Iterator[tuple[int, int, HostTensor]]:
        """The span of each leaf."""
        for leaf, tensor in enumerate(tensor_leaves(self._tree)):
            raw = _span(tensor)
            for offset in range(0, raw.size, CHUNK_BYTES):
                part = raw[offset : offset + CHUNK_BYTES]
                yield leaf, offset, HostTensor("uint8", (part.size,), (1,), 0, part)

    def slot(self, index: int) -> HostSource:
        """The tree of that slot."""
        return HostSource(self._trees, index)


def span_bytes(spec: TensorSpec) -> int:
    """Bytes from the first element to the last."""
    if 0 in spec.shape:
        return 0
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True))
    return int(extent * BITS[spec.dtype].itemsize)


def _span(tensor: HostTensor) -> Any:
    start = tensor.offset * BITS[tensor.dtype].itemsize
    return tensor.storage[start : start + span_bytes(tensor.spec)]
