"""What a verifier said of one candidate, which check that was, and whether it is what should have been said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hipwright.audit.cases import Check, CorpusCase
from hipwright.records import Evaluation, Record, Status, TargetResult

CREDIT = 0.05  # coverage up to which a program has done nothing of the work itself

Outcome = Literal["right", "wrong reason", "accepted", "rejected", "void", "not run"]
"""right: as expected. wrong reason: refused, but not by a check that was to stop it. accepted: a hostile or broken one
earned credit. rejected: an honest one did not pass. void: the machine's or the service's fault, no verdict."""


class ObservedVerdict(Record, frozen=True, kw_only=True):
    """One verdict. coverage: None where the verifier does not say; not_run: why there is none."""

    status: Status = "unscorable"
    fault: str | None = None
    stage: str = ""
    message: str = ""
    coverage: float | None = None
    family: str = ""
    seconds: float = 0.0
    not_run: str = ""

    @property
    def earns(self) -> bool:
        """Whether a score or a reward would come of it."""
        return self.status == "pass" and (self.coverage is None or self.coverage > CREDIT)

    @property
    def check(self) -> Check | Literal[""]:
        """The check that spoke, told by status, stage and message; "" for a pass with credit."""
        return _check(self)


class JudgedCase(Record, frozen=True, kw_only=True):
    """A case, what one verifier found, and what to think of that."""

    case: CorpusCase
    verifier: str
    found: ObservedVerdict
    outcome: Outcome
    why: str = ""


def compare(case: CorpusCase, verifier: str, found: ObservedVerdict) -> JudgedCase:
    """Hold what was found against the table."""
    outcome, why = _outcome(case, found)
    return JudgedCase(case=case, verifier=verifier, found=found, outcome=outcome, why=why)


def found_in(evaluation: Evaluation, target: str) -> ObservedVerdict:
    """What an Evaluation says of one target; its own status where the target has no verdict."""
    result: TargetResult | None = evaluation.targets.get(target)
    verdict = result.verdict if result else None
    if verdict is None or evaluation.status != "pass":
        status, fault, message = evaluation.status, evaluation.fault, evaluation.message
    else:
        status, fault, message = verdict.status, verdict.fault, verdict.message
    return ObservedVerdict(
        status=status,
        fault=fault,
        stage=verdict.stage if verdict else "",
        message=message,
        coverage=evaluation.coverage if status == "pass" else None,
        family=verdict.family if verdict else "",
        seconds=evaluation.seconds,
    )


def _outcome(case: CorpusCase, found: ObservedVerdict) -> tuple[Outcome, str]:
    if found.not_run:
        return "not run", found.not_run
    if found.fault not in (None, "candidate") or found.status == "unscorable":
        return "void", f"{found.status}, the {found.fault}'s fault: {found.message}"
    if case.honest:
        return ("right", "") if found.status == "pass" else ("rejected", f"{found.status}: {found.message}")
    if found.earns:
        return "accepted", f"passes with coverage {found.coverage}"
    if found.status not in case.statuses:
        return "wrong reason", f"{found.status}, not {' or '.join(case.statuses)}: {found.message}"
    if case.checks and found.check not in case.checks:
        return "wrong reason", f"stopped by {found.check}, not {' or '.join(case.checks)}: {found.message}"
    if not case.heard(found.message):
        return "wrong reason", f"the message says nothing of {' or '.join(case.says)}: {found.message}"
    return "right", ""


_BY_STATUS: Mapping[str, Check] = {
    "out_of_bounds": "bounds",
    "bad_output_spec": "contract",
    "input_mutated": "inputs",
    "untrusted": "clocks",
    "impossible": "roofline",
}


def _check(found: ObservedVerdict) -> Check | Literal[""]:
    said = found.message.lower()
    match found.status:
        case "pass":
            return "" if found.earns else "coverage"
        case "parse_error":
            return "parser"
        case "compile_error":
            return "code audit" if "refused" in said else "compiler"
        case "hack":
            return "static rules" if found.stage in ("parse", "lint", "load") else "reply"
        case "timeout":
            return "time limit"
        case "nondeterministic":
            return "races" if "race" in said else "orders"
        case "launch_error":
            return _launch(said)
        case "wrong_value" | "bad_output_spec" | "input_mutated" if "timed" in said:
            return "timed outputs"
        case "wrong_value":
            return "second call" if "second call" in said or "earlier call" in said else "values"
    return _BY_STATUS.get(found.status, "")


def _launch(said: str) -> Check:
    if "barrier" in said:
        return "barriers"
    return "memory limit" if "more memory" in said or "allocate memory" in said else "launch"


def summary(found: ObservedVerdict) -> dict[str, Any]:
    """For tables and JSON."""
    return {k: v for k, v in {**found.to_dict(), "check": found.check}.items() if v not in ("", None)}
