"""An audit on a terminal: matrices of the corpus, the verifiers' confusions, mutants, the screener's calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hipwright.cli.display.fitted import plain_table
from hipwright.evaluation.figures import wilson

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.agents.auditors import Confusion
    from hipwright.audit.confusion import ConfusionMatrix
    from hipwright.audit.mutation import MutationReport
    from hipwright.verify.sensitivity import DroppedElement

NO_PREDICTIONS = "the archive holds no predictions of the screener: `hipwright optimize` makes them"


def print_matrices(console: Console, found: Mapping[str, ConfusionMatrix]) -> None:
    """A table for each verifier, and the candidates that were not judged as expected."""
    from hipwright.audit.confusion import OUTCOMES

    for name, one in found.items():
        heads = ("", *OUTCOMES, "all")
        rows = [(kind, *(counts[o] for o in OUTCOMES), sum(counts.values())) for kind, counts in one.counts.items()]
        console.print(plain_table(heads, rows, right=heads[1:], title=f"{name} gate"))
        for judged in one.unexpected():
            console.print(f"  {judged.outcome}: {judged.case.id}: {judged.why}", markup=False, highlight=False)


def print_mutants(console: Console, report: MutationReport) -> None:
    """The summary, and the mutants that survived."""
    console.print(report.summary(), markup=False, highlight=False)
    for mutant in report.survivors():
        console.print(f"  survived: {mutant.description()}", markup=False, highlight=False)


def print_confusions(console: Console, found: Sequence[Confusion]) -> None:
    """A line for each verifier and form: what must pass, what must not, and the shares it may be wrong about."""
    heads = (
        "verifier",
        "lane",
        "right: accepted",
        "refused",
        "wrong: accepted",
        "refused",
        "no verdict",
        "unseen",
        "false accepts",
        "false rejects",
    )
    rows = [
        (
            one.verifier,
            one.form,
            str(one.right_accepted),
            str(one.right_refused),
            str(one.wrong_accepted),
            str(one.wrong_refused),
            str(one.no_verdict),
            str(one.unseen),
            _span(one.false_accepts),
            _span(one.false_rejects),
        )
        for one in found
    ]
    console.print("confusion matrices (the last two: 95 % intervals of the share it is wrong about):")
    console.print(plain_table(heads, rows, right=heads[2:]))


def _span(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.1f}-{100 * interval[1]:.1f} %"


def print_dropped(console: Console, found: Mapping[str, Sequence[DroppedElement]]) -> None:
    """A line for each task and shape: how probably one element of n, left out, is noticed."""
    rows = [
        (task, one.workload, str(one.of), f"{one.found}/{one.tried}", _span(wilson(one.found, one.tried)))
        for task, several in found.items()
        for one in several
        if one.tried
    ]
    if rows:
        console.print("one input element of n left out (read as 0), where that changes the result:")
        console.print(plain_table(("task", "shape", "n", "noticed", "95 % interval"), rows, right=("n", "noticed")))


def print_screener(console: Console, found: Mapping[str, Any]) -> None:
    """A line for each event that was predicted, then its reliability."""
    if not found:
        console.print(f"screener: {NO_PREDICTIONS}")
        return
    console.print("the screener's predictions against what happened (Brier: 0 is perfect; AUC: 0.5 is a guess):")
    heads = ("author", "event", "runs", "predictions", "Brier", "of the base rate", "AUC")
    every = [(author, one["runs"], event) for author, one in found.items() for event in one["events"].values()]
    rows = [
        (
            author,
            event["event"],
            str(runs),
            str(event["predictions"]),
            f"{event['brier']:.3f}",
            f"{event['base_brier']:.3f}",
            "-" if event["auc"] is None else f"{event['auc']:.2f}",
        )
        for author, runs, event in every
    ]
    console.print(plain_table(heads, rows, right=heads[2:]))
    kept = ("author", "event", "said", "came true", "95 % interval", "predictions")
    bins = [
        (
            author,
            event["event"],
            f"{100 * b['predicted']:.0f} %",
            f"{100 * b['observed']:.0f} %",
            f"{100 * b['interval'][0]:.0f}-{100 * b['interval'][1]:.0f} %",
            str(b["n"]),
        )
        for author, _, event in every
        for b in event["bins"]
    ]
    console.print(plain_table(kept, bins, right=kept[2:]))
