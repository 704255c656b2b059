"""Verdicts on programs that refuse the task's own inputs, or whose results differ from run to run."""

from __future__ import annotations

from hipwright.errors import GuardFailed
from hipwright.records import Verdict
from hipwright.verify.candidate import CallReply, case_evidence, launches
from hipwright.verify.case_draws import VerificationCase


def refusal_verdict(error: GuardFailed, workload: str) -> Verdict:
    """The verdict on an assert that is false for the task's own inputs."""
    verdict = error.verdict()
    return Verdict(
        status="launch_error",
        fault="candidate",
        stage="launch",
        workload=workload,
        message=f"an assert refuses the task's own inputs ({workload}): {verdict.message}",
        evidence=verdict.evidence,
    )


def nondeterministic_verdict(
    case: VerificationCase, place: tuple[int, tuple[int, ...]], order: str, first: CallReply
) -> Verdict:
    """The verdict on results that differ between two runs. place: leaf and index; order: of the second run."""
    leaf, index = place
    return Verdict(
        status="nondeterministic",
        fault="candidate",
        family=case.family,
        workload=case.workload,
        message=f"output {leaf} at {list(index)} depends on the order in which threads and blocks run (forward against "
        f"{order}) or on uninitialised memory, and the kernels declare no float atomics (on {case.name})",
        evidence={**case_evidence(case), "output": leaf, "index": list(index), "launches": launches(first.stats)},
    )
