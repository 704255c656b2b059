"""Sides: what the device headers do for AMD and for NVIDIA, compiled for the cpu target.

A device header chooses between targets where their speed differs; results do not. A program can tell the sides apart
only by names that give the choice away, and then each side that it can tell is built and judged. Where it can tell
none, the cpu target compiles an unnamed side, which is neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Side = Literal["", "amd", "nvidia"]
DEFINES = {"": (), "amd": ("-DHW_AMD_SIDE",), "nvidia": ("-DHW_NVIDIA_SIDE",)}
"""The compiler's arguments for a side (hipwright/target.h, matrix_cores.h, tensor_cores.h)."""

_VENDOR = re.compile(
    r"\b(?:ROW_CACHE|row_cache_rank|row_cache_pitch|is_vector_aligned|are_short_rows_aligned|is_known_at_most|"
    r"vector_test_pays)\b"
)
_WAVE = re.compile(
    r"\b(?:warpSize|__ballot\w*|__activemask|__shfl\w*|__any\w*|__all\w*|\w*wavefrontsize|\w*mbcnt\w*)\b"
)


class TargetSide(NamedTuple):
    """A side, and the lanes of a wave."""

    wave: int
    side: Side

    def describe(self) -> str:
        """As messages have it."""
        vendor = {"": "", "amd": "as for AMD, ", "nvidia": "as for NVIDIA, "}[self.side]
        return f"compiled {vendor}with waves of {self.wave}, "


PLAIN, CDNA, NVIDIA, RDNA = TargetSide(64, ""), TargetSide(64, "amd"), TargetSide(32, "nvidia"), TargetSide(32, "amd")


def target_sides(hip: str) -> tuple[TargetSide, ...]:
    """The sides that a source can tell apart, each for a checked build; none where it can tell none.

    RDNA is left out where the source sees no other answers there than on another side or on the plain one, which the
    fast build has where matrix units tell (their emulation is slow).
    """
    seen = {side: _seen(hip, side) for side in (PLAIN, CDNA, NVIDIA, RDNA)}
    if not seen[PLAIN]:
        return ()
    others = (seen[PLAIN], seen[CDNA], seen[NVIDIA]) if "GEMM_MFMA" in hip else (seen[CDNA], seen[NVIDIA])
    return (CDNA, NVIDIA) if seen[RDNA] in others else (CDNA, NVIDIA, RDNA)


def _seen(hip: str, side: TargetSide) -> tuple[bool | int, ...]:
    """What a source that can tell sides sees of one: the vendor, the matrix units, the lanes."""
    seen: list[bool | int] = []
    if _VENDOR.search(hip):
        seen.append(side.side == "amd")
    if "GEMM_MMA" in hip:
        seen.append(side == NVIDIA)
    if "GEMM_MFMA" in hip:
        seen.append(side == CDNA)
    if seen and _WAVE.search(hip):
        seen.append(side.wave)
    return tuple(seen)


def sides_to_build(
    hip: str, kinds: Sequence[tuple[int, bool]], *, every: bool
) -> tuple[dict[tuple[int, bool], Side], tuple[TargetSide, ...]]:
    """The side of each build, and the other sides that are judged besides, in a checked build each.

    kinds: (wave size, checked) of the builds, the checked ones alone where a wave is run for information; such a build
    is left out where other sides take its place. every: whether other sides are judged at all.
    """
    told = target_sides(hip)
    judged = {wave for wave, checked in kinds if not checked}
    first = {wave: next((one for one in told if one.wave == wave), TargetSide(wave, "")) for wave in judged}
    others = tuple(one for one in told if one not in first.values()) if every else ()
    builds: dict[tuple[int, bool], Side] = {}
    for wave, checked in kinds:
        if wave in judged:
            builds[wave, checked] = first[wave].side if checked or "GEMM_MFMA" not in hip else ""
        elif not others:
            builds[wave, checked] = ""
    return builds, others
