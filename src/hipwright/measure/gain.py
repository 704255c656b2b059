"""What a program gains: its time on each target beside that of the reference, measured or by the same static model.

A measured gain is that of the paired timing against a baseline. Without a GPU both sides are ESTIMATES of
`measure.estimate`: the reference's are those of its own operators, one library call each, as eager launches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from statistics import median
from typing import Literal

from hipwright.records import Estimate, Record, TargetResult, Timing

GainKind = Literal["measured", "simulated", "estimate"]

UNFUSED = "unfused"
"""The baseline of an estimate: the reference's operators one by one."""

BOUNDS = {
    "launch": "the launch takes longer than the work",
    "memory": "memory bandwidth is the limit",
    "compute": "arithmetic is the limit",
    "latency": "too few loads are in flight to fill the memory bandwidth",
}
"""What each bound of an estimate or a roofline means."""


class Gain(Record, frozen=True, kw_only=True):
    """A program beside a baseline on one target. Microseconds a call.

    baseline: "eager", "compile" or UNFUSED. factor: baseline / program, above 1 where the program is faster; interval:
    95 %, None for an estimate. bound: what limits the program, "" where it is not known.
    """

    target: str
    kind: GainKind
    baseline: str
    baseline_us: float
    program_us: float
    factor: float
    interval: tuple[float, float] | None = None
    bound: str = ""


def gains(results: Mapping[str, TargetResult], reference: Mapping[str, Estimate]) -> list[Gain]:
    """By target, the measured gains where there are any, else the estimated one.

    reference: the estimates of the unfused reference by target.
    """
    found: list[Gain] = []
    for name, result in results.items():
        if result.timing is not None:
            found += _measured(name, result.timing)
        elif result.estimate is not None and name in reference and result.estimate.microseconds > 0:
            found.append(_estimated(result.estimate, reference[name]))
    return found


def _measured(target: str, timing: Timing) -> list[Gain]:
    return [
        Gain(
            target=target,
            kind="simulated" if timing.simulated else "measured",
            baseline=one.baseline,
            baseline_us=round(1e3 * median(one.baseline_ms), 4),
            program_us=round(1e3 * timing.median_ms, 4),
            factor=one.speedup,
            interval=one.interval,
            bound=timing.bound,
        )
        for one in timing.versus.values()
        if one.baseline_ms
    ]


def _estimated(program: Estimate, reference: Estimate) -> Gain:
    return Gain(
        target=program.target,
        kind="estimate",
        baseline=UNFUSED,
        baseline_us=reference.microseconds,
        program_us=program.microseconds,
        factor=round(reference.microseconds / program.microseconds, 4),
        bound=program.bound,
    )


def mean_microseconds(estimates: Mapping[str, Estimate]) -> float | None:
    """The geometric mean over the targets, as scores of searches are; None without an estimate."""
    times = [log(one.microseconds) for one in estimates.values() if one.microseconds > 0]
    return exp(sum(times) / len(times)) if times else None


def describe_factor(factor: float) -> str:
    """A factor in words.

    >>> describe_factor(3.93), describe_factor(0.5), describe_factor(1.004)
    ('3.9x faster', '2x slower', 'no faster')
    """
    if 0.99 < factor < 1.01:
        return "no faster"
    if factor < 1:
        return f"{1 / factor:.2g}x slower" if factor > 0.1 else f"{1 / factor:.0f}x slower"
    return f"{factor:.2g}x faster" if factor < 10 else f"{factor:.0f}x faster"
