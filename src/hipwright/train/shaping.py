"""Shaping terms of a reward: how well a verified program uses the machine, by counters or by its static record.

    roofline       the roofline's share of the time (measured, else of the static estimate)
    occupancy      waves that are resident, of those that a SIMD can hold (counter, else by registers and LDS)
    transactions   share of the moved bytes that was asked for (counter, else the width of vector accesses of 16 bytes)

The figures come from the profilers' one record (docs/profile.md, judging/counters.py) where counters are read, else
from the build for an AMD target. Verified programs alone have them, so that a wrong program gains nothing by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from hipwright.evaluation.features import WIDEST_LANE_ACCESS
from hipwright.records import Evaluation
from hipwright.targets import TARGETS

TERMS = {
    "roofline": ("roofline_fraction",),
    "occupancy": ("occupancy", "static_occupancy"),
    "transactions": ("coalescing", "static_transactions"),
}
"""The metrics of each term (`AnswerOutcome.metrics`), the most trusted first."""
WAVES = 8
"""Waves of a SIMD that count as full occupancy."""


def shaping_terms(metrics: Mapping[str, float]) -> dict[str, float]:
    """The value of each term that is known, from 0 to 1."""
    found = {}
    for term, names in TERMS.items():
        value = next((metrics[name] for name in names if name in metrics and isfinite(metrics[name])), None)
        if value is not None:
            found[term] = min(1.0, max(0.0, value))
    return found


def shaping_value(metrics: Mapping[str, float]) -> float:
    """The mean of the known terms, from 0 to 1; 0 where none is known."""
    known = shaping_terms(metrics)
    return sum(known.values()) / len(known) if known else 0.0


def static_record(evaluation: Evaluation) -> dict[str, float]:
    """{"static_occupancy", "static_transactions"} of the first build for an AMD target, each from 0 to 1.

    Occupancy: the lowest of the kernels. Transactions: the mean width of the kernels' widest vector accesses, of those
    that access memory. {} where nothing was built.
    """
    kernels = next(
        (
            result.build.kernels
            for name, result in sorted(evaluation.targets.items())
            if not TARGETS.is_host(name) and result.build is not None and result.build.kernels
        ),
        (),
    )
    if not kernels:
        return {}
    found = {"static_occupancy": min(1.0, min(one.occupancy for one in kernels) / WAVES)}
    widths = [one.widest_vmem_bytes for one in kernels if one.widest_vmem_bytes]
    if widths:
        mean = sum(min(one, WIDEST_LANE_ACCESS) for one in widths) / len(widths)
        found["static_transactions"] = mean / WIDEST_LANE_ACCESS
    return found
