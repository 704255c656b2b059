"""A convolution as a matrix product: its sizes, axes and phases (see implicit_gemm.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from hipwright.engine.ir.index import Ix, divide, ix, product
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.gemm.scope import GemmSpec


@dataclass(eq=False)
class Window(GemmSpec):
    """A convolution's product: space is [groups * phases, outputs, positions of a phase].

    flattened: an input is found by its index in the flattened image; padded_axes: those along which a tap may be
    outside the input.
    """

    batch: Ix
    axes: list[ConvAxis]
    groups: int
    channels: int
    outputs: int
    transposed: bool
    flattened: bool
    padded_axes: list[int]

    @property
    def taps(self) -> int:
        """Taps of all phases."""
        return prod(a.kernel for a in self.axes)

    @property
    def phases(self) -> int:
        """1 unless transposed with a stride."""
        return prod(a.phases for a in self.axes)

    @property
    def phase_positions(self) -> list[Ix]:
        """Positions of the largest phase along each axis."""
        return phase_positions(self.axes)

    @property
    def area(self) -> Ix:
        """Outputs of an image and channel."""
        return product([a.out for a in self.axes])

    @property
    def positions(self) -> Ix:
        """Columns of a phase."""
        return self.space[2]

    @property
    def coordinates(self) -> list[int]:
        """The axes whose coordinate is needed in the loop over k."""
        return self.padded_axes if self.flattened else list(range(len(self.axes)))

    @property
    def shape(self) -> list[Ix]:
        """The shape in which the kernel walks the output: neighbours within a phase are not contiguous in memory."""
        places = [self.area] if self.phases == 1 else [a.out for a in self.axes]
        return [self.batch, ix(self.groups * self.outputs), *places]


def phase_positions(axes: Sequence[ConvAxis]) -> list[Ix]:
    """Positions of the largest phase along each axis."""
    return [a.out if a.phases == 1 else divide(a.out + (a.phases - 1), ix(a.phases)) for a in axes]


def taps_of(axis: ConvAxis) -> int:
    """The taps of a phase along an axis, the most."""
    return ceil(axis.kernel / axis.phases)
