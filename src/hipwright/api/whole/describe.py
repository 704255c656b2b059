"""A model's outcome in sentences, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.api.whole.outcome import ModelOutcome


def in_number(count: int, noun: str) -> str:
    """A count with its noun.

    >>> in_number(1, "region"), in_number(3, "region")
    ('1 region', '3 regions')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def places(paths: Sequence[str]) -> str:
    """Paths of equal parts in short: the first and the last."""
    named = [path or "(the model)" for path in paths]
    return ", ".join(named) if len(named) < 3 else f"{named[0]} … {named[-1]}"


def gate_line(outcome: ModelOutcome) -> str:
    """What is replaced, and the outputs' error against the truth beside eager's own."""
    kept, gate = outcome.kept, outcome.gate
    if not kept:
        return "nothing is replaced: the model stays as it is"
    parts = sum(len(one.region.paths) for one in kept)
    errors = f"error {gate['error']:.2g} against {gate['truth']}, eager's own {gate['eager_error']:.2g}"
    line = f"{in_number(parts, 'part')} run {in_number(len(kept), 'verified program')}; "
    line += f"worst output on {in_number(gate['inputs'], 'set')} of inputs: {errors}"
    line += f", limit {gate['limit']:.2g}"
    if outcome.metric is not None:
        line += f"; metric {outcome.metric['programs']:.6g}, eager {outcome.metric['eager']:.6g}"
    return line


def speed_line(outcome: ModelOutcome) -> str:
    """The model's speedup by the regions' own; "" where none is known."""
    speedup = outcome.speedup
    if speedup is None:
        return ""
    basis = next(one.basis for one in outcome.kept if one.basis)
    return f"the model by its regions: {speedup:.2f}x eager ({basis}, Amdahl's law)"


def times_line(outcome: ModelOutcome) -> str:
    """Measured times end to end; "" without a GPU."""
    times = outcome.times
    if not times:
        return ""
    against = ", ".join(f"{ratio:.2f}x {name} ({times[name]:.3g} ms)" for name, ratio in times["speedup"].items())
    missing = "".join(f"; no {name}: {why}" for name, why in times["missing"].items())
    if "programs captured" in times:
        against += f"; captured {times['programs captured']:.3g} ms"
    return f"measured end to end: {times['programs']:.3g} ms a call ({times['how']['programs']}), {against}{missing}"
