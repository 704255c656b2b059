"""The parts of an evaluation that were left out: workloads, input families, waves, stages, timing.

The facts are in the verdicts (`skipped`, `checks`) and in `why_none`; these sentences put them where a reader of the
result sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hipwright.records import Evaluation, TargetResult
from hipwright.targets import TARGETS
from hipwright.verify.cpu.skipped import unseen


def left_out(evaluation: Evaluation) -> list[str]:
    """What the evaluation did not do on the targets that run, a sentence each, the task's own shapes first."""
    return list(dict.fromkeys(_sentences(evaluation)))


def _sentences(evaluation: Evaluation) -> Iterator[str]:
    if not evaluation.passed:
        how = f"{evaluation.status}, {evaluation.fault} at fault" if evaluation.fault else evaluation.status
        yield f"the evaluation ended early ({how}): the stages after that were not run"
    verdicts = {name: result.verdict for name, result in evaluation.targets.items() if result.verdict is not None}
    own = unseen(verdicts.values())
    for case, why in own.items():
        yield f"{case}, the task's own shape, was not verified: {why}"
    for name, verdict in verdicts.items():
        yield from _no_evidence(name, {case: why for case, why in verdict.skipped.items() if case not in own})
        if verdict.passed:
            yield from _shortened(name, verdict.checks)
    if evaluation.passed:
        for name, result in evaluation.targets.items():
            yield from _missing(name, result)


def _no_evidence(target: str, skipped: Mapping[str, str]) -> Iterator[str]:
    """Cases that did not run, or ran and prove nothing, grouped by reason."""
    groups: dict[str, list[str]] = {}
    for case, why in skipped.items():
        groups.setdefault(why, []).append(case)
    for why, cases in groups.items():
        yield f"no evidence on {target} from {', '.join(cases)}: {why}"


def _shortened(target: str, checks: Mapping[str, object]) -> Iterator[str]:
    if checks.get("gate") == "fast":
        yield f"the fast gate judged on {target}: fewer families and shapes than `hipwright eval`"
    if str(checks.get("wave32", "")).startswith("fail"):
        yield f"on waves of 32 lanes, which no chosen target has, the program is wrong ({target}: {checks['wave32']})"


def _missing(target: str, result: TargetResult) -> Iterator[str]:
    """Builds, verdicts, estimates and timings that a passed evaluation lacks; what no host or offline target has is
    not named."""
    parts = ("build", "estimate") if TARGETS.is_amd(target) else ()
    parts = ("verdict", "timing") if TARGETS.is_gpu(target) else parts
    for part in parts:
        if part in result.why_none:
            yield f"no {part} for {target}: {result.why_none[part]}"
