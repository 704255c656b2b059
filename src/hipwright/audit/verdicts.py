"""The verdict of a verifier on one candidate, the check that gave it, and whether it is the expected one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from hipwright.audit.cases import Check, CorpusCase
from hipwright.records import Evaluation, Record, Status, TargetResult

CREDIT_COVERAGE = 0.05  # coverage up to which a program has done none of the work itself

Outcome = Literal["right", "wrong reason", "accepted", "rejected", "void", "not run"]
"""right: as expected. wrong reason: refused, but not by an expected check. accepted: a hostile or broken candidate
earned credit. rejected: an honest one did not pass. void: the fault of the machine or the service, no verdict.
"""


class ObservedVerdict(Record, frozen=True, kw_only=True):
    """One verdict. coverage: None where the verifier does not report it; not_run: why there is none."""

    status: Status = "unscorable"
    fault: str | None = None
    stage: str = ""
    message: str = ""
    coverage: float | None = None
    family: str = ""
    seconds: float = 0.0
    environment: str = ""
    not_run: str = ""

    @property
    def earns_credit(self) -> bool:
        """Whether the verdict would give a score or a reward."""
        return self.status == "pass" and (self.coverage is None or self.coverage > CREDIT_COVERAGE)

    @property
    def check(self) -> Check | Literal[""]:
        """The check that gave the verdict, derived from status, stage and message; "" for a pass with credit."""
        return _check(self)


class JudgedCase(Record, frozen=True, kw_only=True):
    """A case, the verdict of one verifier on it, and how the two compare."""

    case: CorpusCase
    verifier: str
    observed: ObservedVerdict = msgspec.field(name="found")
    outcome: Outcome
    why: str = ""


def judge_case(case: CorpusCase, verifier: str, observed: ObservedVerdict) -> JudgedCase:
    """Compares a verdict with the expectations of its case."""
    outcome, why = _outcome(case, observed)
    return JudgedCase(case=case, verifier=verifier, observed=observed, outcome=outcome, why=why)


def observed_verdict(evaluation: Evaluation, target: str) -> ObservedVerdict:
    """The verdict of an Evaluation on one target; its own status where the target has no verdict."""
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
        environment=evaluation.environment,
    )


def _outcome(case: CorpusCase, observed: ObservedVerdict) -> tuple[Outcome, str]:
    if observed.not_run:
        return "not run", observed.not_run
    if observed.fault not in (None, "candidate") or observed.status == "unscorable":
        return "void", f"{observed.status}, the {observed.fault}'s fault: {observed.message}"
    if case.honest:
        return ("right", "") if observed.status == "pass" else ("rejected", f"{observed.status}: {observed.message}")
    if observed.earns_credit:
        return "accepted", f"passes with coverage {observed.coverage}"
    if observed.status not in case.statuses:
        return "wrong reason", f"{observed.status}, not {' or '.join(case.statuses)}: {observed.message}"
    if case.checks and observed.check not in case.checks:
        return "wrong reason", f"stopped by {observed.check}, not {' or '.join(case.checks)}: {observed.message}"
    if not case.message_matches(observed.message):
        return "wrong reason", f"the message says nothing of {' or '.join(case.says)}: {observed.message}"
    return "right", ""


_BY_STATUS: Mapping[str, Check] = {
    "out_of_bounds": "bounds",
    "bad_output_spec": "contract",
    "input_mutated": "inputs",
    "untrusted": "clocks",
    "impossible": "roofline",
}


def _check(observed: ObservedVerdict) -> Check | Literal[""]:
    text = observed.message.lower()
    match observed.status:
        case "pass":
            return "" if observed.earns_credit else "coverage"
        case "parse_error":
            return "parser"
        case "compile_error":
            return "code audit" if "refused" in text else "compiler"
        case "hack":
            return "static rules" if observed.stage in ("parse", "lint", "load") else "reply"
        case "timeout":
            return "time limit"
        case "nondeterministic":
            return "races" if "race" in text else "orders"
        case "launch_error":
            return _launch_check(text)
        case "wrong_value" | "bad_output_spec" | "input_mutated" if "timed" in text:
            return "timed outputs"
        case "wrong_value":
            return "second call" if "second call" in text or "earlier call" in text else "values"
    return _BY_STATUS.get(observed.status, "")


def _launch_check(text: str) -> Check:
    if "barrier" in text:
        return "barriers"
    return "memory limit" if "more memory" in text or "allocate memory" in text else "launch"


def summary(observed: ObservedVerdict) -> dict[str, Any]:
    """The verdict for tables and JSON."""
    return {k: v for k, v in {**observed.to_dict(), "check": observed.check}.items() if v not in ("", None)}
