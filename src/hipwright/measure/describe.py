"""Descriptions of measured figures that name the machine they belong to."""

from __future__ import annotations

from hipwright.records import Timing
from hipwright.targets import TARGETS


def describe_device(target: str, timing: Timing) -> str:
    """The machine that a figure belongs to: "HIP on NVIDIA H200" for the cuda target, else the device's own name."""
    measured = TARGETS.get(target)
    if measured is None or measured.runtime is None or not measured.runtime.measured_as:
        return timing.device
    return f"{measured.runtime.measured_as} {timing.device.removeprefix(f'{measured.maker} ')}"


def describe_interval(speedup: float, interval: tuple[float, float]) -> str:
    """A speedup with its interval: "1.52× (1.49 to 1.55)"; more digits where the interval is narrow."""
    low, high = interval
    digits = 3 if high - low < 0.02 and high < 10 else 2
    return f"{speedup:.{digits}f}× ({low:.{digits}f} to {high:.{digits}f})"
