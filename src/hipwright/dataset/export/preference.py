"""The `preference` format: for one task a better verified program and a worse one, with the evidence.

    correct over wrong     the verifier refused `rejected`; `evidence` has its findings
    faster by measurement  both were timed on one device against one baseline, and the 95 % intervals do not touch
    faster by estimate     the static estimate is at least GAIN lower on every target that both were estimated for;
                           an estimate, never a time, and not used where measurements can be compared

A wrong program is compared with the one it was made from where that is known, else with the verified program with
most lines in common. A step of a search is a row even where the program that it improves is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from hipwright.dataset.export.chat import (
    MESSAGES,
    TASK_COLUMNS,
    fresh_prompt,
    reply,
    settled_text,
    step_gain,
    task_facts,
)
from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable
from hipwright.dataset.export.grouping import by_task
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.jsonl import JsonlSink
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import STEP_GAIN, Pair
from hipwright.records import Timing
from hipwright.search.fitness import MODEL_NOISE, RANKED_BY

GAIN = max(STEP_GAIN, MODEL_NOISE)
"""Share of the time that an estimate must save, beyond the noise of the model."""

MAX_PER_TASK = 8
"""The most rows of each `preferred` value for one task, so that no task dominates."""

COLUMNS: Columns = {
    "prompt": MESSAGES["messages"],
    "chosen": MESSAGES["messages"],
    "rejected": MESSAGES["messages"],
    "preferred": "string",
    "evidence": "string",
    "chosen_key": "string",
    "rejected_key": "string",
    **TASK_COLUMNS,
}


def speed_verdict(one: Pair, other: Pair) -> tuple[str, str]:
    """(how `one` is certainly faster than `other`, the figures as text); ("", "") where that is not certain."""
    measured = _measured(one.timing, other.timing)
    if measured is not None:
        return measured
    common = sorted(one.estimate_us.keys() & other.estimate_us.keys())
    if not common or not all(one.estimate_us[t] <= (1.0 - GAIN) * other.estimate_us[t] for t in common):
        return "", ""
    evidence = "; ".join(
        f"{target}: estimate {one.estimate_us[target]:.4g} us against {other.estimate_us[target]:.4g} us"
        for target in common
    )
    return "faster by estimate", evidence


def _measured(one: Timing | None, other: Timing | None) -> tuple[str, str] | None:
    """`speed_verdict` by two timings; None where they cannot be compared."""
    if one is None or other is None:
        return None
    if (one.device, one.architecture, one.policy) != (other.device, other.architecture, other.policy):
        return None
    name = next((name for name in RANKED_BY if name in one.versus and name in other.versus), None)
    if name is None:
        return None
    low, high = one.versus[name].interval, other.versus[name].interval
    if low[0] <= high[1]:
        return "", ""
    evidence = f"{one.device}: {low[0]:.3f} to {low[1]:.3f} times {name} against {high[0]:.3f} to {high[1]:.3f} times"
    return "faster by measurement", evidence


def preferences(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Pair, str, str]]:
    """Yields (chosen, rejected, how, evidence) for the pairs of one task."""
    right: dict[str, Pair] = {}
    wrong: dict[str, Pair] = {}
    for pair in pairs:
        (right if pair.correct else wrong).setdefault(settled_text(pair.program), pair)
    for text, pair in wrong.items():
        if right:
            yield _nearest(text, pair, list(right.values())), pair, "correct over wrong", pair.evidence or pair.status
    yield from _mended(pairs, wrong.keys())
    yield from _faster(list(right.values()))
    yield from _stepped(pairs, right.keys())


def _nearest(text: str, rejected: Pair, right: Sequence[Pair]) -> Pair:
    """The correct program that a wrong one was made from, else the one with most lines in common."""
    if rejected.before is not None:
        origin = [pair for pair in right if pair.program.key == rejected.before.key]
        if origin:
            return origin[0]
    lines = set(text.splitlines())

    def shared(pair: Pair) -> float:
        own = set(settled_text(pair.program).splitlines())
        return len(lines & own) / len(lines | own)

    return max(right, key=shared)


def _mended(pairs: Sequence[Pair], known: Iterable[str]) -> Iterator[tuple[Pair, Pair, str, str]]:
    """Each repair over the program it repairs, where that program is not a row itself."""
    seen = set(known)
    for pair in pairs:
        if pair.correct and pair.kind == "repair" and pair.before is not None:
            text = settled_text(pair.before)
            if text not in seen:
                seen.add(text)
                wrong = Pair(
                    task=pair.task,
                    task_name=pair.task_name,
                    task_source=pair.task_source,
                    program=pair.before,
                    kind="negative",
                    correct=False,
                    status="failed",
                    evidence=pair.evidence,
                )
                yield pair, wrong, "correct over wrong", pair.evidence or "it failed in the verifier"


def _stepped(pairs: Sequence[Pair], known: Iterable[str]) -> Iterator[tuple[Pair, Pair, str, str]]:
    """Each step of a search over the verified program that it improves, where that program is not a row itself.

    The gain is the search's: at least GAIN, by its estimate or by its measurement.
    """
    seen = set(known)
    for pair in pairs:
        gain = step_gain(pair)
        if not pair.correct or pair.before is None or gain["gain"] < GAIN:
            continue
        text = settled_text(pair.before)
        if text not in seen:
            seen.add(text)
            slow = replace(pair, program=pair.before, kind="variant", before=None, estimate_us={}, timing=None)
            by = "estimate" if gain["gain_by"] == "estimate" else "measurement"
            yield pair, slow, f"faster by {by}", f"a step of a search that saves {gain['gain']:.1%} of the time"


def _faster(right: Sequence[Pair]) -> Iterator[tuple[Pair, Pair, str, str]]:
    """For each correct program that is certainly slower than another: the fastest such other one over it."""
    for other in right:
        better = [(one, *found) for one in right if (found := speed_verdict(one, other))[0]]
        if better:
            faster = [one for one, _, _ in better]
            beaten = {id(one): sum(bool(speed_verdict(rival, one)[0]) for rival in faster) for one in faster}
            one, how, evidence = min(better, key=lambda item: (beaten[id(item[0])], sum(item[0].estimate_us.values())))
            yield one, other, how, evidence


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    for group in by_task(pairs, job.folder):
        found = list(preferences(group))
        if not found:
            reason = "its task has no verified program" if not any(p.correct for p in group) else "nothing to compare"
            job.left_out[reason] += len(group)
        messages = fresh_prompt(group[0], job.options)
        sorts: Counter[str] = Counter()
        for chosen, rejected, how, evidence in found:
            sorts[how] += 1
            if sorts[how] > MAX_PER_TASK:
                job.left_out[f"beyond {MAX_PER_TASK} of a sort for one task"] += 1
                continue
            row = {
                "prompt": messages,
                "chosen": reply(chosen.program),
                "rejected": reply(rejected.program),
                "preferred": how,
                "evidence": evidence,
                "chosen_key": chosen.program.key,
                "rejected_key": rejected.program.key,
                **task_facts(group[0]),
            }
            job.put(group[0].split, row)


FORM = ExportFormat(
    name="preference",
    tables=(ExportTable(COLUMNS),),
    opener=JsonlSink,
    fill=_fill,
    about="Two programs for one task: `chosen` was verified, `rejected` is wrong or certainly slower; `preferred` says "
    "which (correct over wrong, faster by measurement or by estimate) and `evidence` has the verifier's finding or "
    f"the figures. Faster by estimate means at least {GAIN:.0%} lower on every target, by a static model.",
)


def export_preference(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Better and worse programs for the same task."""
    return write(FORM, pairs, out, options)
