"""A model's profile and outcome as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.api.plain import clean
from hipwright.api.whole.describe import gate_line, in_number, places, speed_line, times_line
from hipwright.api.whole.improve import LEAST_AT_MOST
from hipwright.cli.display.fitted import plain_table
from hipwright.cli.display.tables import STYLES, print_notes
from hipwright.report.formatting import number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.api.whole.outcome import ModelOutcome, RegionOutcome
    from hipwright.api.whole.profile import ModelProfile

LEAST_SHOWN = 0.0005
"""Share of the time below which what stays has no line."""


def print_profile(out: Console, profile: ModelProfile) -> None:
    """The model in two lines, the regions by rank, and what stays."""
    _print_head(out, profile)
    heads = ("", "region", "class", "calls", "operators", "share", f"µs ({profile.clock.label})", "model at most")
    rows = [
        (
            str(rank + 1),
            places(region.paths),
            region.calls[0].kind,
            str(len(region.calls)),
            str(region.calls[0].operators),
            percent(profile.share(region.seconds)),
            number(region.seconds * 1e6),
            f"{profile.at_most(region):.2f}x",
        )
        for rank, region in enumerate(profile.regions)
    ]
    out.print(plain_table(heads, rows, right=heads[3:]))
    _print_stays(out, profile)


def _print_head(out: Console, profile: ModelProfile) -> None:
    told, clock = profile.told, profile.clock
    inputs = ", ".join(map(clean, told["inputs"]))
    out.print(f"{clean(told['class'])}: {told['parameters']:,} parameters, inputs {inputs}", style="bold")
    total = number(profile.seconds * 1e6)
    out.print(f"one forward: {total} µs, {profile.operators} operators ({clock.label}: {clock.where})")


def _print_stays(out: Console, profile: ModelProfile) -> None:
    for one in profile.stays:
        if (share := profile.share(one.seconds)) >= LEAST_SHOWN:
            out.print(f"stays: {clean(one.path) or 'the model'} ({clean(one.kind)}) {percent(share)}: {clean(one.why)}")


def print_outcome(out: Console, outcome: ModelOutcome) -> None:
    """Each region with its share before and after, its speedup, and why it stayed; then the whole model."""
    _print_head(out, outcome.profile)
    heads = ("", "region", "class", "calls", "before", "after", "speedup", "replaced")
    rows = [_row(outcome, one) for one in outcome.regions]
    out.print(plain_table(heads, rows, right=heads[3:7]))
    for line in _not_searched(outcome):
        out.print(f"stays: {line}")
    _print_stays(out, outcome.profile)
    out.print(gate_line(outcome), style=STYLES["good" if outcome.passed else "unsure"])
    for line in (speed_line(outcome), times_line(outcome)):
        if line:
            out.print(line)
    print_notes(out, outcome.notes)


def _not_searched(outcome: ModelOutcome) -> list[str]:
    """The regions that were not searched, by what they can bring."""
    profile, searched = outcome.profile, {one.region for one in outcome.regions}
    left = [profile.at_most(one) for one in profile.regions if one not in searched]
    small = sum(bound < LEAST_AT_MOST for bound in left)
    lines = []
    if worth := len(left) - small:
        best = f"the best makes the model at most {max(left):.2f}x"
        lines.append(f"{in_number(worth, 'further region')}, not searched (--regions, --budget); {best}")
    if small:
        lines.append(f"{in_number(small, 'further region')}, at most {LEAST_AT_MOST - 1:.1%} of the model's speed each")
    return lines


def _row(outcome: ModelOutcome, one: RegionOutcome) -> tuple[str, ...]:
    before, after = outcome.shares(one)
    return (
        str(one.number + 1),
        places(one.region.paths),
        one.region.calls[0].kind,
        str(len(one.region.calls)),
        percent(before),
        percent(after),
        f"{one.factor:.2f}x {one.basis}" if one.factor else "-",
        "yes" if one.kept else f"no: {one.why}",
    )
