"""Inputs that a test holds on the host, and results read back whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from hipwright.records import TensorSpec
from hipwright.tensors import BITS, HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.verify.gpu.chunk_source import CHUNK_BYTES, span_bytes
from hipwright.verify.gpu.connection import RunInfo
from hipwright.verify.gpu.loaded import LoadedProgram


class HostSource:
    """Inputs that the parent holds. trees: the arguments of each slot, as HostTensors."""

    def __init__(self, trees: Sequence[Tree], index: int = 0) -> None:
        self._trees, self._index = trees, index
        self._tree = trees[index]
        self.digest_seed = 1
        self.host = None
        self.drawn: Hashable = (HostSource, id(trees), index)

    @property
    def arguments(self) -> list[Any]:
        """With a TensorSpec for each tensor."""
        return list(map_tensors(self._tree, lambda tensor: tensor.spec))

    def bridged(self, bridge: int, leaf: int, offset: int, bytes_: int) -> None:
        """No host has these values."""
        raise AssertionError

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


def _span(tensor: HostTensor) -> Any:
    start = tensor.offset * BITS[tensor.dtype].itemsize
    return tensor.storage[start : start + span_bytes(tensor.spec)]


def read_whole(loaded: LoadedProgram, run: RunInfo) -> Tree:
    """A result on the device as host tensors, assembled from its chunks."""
    raw: dict[int, list[bytes]] = {}
    for leaf, _, chunk in loaded.chunks(run):
        raw.setdefault(leaf, []).append(chunk.storage.tobytes())
    numbers = iter(range(1 << 30))

    def one(node: Any) -> Any:
        if isinstance(node, TensorSpec):
            data = np.frombuffer(b"".join(raw.get(next(numbers), [])), np.uint8).copy()
            return HostTensor(node.dtype, node.shape, node.stride, 0, data)
        if isinstance(node, (tuple, list)):
            return type(node)(map(one, node))
        return {key: one(item) for key, item in node.items()} if isinstance(node, dict) else node

    return one(run.specs)
