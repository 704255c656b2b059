"""The state that several calls in a row carry from one to the next, for each run of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hipwright.tensors import HostTensor, Tree

Buffers = Mapping[str, HostTensor]


@dataclass(frozen=True)
class ReferenceStates:
    """The state tables that the reference starts from: in its own dtypes, in float64, and for each nudged run.

    They are the same but for the nudge, until a call has changed buffers: each run then goes on with its own, rounded
    to the task's dtype, so that the error of an honest program may grow as the native one's does.
    """

    native: Tree
    exact: Tree
    nudged: tuple[Tree, ...]

    def followed_by(self, after: BuffersAfter, carried: frozenset[str]) -> ReferenceStates:
        """The states of the next call. carried: the buffers that keep what the last call left in them."""
        return ReferenceStates(
            _with_buffers(self.native, after.native, carried),
            _with_buffers(self.exact, after.exact, carried),
            tuple(_with_buffers(*pair, carried) for pair in zip(self.nudged, after.nudged, strict=True)),
        )


@dataclass(frozen=True)
class BuffersAfter:
    """The buffers after a call, by path, of each run of the reference."""

    native: Buffers
    exact: Buffers
    nudged: tuple[Buffers, ...]

    def changed(self, before: Buffers) -> frozenset[str]:
        """Paths of the buffers that the native run changed."""
        return frozenset(path for path, tensor in self.native.items() if not same_bits(tensor, before[path]))


def same_bits(a: HostTensor, b: HostTensor) -> bool:
    """Whether two tensors of one form hold the same bits."""
    return bool(np.array_equal(_raw(a), _raw(b)))


def _raw(tensor: HostTensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.bits()).view(np.uint8)


def _with_buffers(state: Tree, after: Buffers, carried: frozenset[str]) -> Tree:
    buffers = {
        path: _rounded(after[path], tensor) if path in carried else tensor for path, tensor in state["buffers"].items()
    }
    return {**state, "buffers": buffers}


def _rounded(value: HostTensor, like: HostTensor) -> HostTensor:
    """A buffer in the dtype that the model keeps it in."""
    return value if value.dtype == like.dtype else HostTensor.from_f64(value.to_f64(), like)
