"""An Evaluation as the JSON object of `optimize` and `eval`, and sentences about what was not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.archive import Archive, TrialDetail, read_log
from hipwright.engine.knobs import GIVEN_UP
from hipwright.measure.describe import describe_device
from hipwright.records import Build, Evaluation, TargetResult
from hipwright.search.view import FALLBACK

PARTS = ("build", "verdict", "estimate", "timing")
SCORE_UNIT = "microseconds"
LOG_LIMIT = 4000  # characters of a compiler log in a result; the archive has the whole log


def last_rejection(archive: Archive, run: str) -> Evaluation | None:
    """The latest evaluation of a run that did not pass, in full; of its second verifications too."""
    log = read_log(archive.events(run))
    again = [log.confirmed[n].evaluation for n in sorted(log.confirmed, reverse=True)]
    found = [*again, *(log.evaluated[n].evaluation for n in sorted(log.evaluated, reverse=True))]
    return next((one for one in found if not one.passed), None)


def given_up(trials: Sequence[TrialDetail], number: int) -> list[dict[str, Any]]:
    """The operators that trial `number` leaves to the library, {operators, why} for each step of the fallback, in turn.

    Operators at which the engine failed while it wrote are in the last entry.
    """
    best = next((trial for trial in trials if trial.number == number), None)
    kept = set(str(best.choices.get(GIVEN_UP, "")).split(",")) if best is not None else set()
    found, before = [], set[str]()
    for trial in trials:
        given = set(str(trial.notes.get(GIVEN_UP, "")).split(","))
        if trial.operator == FALLBACK and trial.notes.get("closing") and given <= kept:
            found.append({"operators": sorted(given - before), "why": str(trial.notes.get("fallback", ""))})
            before |= given
    if rest := kept - before - {""}:
        found.append({"operators": sorted(rest), "why": "given up with them, and the program is the fastest found"})
    return found


def result_object(evaluation: Evaluation | None, targets: Sequence[str], **more: Any) -> dict[str, Any]:
    """The documented keys of a result (docs/cli.md), and `more`.

    Without an evaluation the status is "unscorable".
    """
    if evaluation is None:
        base = Evaluation(task="", program="", status="unscorable", message="no program was evaluated")
        return result_object(base, targets, **more)
    return {
        "status": evaluation.status,
        "fault": evaluation.fault,
        "message": evaluation.message,
        "coverage": evaluation.coverage,
        "own_time": evaluation.own_time,
        "score": evaluation.score,
        "score_kind": evaluation.score_kind,
        "score_unit": SCORE_UNIT,
        "library": evaluation.library,
        "targets": {name: target_object(evaluation.targets.get(name), name) for name in targets},
        "environment": evaluation.environment,
        **more,
    }


def target_object(result: TargetResult | None, name: str = "") -> dict[str, Any]:
    """One target's part of a result: build, verdict, estimate, timing (each or null), and why any is null."""
    found = result or TargetResult(
        target=name, why_none=dict.fromkeys(PARTS, "no program was evaluated on this target")
    )
    return {
        "build": _build(found.build),
        "verdict": found.verdict.to_dict() if found.verdict else None,
        "estimate": found.estimate.to_dict() if found.estimate else None,
        "timing": found.timing.to_dict() if found.timing else None,
        "why_none": dict(found.why_none),
    }


def _build(build: Build | None) -> dict[str, Any] | None:
    return None if build is None else {**build.to_dict(), "log": build.log[:LOG_LIMIT]}


def not_measured(targets: Sequence[str], evaluation: Evaluation | None) -> list[str]:
    """The facts that the run did not establish, a sentence each."""
    from hipwright.evaluation.left_out import left_out
    from hipwright.targets import CPU, OFFLINE, TARGETS

    results = evaluation.targets if evaluation else {}
    timed = {name: result.timing for name, result in results.items() if result.timing}
    amd = next((t for name, t in timed.items() if TARGETS.is_amd(name) and not t.simulated), None)
    here = amd.architecture if amd else ""
    why = f"the AMD GPU here is {here}" if here else "no AMD GPU was used"
    lines = [
        f"{why}: speed on {OFFLINE[name].product} ({name}) was not measured"
        for name in targets
        if name in OFFLINE and name not in timed and name != here
    ]
    others = {target.name: timed[target.name] for target in TARGETS.gpus if target.name in timed and not target.is_amd}
    lines += [
        f"the figures of the {name} target are {describe_device(name, timing)}: no AMD GPU's speed"
        for name, timing in others.items()
    ]
    lines += [
        f"the {name} target's device is {timing.device}: its times are those of software, and no AMD GPU's speed"
        for name, timing in timed.items()
        if timing.simulated
    ]
    if names := [name for name in targets if TARGETS.is_simulated(name)]:
        lines.append(f"{', '.join(names)}: machine code was executed in software, no AMD GPU: times say nothing of one")
    if CPU.name not in targets and not any(result.verdict for result in results.values()):
        lines.append(f"the {CPU.name} target was left out: nothing ran, so no value was checked")
    return lines + (left_out(evaluation) if evaluation is not None else [])
