"""The processor of this machine: the HIP source compiled for it, with threads as fibers."""

from __future__ import annotations

from hipwright.targets.base import Target

CPU = Target(name="cpu", kind="host", proves="values, bounds, races, missing barriers, determinism", waves=(64, 32))
