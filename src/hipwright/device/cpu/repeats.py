"""Launches that repeat an earlier one of the same call in all that decides which memory a kernel accesses.

A network launches a kernel once for each of its layers, with other weights of the same sizes. A checked launch of many
millions of parameters takes a minute, and says of a second one what it said of the first: where its threads read and
write follows from geometry, scalars, sizes, alignment and whole numbers in memory, not from fractions. So, once the
checked launches of one launcher have taken `CHECKED_S`, repeats run in the build without checks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hipwright.device.cpu.arguments import BufferArgument
from hipwright.device.cpu.guarded import Dim3

CHECKED_S = 5.0
"""Processor seconds of checked launches from which repeats run without checks."""
ALIGNMENT = 16
"""Of an address, as far as an access may ask for it."""


@dataclass
class CheckedLaunches:
    """The launches of one launcher so far. seconds: processor time of those with checks."""

    seconds: float = 0.0
    _counts: dict[Hashable, Mapping[str, int]] = field(default_factory=dict)

    def repeated(self, kind: Hashable | None) -> Mapping[str, int] | None:
        """The counts of the checked launch that one of this kind repeats, where it need not be checked; else None."""
        return self._counts.get(kind) if kind is not None and self.seconds >= CHECKED_S else None

    def note(self, kind: Hashable | None, seconds: float, counts: Mapping[str, int]) -> None:
        """Adds a checked launch."""
        self.seconds += seconds
        if kind is not None:
            self._counts.setdefault(kind, counts)


def kind_of(
    kernel: str,
    geometry: tuple[Dim3, Dim3, int],
    slots: bytes,
    buffers: Sequence[BufferArgument],
    read_only: Set[int],
) -> Hashable | None:
    """What launches that access memory alike have in common; None where whole numbers in a buffer may decide that.

    slots: 8 bytes for each argument, of which those of buffers hold addresses. read_only: first bytes of regions.
    """
    if not all(one.tensor.dtype.is_floating_point for one in buffers):
        return None
    places = {one.index for one in buffers}
    scalars = tuple(slots[8 * i : 8 * i + 8] for i in range(len(slots) // 8) if i not in places)
    first: dict[int, int] = {}
    held = tuple(
        (
            one.index,
            one.tensor.dtype,
            one.region.size,
            (start := one.tensor.data_ptr() or one.region.start) - one.region.start,
            start % ALIGNMENT,
            first.setdefault(one.region.start, one.index),
            one.region.start in read_only,
        )
        for one in buffers
    )
    return kernel, geometry, scalars, held
