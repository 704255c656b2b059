"""What one call of a program does on the device: buffers, and launches, copies and fills in order. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Buffer:
    """Device memory. data: what it holds at first; None where the program does not say."""

    name: str
    size: int
    data: bytes | None = None


@dataclass(frozen=True)
class Address:
    """A place in a buffer, in bytes."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True)
class Launch:
    """A kernel's launch. arguments: addresses (None is a null pointer) and numbers, one a parameter."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    arguments: tuple[Address | int | float | bool | None, ...]


@dataclass(frozen=True)
class Copy:
    """Device memory to device memory."""

    to: Address
    source: Address
    size: int


@dataclass(frozen=True)
class Fill:
    """The bytes of one element, over and over."""

    to: Address
    element: bytes
    count: int


Step = Launch | Copy | Fill


@dataclass(frozen=True)
class Result:
    """One output: where it lies, as elements (shape, strides), and its dtype."""

    address: Address
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class Recording:
    """One call."""

    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
