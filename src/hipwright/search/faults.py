"""The faults of the engine that a run's log tells: one for each set of operators that was given up for a refusal."""

from __future__ import annotations

from hipwright.archive import EngineFault, Proposed, RunLog
from hipwright.archive.faults import ENGINE_ERROR
from hipwright.engine.knobs import GIVEN_UP
from hipwright.records import Evaluation
from hipwright.search.fallback import evidence_kernel
from hipwright.search.view import FALLBACK


def faults_of(run: str, log: RunLog) -> list[EngineFault]:
    """The faults for which the run's engine gave something up, in turn, and a last refusal that nothing followed.

    A bisection's probes are no faults: the fault is the program that they examine.
    """
    number = _first_refused(log)
    if number is None:
        return []
    before = _operators(str(log.proposed[number].choices.get(GIVEN_UP, "")))
    found: list[EngineFault] = []
    for step in (log.proposed[n] for n in sorted(log.proposed)):
        given = _operators(str(step.notes.get(GIVEN_UP, "")))
        if step.expansion.operator == FALLBACK and step.notes.get("closing"):
            found.append(_fault(run, log, number, given - before))
            before, number = before | given, step.number
    last = _judged(log, number)
    if last is None or not last.passed:
        found.append(_fault(run, log, number, frozenset()))
    return found


def _operators(given_up: str) -> frozenset[str]:
    return frozenset(given_up.split(",")) - {""}


def _first_refused(log: RunLog) -> int | None:
    """The number of the engine's latest first answer that was refused by its own fault."""
    refused = [
        number
        for number, proposed in sorted(log.proposed.items())
        if proposed.expansion.operator == "default"
        and (found := _judged(log, number)) is not None
        and found.fault == "candidate"
    ]
    return refused[-1] if refused else None


def _judged(log: RunLog, number: int) -> Evaluation | None:
    """A proposal's evaluation, or its second one where that refused it; a duplicate's is its first program's."""
    proposed = log.proposed[number]
    number = number if proposed.duplicate_of is None else proposed.duplicate_of
    again = log.confirmed.get(number)
    if again is not None and not again.passed:
        return again.evaluation
    evaluated = log.evaluated.get(number)
    return None if evaluated is None else evaluated.evaluation


def _fault(run: str, log: RunLog, number: int, given_up: frozenset[str]) -> EngineFault:
    proposed, evaluation = log.proposed[number], _judged(log, number)
    task = str(log.started.get("task_name", ""))
    known = {"run": run, "task": task, "proposal": number, "given_up": sorted(given_up), "clock": log.clock_ended}
    return EngineFault.from_dict({**known, **_evidence(proposed, evaluation)})


def _evidence(proposed: Proposed, evaluation: Evaluation | None) -> dict[str, str]:
    """What a refusal says: target, status, message and the kernel that it names."""
    if evaluation is None:
        return {"status": ENGINE_ERROR, "message": proposed.error}
    for name, result in evaluation.targets.items():
        if result.build is not None and not result.build.ok:
            return {"target": name, "status": evaluation.status, "message": evaluation.message}
        if result.verdict is not None and not result.verdict.passed:
            kernel = evidence_kernel(result.verdict.evidence)
            return {
                "target": name,
                "status": result.verdict.status,
                "message": result.verdict.message,
                "kernel": kernel,
            }
    return {"status": evaluation.status, "message": evaluation.message}
