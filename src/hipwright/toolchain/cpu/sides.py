"""Sides: what the device headers do for AMD and for NVIDIA, compiled for the cpu target.

A device header chooses between targets where their speed differs; results do not. A program can tell the sides apart
only by names that give the choice away, and then each side that it can tell is built and judged: on the cpu target an
unnamed side is compiled, which is neither.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Side = Literal["", "amd", "nvidia"]
DEFINES = {"": (), "amd": ("-DHW_AMD_SIDE",), "nvidia": ("-DHW_NVIDIA_SIDE",)}
"""The compiler's arguments for a side (hipwright/target.h, matrix_cores.h, tensor_cores.h)."""

_TELLING = re.compile(
    r"\b(?:GEMM_MMA|GEMM_MFMA|ROW_CACHE|row_cache_rank|row_cache_pitch|is_vector_aligned|is_known_at_most|"
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


def target_sides(hip: str) -> tuple[TargetSide, ...]:
    """The sides that a source can tell from the one that every program is judged on, waves of 64 without a side."""
    told = set(_TELLING.findall(hip))
    if not told:
        return ()
    sides = [TargetSide(32, "nvidia" if "GEMM_MMA" in told else "amd")]
    if "GEMM_MFMA" in told or _WAVE.search(hip):
        sides.append(TargetSide(64, "amd"))
    if _WAVE.search(hip):
        sides.append(TargetSide(32, "amd" if "GEMM_MMA" in told else ""))
    return tuple(sides)
