"""Paired timing that is robust against a candidate's manipulation (docs/measurement.md).

`time_pairs` decides everything in the parent process: which side runs when, how often, and whether the clocks agree.
Sides only run calls (hipwright.device.timed_side). The result is a `Timing` and, where the figures must not be used, a
`Verdict`: UNTRUSTED when the clocks disagree, IMPOSSIBLE when the candidate is faster than its work allows. Both are
measured again before they are reported.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, median

import numpy as np
from msgspec import structs

from hipwright.device.timed_side import LaunchMode, Policy, TimedSide
from hipwright.measure.clocks import Doubt, believed, forged, gap, hidden, slowed
from hipwright.measure.describe import describe_interval
from hipwright.measure.roofline import Floor
from hipwright.measure.rounds import Memory, Rounds, UnsoundClock, grow, latencies
from hipwright.measure.settings import FULL, SCORE, TimingSettings
from hipwright.measure.stats import Ratio, paired_ratio
from hipwright.records import CandidateForm, Timing, Verdict, Versus

PLACEMENT = 0.004
"""Standard deviation of the log ratio of two processes that run the same thing: buffers and code are placed differently
in each process, and no number of samples shows it. Every interval is widened by it. It is chosen by A/A comparisons on
an H200 (`python -m benchmarks aa`; docs/results/measurements.md).
"""

LOOK_LEVEL = 0.97
"""Confidence of the sampled part: repeated looks at the data make a 95 % interval miss more often than in 5 % of cases.
"""

__all__ = ["FULL", "SCORE", "TimingResult", "TimingSettings", "remeasure", "time_pairs"]


MOST_QUADS = 400
WARM_CALLS = 3
HOSTILE_BLOCK = 4
"""Blocks of `modelnew` candidates are this many times as long, so that the time of a message is a small share of a
block, and a forged clock shows.
"""


@dataclass(frozen=True)
class TimingResult:
    """timing: None only when a side reported an invalid time. verdict: None when the figures can be used."""

    timing: Timing | None
    verdict: Verdict | None = None

    @property
    def doubted(self) -> bool:
        """Whether the clocks disagree by the machine's fault, which says nothing about the candidate."""
        return self.verdict is not None and self.verdict.status == "untrusted" and self.verdict.fault == "device"


@dataclass(frozen=True)
class PairedComparison:
    """One comparison: the sides, the device, and the rules."""

    candidate: TimedSide
    baselines: Sequence[TimedSide]
    settings: TimingSettings
    device: str
    architecture: str
    form: CandidateForm
    floor: Floor | None
    policy: Policy
    prepared: LaunchMode
    notes: tuple[str, ...]
    memory: Memory | None = None

    @property
    def sides(self) -> tuple[TimedSide, ...]:
        """The candidate, then the baselines."""
        return (self.candidate, *self.baselines)


def time_pairs(
    candidate: TimedSide,
    baselines: Sequence[TimedSide],
    *,
    settings: TimingSettings = FULL,
    floor: Floor | None = None,
    device: str = "",
    architecture: str = "",
    form: CandidateForm = "program",
    memory: Memory | None = None,
    seed: int | None = None,
) -> TimingResult:
    """Times the candidate against every baseline in turn. The first baseline ranks: a candidate clearly slower than it
    is dropped.

    memory: the state of baselines that stay open for many candidates; kept by the caller, filled here. seed: None draws
    a secret one; give it only to repeat a simulation. Raises the sides' errors.
    """
    if not baselines:
        raise ValueError("a candidate is timed against at least one baseline")
    rng = np.random.default_rng(secrets.randbits(64) if seed is None else seed)
    started = time.monotonic()
    policy, prepared, notes = _prepare(candidate, baselines)
    if form == "modelnew":
        settings = replace(
            settings, block_ms=HOSTILE_BLOCK * settings.block_ms, budget_ms=HOSTILE_BLOCK * settings.budget_ms
        )
    bench = PairedComparison(
        candidate, baselines, settings, device, architecture, form, floor, policy, prepared, notes, memory
    )
    result = _measure(bench, rng)
    if result.verdict is not None:
        first, result = result.verdict, _measure(replace(bench, memory=None), rng)
        if result.timing is not None:
            note = f"measured twice: the first time was {first.status} ({first.message})"
            result = replace(result, timing=_noted(result.timing, note))
    if result.timing is None:
        return result
    return replace(result, timing=structs.replace(result.timing, seconds=round(time.monotonic() - started, 4)))


def remeasure(
    first: TimingResult,
    open_sides: Callable[[], AbstractContextManager[tuple[TimedSide, Sequence[TimedSide]]]],
    *,
    settings: TimingSettings = FULL,
    floor: Floor | None = None,
    device: str = "",
    architecture: str = "",
    form: CandidateForm = "program",
) -> TimingResult:
    """Measures a winner again in a fresh process on fresh inputs; this is its final figure.

    open_sides: a context that yields (candidate, baselines), the candidate in a new process, all on new inputs. Where
    the two measurements disagree (their intervals do not touch) the notes hold both.
    """
    with open_sides() as (candidate, baselines):
        again = time_pairs(
            candidate,
            baselines,
            settings=settings,
            floor=floor,
            device=device,
            architecture=architecture,
            form=form,
        )
    if first.timing is None or again.timing is None:
        return again
    notes = ["measured again in a fresh process, on fresh inputs: the figures are of the second measurement"]
    for name, new in again.timing.versus.items():
        old = first.timing.versus.get(name)
        if old is not None and (old.interval[1] < new.interval[0] or new.interval[1] < old.interval[0]):
            notes.append(
                f"the two measurements against {name} disagree: first {_words(old)}, in a fresh process {_words(new)}"
            )
    return replace(again, timing=_noted(again.timing, *notes))


def _prepare(candidate: TimedSide, baselines: Sequence[TimedSide]) -> tuple[Policy, LaunchMode, tuple[str, ...]]:
    """Prepares all sides, baselines first.

    Where one cannot be captured, all launch on the stream, and the notes say so.
    """
    sides = [*baselines, candidate]
    prepared = [side.prepare(WARM_CALLS) for side in sides]
    loose = [(side, done) for side, done in zip(sides, prepared, strict=True) if done.policy != "graph"]
    if not loose:
        return "graph", prepared[-1], ()
    side, done = loose[0]
    why = f"{side.name} is not captured in a graph: {done.why or 'not asked for'}"
    for other, its in zip(sides, prepared, strict=True):
        if its.policy == "graph":
            other.stream(why)
    return "stream", prepared[-1], (f"all sides launch on the stream: {why}",)


def _measure(bench: PairedComparison, rng: np.random.Generator) -> TimingResult:
    settings = bench.settings
    rounds = Rounds(bench.sides, rng)
    try:
        rounds.warm(settings, bench.memory, bench.policy)
        stopped = grow(
            rounds, settings.quads, settings.budget_ms, lambda pairs: _enough(rounds, settings, pairs), most=MOST_QUADS
        )
        found = _first_doubt(rounds, settings, bench.form)
    except UnsoundClock as lie:
        block = {"device_ms": repr(lie.block.device_ms), "host_ms": repr(lie.block.host_ms)}
        unsound = Doubt("sound", f"a block is said to last {lie}", {})
        return TimingResult(None, _untrusted(bench, lie.side, unsound, block))
    timing = _timing(bench, rounds, stopped)
    if found is not None:
        side, why = found
        return TimingResult(timing, _untrusted(bench, side, why, dict(why.numbers)))
    if bench.floor is not None and timing.median_ms < bench.floor.lowest_ms:
        return TimingResult(timing, _impossible(bench.floor, timing.median_ms))
    if settings.latency_rounds and stopped != "loser":
        timing = _with_latency(timing, bench, rng)
    return TimingResult(timing)


def _enough(rounds: Rounds, settings: TimingSettings, pairs: int) -> str:
    """Why sampling can end after this many pairs; "" to continue."""
    own = rounds.per_call(0)
    if pairs >= 8 and all(
        base < settings.drop_below * mine for mine, base in zip(own[:8], rounds.per_call(1)[:8], strict=True)
    ):
        return "loser"
    if pairs < 2 * settings.quads:
        return ""
    for index in range(1, len(rounds.sides)):
        ratio = _sampled(own, rounds.per_call(index), settings)
        if ratio.half_width > max(settings.half_width, settings.effect_share * abs(float(np.log(ratio.value)))):
            return ""
    return "precise"


def _sampled(own: Sequence[float], base: Sequence[float], settings: TimingSettings) -> Ratio:
    return _ratio(tuple(own), tuple(base), settings.resamples)


@lru_cache(maxsize=16)  # the result of the last look is the one that is reported
def _ratio(own: tuple[float, ...], base: tuple[float, ...], resamples: int) -> Ratio:
    return paired_ratio(own, base, level=LOOK_LEVEL, resamples=resamples)


def _first_doubt(rounds: Rounds, settings: TimingSettings, form: CandidateForm) -> tuple[int, Doubt] | None:
    """The first side whose clocks are not trusted and why: baselines before the candidate.

    Rules that only host code could break are checked for `modelnew` candidates alone.
    """
    count = len(rounds.sides)
    overheads = list(rounds.overheads)
    overheads[0] = believed(overheads[0], overheads[1:])
    for index in (*range(1, count), 0):
        least_ms = settings.clocks_ms if form == "program" else FULL.clocks_ms
        found = hidden(rounds.blocks[index], overheads[index], least_ms)
        if found is not None:
            return index, found
    if form == "program":
        return None
    found = forged(rounds.blocks[0], overheads[0], rounds.blocks[1], overheads[1])
    if found is not None:
        return 0, found
    for index in range(1, count):
        after = rounds.after[index]
        found = slowed(after[-max(6, len(after) // 3) :], rounds.alone(index, settings.alone)) if after else None
        if found is not None:
            return 0, found
    return None


def _untrusted(bench: PairedComparison, side: int, why: Doubt, evidence: dict[str, float] | dict[str, str]) -> Verdict:
    """The verdict on clocks that disagree.

    A program has no host code, so only the machine or a baseline can be the cause.
    """
    hostile = bench.form == "modelnew" and side == 0
    name = bench.sides[side].name
    return Verdict(
        status="untrusted",
        fault="candidate" if hostile else "device",
        stage="measure",
        message=f"the clocks of {name} disagree ({why.rule}): {why.why}",
        evidence={"side": name, "rule": why.rule, **evidence},
    )


def _impossible(floor: Floor, median_ms: float) -> Verdict:
    return Verdict(
        status="impossible",
        fault="candidate",
        stage="measure",
        message=f"{median_ms:.4g} ms a call, below {floor.lowest_ms:.4g} ms: the least that its work can take here",
        evidence={
            "median_ms": median_ms,
            "lowest_ms": floor.lowest_ms,
            "roofline_ms": floor.roofline_ms,
            "bytes": floor.bytes,
            "lowest_bytes": floor.lowest_bytes,
            "bound": floor.bound,
        },
    )


def _timing(bench: PairedComparison, rounds: Rounds, stopped: str) -> Timing:
    own = rounds.per_call(0)
    median_ms, floor = median(own), bench.floor
    overhead = believed(rounds.overheads[0], rounds.overheads[1:])
    return Timing(
        device=bench.device,
        architecture=bench.architecture,
        policy=bench.policy,
        median_ms=median_ms,
        versus={
            side.name: _versus(side.name, own, rounds.per_call(index), bench.settings, stopped)
            for index, side in enumerate(bench.sides)
            if index
        },
        clock_gap=gap(rounds.blocks[0], overhead),
        floor_ms=floor.roofline_ms if floor else None,
        bound=floor.bound if floor else "",
        roofline_fraction=floor.roofline_ms / median_ms if floor else None,
        own_time=bench.prepared.own_time,
        prepare_ms=bench.prepared.prepare_ms,
        notes=bench.notes,
    )


def _versus(name: str, own: list[float], base: list[float], settings: TimingSettings, stopped: str) -> Versus:
    systematic = NormalDist().inv_cdf(0.975) * PLACEMENT
    ratio = _sampled(own, base, settings).widened(systematic)
    return Versus(
        baseline=name,
        speedup=ratio.speedup,
        interval=(1 / ratio.high, 1 / ratio.low),
        samples_ms=tuple(own),
        baseline_ms=tuple(base),
        pairs=ratio.pairs,
        stopped=stopped,
    )


def _with_latency(timing: Timing, bench: PairedComparison, rng: np.random.Generator) -> Timing:
    """Adds end-to-end latencies, measured in turn; long calls are measured fewer times."""
    slow = max([timing.median_ms, *(median(versus.baseline_ms) for versus in timing.versus.values())])
    rounds = bench.settings.latency_rounds if slow < 20 else 2
    found = latencies(bench.sides, rounds, 4 if slow < 2 else 1, rng)
    versus = {
        name: structs.replace(one, latency_speedup=found[place] / found[0])
        for place, (name, one) in enumerate(timing.versus.items(), 1)
    }
    return structs.replace(timing, latency_ms=found[0], versus=versus)


def _noted(timing: Timing, *notes: str) -> Timing:
    return structs.replace(timing, notes=(*timing.notes, *notes))


def _words(versus: Versus) -> str:
    return describe_interval(versus.speedup, versus.interval)
