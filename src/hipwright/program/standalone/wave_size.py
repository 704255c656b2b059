"""What a CUDA or HIP source assumes of the number of lanes of a warp: found in the text, named by line.

CUDA warps have 32 lanes. AMD's CDNA GPUs have waves of 64, RDNA of 32 (or 64). Each finding says what the line assumes
and what becomes of it: a CUDA source keeps its groups of 32 lanes on every target, a HIP source is judged as written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hipwright.program.convert.cpp_text import uncomment

_NAMED_32 = r"\w*(?:[Ww]arp|WARP|[Ww]ave|WAVE)\w*[\s=(]+32\b"
_RULES = (
    (r"\b__\w+_sync\s*\(\s*(?:0[xX](?:[fF]{8}|[fF]{16})[uUlL]*|~\s*0[uU]?|\w*FULL\w*MASK\w*)", "full mask"),
    (r"\b__(?:shfl(?:_up|_down|_xor)?|ballot|any|all|match_any|match_all|reduce_\w+)(?:_sync)?\s*\(", "warp operation"),
    (r"\b__activemask\s*\(", "warp operation"),
    (rf"\b(?:define|constexpr\s+\w+|const\s+(?:unsigned\s+)?int)\s+{_NAMED_32}", "32"),
    (r"\bwarpSize\b", "warpSize"),
    (r"(?:&\s*(?:31|0[xX]1[fF])|%\s*32)[uU]?\b", "lane number"),
    (r"(?:>>\s*5|/\s*32)[uU]?\b", "warp number"),
    (r"\b(?:int|unsigned|auto)\s+\w+\s*=\s*16\s*;\s*\w+\s*>=?\s*[01]\s*;", "steps from 16"),
)
_WHAT = {
    "full mask": "a mask of all 32 lanes",
    "warp operation": "an operation of one warp",
    "32": "a warp of 32 lanes by name",
    "warpSize": "warpSize",
    "lane number": "a lane number below 32",
    "warp number": "a warp of 32 threads",
    "steps from 16": "a reduction over 32 lanes",
}
_CUDA = {
    "warpSize": "is 32 on every target",
    "lane number": "stays: groups of 32 lanes on every target",
    "warp number": "stays: groups of 32 lanes on every target",
}
_HIP = {
    "warp operation": "spans the target's whole wave, 32 or 64 lanes, unless a width is given",
    "warpSize": "is the target's, 32 or 64",
    "full mask": "is left out: HIP's operations span the target's whole wave",
}


@dataclass(frozen=True)
class WaveAssumption:
    """One assumption. what: in words; becomes: what hipwright makes of it; text: the line's own."""

    line: int
    what: str
    becomes: str
    text: str

    def describe(self) -> str:
        """The assumption in a sentence."""
        return f"line {self.line}: {self.what} ({self.text}): {self.becomes}"


def wave_assumptions(text: str, dialect: str) -> tuple[WaveAssumption, ...]:
    """Every assumption of a source, by line; the first rule that a line matches names it. dialect: "cuda" or "hip"."""
    found = []
    for number, line in enumerate(uncomment(text).split("\n"), 1):
        rule = next((name for pattern, name in _RULES if re.search(pattern, line)), None)
        if rule is not None:
            found.append(WaveAssumption(number, _WHAT[rule], _becomes(rule, dialect), " ".join(line.split())[:70]))
    return tuple(found)


def _becomes(rule: str, dialect: str) -> str:
    if dialect == "cuda":
        return _CUDA.get(rule, "spans 32 lanes on every target, half of a wave of 64")
    return _HIP.get(rule, "is judged as written, in waves of 32 and of 64")
