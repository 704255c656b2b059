"""An evolving audit on a terminal: the detection matrix, survivors and refused honest variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipwright.cli.display.fitted import plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.audit.evolve.results import EvolutionReport


def print_evolution(console: Console, report: EvolutionReport) -> None:
    """The detection matrix, what survived, honest variants that did not pass, and the totals."""
    heads = ("kind of fault", "wrong", "refused", "95 % interval", "refused by", "not counted")
    rows = [
        (
            row.kind,
            str(row.refused + row.survived),
            str(row.refused),
            f"{100 * row.interval[0]:.1f}-{100 * row.interval[1]:.1f} %",
            ", ".join(f"{check} {n}" for check, n in row.checks.most_common()),
            ", ".join(f"{fate} {n}" for fate, n in row.others.most_common()),
        )
        for row in report.matrix()
    ]
    console.print("detection by kind of fault (not counted: equivalent, not shown to be wrong, or no program):")
    console.print(plain_table(heads, rows, right=heads[1:4]))
    for one in report.survivors():
        where = f"{one.parent} of {one.task.stem}, line {one.line}"
        console.print(f"  survived: {one.kind} ({one.how}) in {where}: {one.why}", markup=False, highlight=False)
    for variant in report.refused_honest():
        where = f"{variant.kind} of {variant.parent} of {variant.task.stem}"
        console.print(f"  refused though honest: {where}: {variant.why}", markup=False, highlight=False)
    for task, why in report.unusable.items():
        console.print(f"  not used: {task}: {why}", markup=False, highlight=False)
    counts = report.counts
    low, high = report.interval
    console.print(
        f"{report.wrong} wrong programs of {len(report.matrix())} kinds over {len(report.tasks)} tasks in "
        f"{report.seconds:.0f} s (seed {report.seed}): {counts['refused']} refused "
        f"({100 * report.refused_share:.2f} %, 95 % interval {100 * low:.2f}-{100 * high:.2f} %), "
        f"{counts['survived']} survived; {sum(not one.void for one in report.honest)} honest variants, "
        f"{len(report.refused_honest())} refused",
        markup=False,
        highlight=False,
    )
