"""Inputs to be placed on a device: the argument of `verify.gpu.loaded.LoadedProgram.place`. Does not import torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Protocol

from hipwright.records import TensorSpec
from hipwright.tensors import BITS, HostTensor
from hipwright.verify.gpu.bridge.parent import BridgedHost

CHUNK_BYTES = 64 << 20


class ChunkSource(Protocol):
    """Inputs that are placed on the device chunk by chunk (`hipwright.verify.gpu.reference_handles.InputSource`)."""

    @property
    def host(self) -> BridgedHost | None:
        """The process that has the values, where it can put them into a bridge."""

    def bridged(self, bridge: int, leaf: int, offset: int, bytes_: int) -> None:
        """Puts some bytes of a leaf's span into a bridge of `host`."""

    @property
    def arguments(self) -> list[Any]:
        """forward's arguments, a TensorSpec for each tensor."""

    @property
    def drawn(self) -> Hashable:
        """Identifies the values: equal names, equal values."""

    @property
    def digest_seed(self) -> int:
        """The seed of `digests`."""

    def digests(self) -> tuple[int, ...] | None:
        """`hipwright.digest.digest` of each tensor leaf; None where it is not known."""

    def chunks(self) -> Iterator[tuple[int, int, HostTensor]]:
        """(leaf, offset, bytes) for the span of every tensor leaf."""

    def slot(self, index: int) -> ChunkSource:
        """The inputs of another slot."""


def span_bytes(spec: TensorSpec) -> int:
    """Bytes from the first element to the last."""
    if 0 in spec.shape:
        return 0
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True))
    return int(extent * BITS[spec.dtype].itemsize)
