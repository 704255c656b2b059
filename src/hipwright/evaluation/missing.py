"""Why a target's result has no build, verdict, estimate or timing: the sentences of `TargetResult.why_none`.

A sentence never says more than what happened: only a program that a stage rejected is called rejected.
"""

from __future__ import annotations

from hipwright.records import Verdict

NOT_RUN = "an offline target: programs are compiled for it, not run on it"
NOT_TIMED_CPU = "the cpu target proves numerics; its speed says nothing about a GPU"
NOT_TIMED_SIM = "a simulated target executes machine code in software; its speed says nothing about a GPU"
NOT_ASKED = "timing was not asked for"
DOUBTFUL = "verified, and timed again and again; the timings are not believed"
NOT_BUILT = "a candidate of this form is not compiled for this target on its own"
NO_ESTIMATE = "no estimate: of this GPU's architecture, or of what it builds, too little is known"
NO_VERDICT = "the program passed on the targets that ran it; this one did not run it"

_OF_A_PASS = {"build": NOT_BUILT, "verdict": NO_VERDICT, "estimate": NO_ESTIMATE, "timing": NOT_ASKED}


def why_missing(part: str, end: Verdict | None) -> str:
    """The reason for a missing part of a target's result.

    part: "build", "verdict", "estimate" or "timing". end: the verdict that ended the evaluation; None for a pass.
    """
    if end is None or end.passed:
        return _OF_A_PASS[part]
    if end.fault == "candidate":
        return f"the program was rejected before this stage ({end.status} at {end.stage})"
    owner = f", the {end.fault} at fault" if end.fault else ""
    return f"the evaluation ended before this stage ({end.status} at {end.stage}{owner}): the program was not judged"
