"""How long and how exactly a comparison is timed (docs/measurement.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hipwright.measure.clocks import ABSOLUTE_MS


@dataclass(frozen=True)
class TimingSettings:
    """Milliseconds, and counts.

    block_ms: length of a block, on every side. warm_ms: least warm-up of a side. quads: before the first look at the
    precision; budget_ms: device time of all timed blocks together. Sampling ends when the sampled half width is at most
    max(half_width, effect_share * |log speedup|) against every baseline. drop_below: a candidate slower than this
    speedup against the first baseline in all of the first 8 pairs is dropped. empties: empty blocks of each side;
    discard: most quads run before those that count; alone: blocks for the neighbours' rule. latency_rounds: 0 measures
    no latency. resamples: of the bootstrap. same_worker: candidates run in one process after another, or in some
    that are alike, and the empty block is measured for the first of them alone. clocks_ms: what the device's clock and
    the host's may differ by on short blocks.
    """

    block_ms: float = 1.5
    warm_ms: float = 20.0
    quads: int = 8
    budget_ms: float = 1000.0
    half_width: float = 0.004
    effect_share: float = 0.1
    drop_below: float = 0.8
    empties: int = 12
    discard: int = 2
    alone: int = 6
    latency_rounds: int = 8
    resamples: int = 2000
    same_worker: bool = False
    clocks_ms: float = ABSOLUTE_MS


FULL = TimingSettings()
LONG = replace(FULL, block_ms=8 * FULL.block_ms)
"""For what was doubted: how late a busy machine wakes does not grow with a block."""
SCORE = TimingSettings(
    block_ms=0.3,
    warm_ms=1.0,
    quads=4,
    budget_ms=10.0,
    half_width=0.03,
    empties=3,
    discard=1,
    alone=3,
    latency_rounds=0,
    resamples=500,
    same_worker=True,
    clocks_ms=0.03,
)
