"""The kernel signature as launchers read it (implemented by program.Signature), and the layout of its scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

Argument: TypeAlias = Any
"""What a launch may pass: a torch.Tensor, int, float, bool or None."""

SCALAR_FORMATS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "bfloat16": "H",
    "float32": "f",
    "float64": "d",
}
"""The format of each scalar kind for `struct`; bfloat16 as its 16 bits."""


class KernelParam(Protocol):
    """A parameter of a kernel."""

    @property
    def name(self) -> str:
        """The parameter's name."""

    @property
    def pointer(self) -> bool:
        """Whether it is a pointer."""

    @property
    def kind(self) -> str:
        """A torch dtype name, uint16/uint32/uint64, or "void"."""


class KernelSignature(Protocol):
    """A kernel's name and parameters."""

    @property
    def name(self) -> str:
        """The kernel's name."""

    @property
    def params(self) -> Sequence[KernelParam]:
        """The parameters in order."""
