"""The loaded kernels of a code object, and the launches that a launcher has checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hipwright.device.gpu.pack import ArgumentLayout

Dim3 = tuple[int, int, int]
Geometry = tuple[int, Dim3, Dim3, int]
"""The kernel's handle, blocks, threads of a block, bytes of dynamic LDS."""


@dataclass
class LoadedKernel:
    """One kernel after its first launch. checked: geometries that passed the checks."""

    function: int
    layout: ArgumentLayout
    static_lds: int
    max_threads: int
    names: tuple[str, ...]
    checked: set[tuple[Dim3, Dim3, int]]
    lds_allowed: int = 48 << 10  # bytes of dynamic LDS that need no opt-in


class Geometries(dict[tuple[Any, Any, int], Geometry]):
    """The checked launches of one kernel by (grid, block, LDS bytes) as a plan writes them; KeyError for others.

    Equal keys are one key: 4.0 blocks, which a first launch refuses, pass where 4 were launched.
    """

    def __init__(self, kernels: Mapping[str, LoadedKernel], name: str) -> None:
        super().__init__()
        self._kernels, self._name = kernels, name

    def __missing__(self, key: tuple[Any, Any, int]) -> Geometry:
        known = self._kernels[self._name]
        grid, block = ((n, 1, 1) if isinstance(n, int) else (*n, 1, 1)[:3] for n in key[:2])
        if (grid, block, key[2]) not in known.checked:
            raise KeyError(key)
        return self.setdefault(key, (known.function, grid, block, key[2]))
