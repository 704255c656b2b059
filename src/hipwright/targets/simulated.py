"""AMD GPUs in software: the machine code of an offline target, executed instruction by instruction on the processor."""

from __future__ import annotations

from hipwright.targets.base import Target
from hipwright.targets.gfx90a import GFX90A
from hipwright.targets.gfx942 import GFX942
from hipwright.targets.gfx950 import GFX950
from hipwright.targets.gfx1100 import GFX1100


def simulated(target: Target) -> Target:
    """The target that executes the machine code of an offline target."""
    return Target(
        name=f"{target.name}@sim",
        kind="simulated",
        proves="the machine code's values, waits, registers, bounds, LDS races, in software",
        vendor=target.vendor,
        architectures=target.architectures,
        waves=target.waves,
    )


SIMULATED = tuple(simulated(target) for target in (GFX90A, GFX942, GFX950, GFX1100))
