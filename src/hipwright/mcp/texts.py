"""The tools' answers: evaluations, failures, build reports and kernels as short text, and the data behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean, error_object, error_owner
from hipwright.errors import HipwrightError
from hipwright.mcp.warm_machine import JudgedProgram
from hipwright.records import Evaluation
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.archive import Archive
    from hipwright.archive.verified import SimilarProgram
    from hipwright.measure.profiling.profiler import ProfileReport

MEANS = {
    "parse_error": "the text is not a program in the plan language, so nothing was compiled",
    "compile_error": "the HIP source does not compile",
    "launch_error": "a launch, a library call or the plan itself failed",
    "timeout": "a kernel did not end within its time",
    "out_of_bounds": "a kernel reads or writes outside a buffer",
    "bad_output_spec": "the output has another structure, dtype, shape or layout than the reference's",
    "wrong_value": "the output differs from the fp64 reference by more than the tolerance",
    "nondeterministic": "two runs on the same inputs gave different outputs",
    "input_mutated": "an input or a parameter was changed",
    "hack": "the result was not computed by the program, or the way is refused",
    "untrusted": "the result could not be believed",
    "impossible": "the figures are faster than the hardware can be",
    "degenerate": "the task's outputs prove nothing on these inputs",
    "unscorable": "nothing was learnt about the program",
}
NEXT = {
    "parse_error": "Keep to the plan language: HIP source, knobs, forward(self, ...) with library calls and launches.",
    "compile_error": "Mend the named line first: later errors often follow from it.",
    "launch_error": "Check the launch's grid, block and arguments against the kernel's parameters.",
    "wrong_value": "Check the index arithmetic at the named element first, then the tail of the last block, the order "
    "of a reduction, and the type that sums are kept in.",
    "timeout": "Look for a loop whose bound is never met, and for a barrier that only some threads reach.",
    "out_of_bounds": "Guard the access with the tensor's size, also where the last block is not full.",
    "nondeterministic": "Look for a missing __syncthreads(), for memory from torch.empty that nobody writes, and for "
    "atomics on floats.",
    "bad_output_spec": "Make the output with torch.empty of the reference's shape and dtype, and return it as the "
    "reference does.",
    "input_mutated": "Write to a tensor from torch.empty instead.",
    "hack": "Compute the whole result from the inputs of this call.",
}
NOT_THE_PROGRAM = {
    "task": "The task file is at fault, not the program.",
    "toolchain": "The compiler of this machine is at fault, not the program; `hipwright doctor` says what is missing.",
    "device": "The device failed; the program was not judged. Evaluate it again.",
    "service": "hipwright's own process failed; the program was not judged. Evaluate it again.",
    "provider": "A model's provider failed; the program was not judged.",
}


def archive_line(kept: Mapping[str, Any]) -> str:
    """The line that says where a judged program is stored; "" where the session stores nothing."""
    if not kept:
        return ""
    if why := kept.get("not_kept"):
        return f"\nnot kept in the archive: {why}"
    return f"\nkept in the archive: run {kept['run']}, #{kept['number']}"


def verdict(judged: JudgedProgram) -> str:
    """An evaluation in a few lines."""
    from hipwright.agents.evidence import describe_score, evidence

    e = judged.evaluation
    head = f"{judged.name}: {e.status}"
    head += f", {describe_score(e)}, coverage {e.coverage:.0%}" if e.passed else ""
    lines = [head, evidence(e, judged.program)]
    lines += [
        f"- warning, line {w['line']}: {w['message']}" + (f"; {w['fix']}" if w["fix"] else "") for w in judged.warnings
    ]
    if not e.passed:
        lines.append(f"explain_failure with evaluation {judged.name!r} says more")
    return "\n".join(lines)


# ---------------------------------------------------------------- failures


def explained(judged: JudgedProgram, targets: Sequence[str]) -> dict[str, Any]:
    """Why an evaluation failed: {"text", "status", "fault", "stage", "target", "line", "fix", "hazards", ...}."""
    from hipwright.agents.evidence import deciding_verdict, evidence

    e = judged.evaluation
    if e.passed:
        return {"text": f"{judged.name} passed: there is nothing to explain", "status": "pass", "fault": None}
    target, found = deciding_verdict(e)
    stage = found.stage if found else ""
    found_evidence = evidence(e, judged.program)
    line = _line(found_evidence, judged.program.text)
    hazards = _hazards(judged, targets)
    fix = _fix(e, hazards, line)
    text = [f"{judged.name}: {e.status}: {MEANS.get(e.status, e.status)}.", found_evidence]
    text += [f"- {hazard['severity']}, line {hazard['line']}: {hazard['message']}" for hazard in hazards]
    text += [f"fix: {one}" for one in fix]
    return {
        "text": "\n".join(text),
        "status": e.status,
        "fault": e.fault,
        "stage": stage,
        "target": target,
        "line": line,
        "source": _source(judged.program.text, line),
        "evidence": found_evidence,
        "hazards": hazards,
        "fix": fix,
    }


def _fix(e: Evaluation, hazards: Sequence[dict[str, Any]], line: int) -> list[str]:
    """Advice, the most certain fix first."""
    if e.fault in NOT_THE_PROGRAM:
        return [NOT_THE_PROGRAM[e.fault]]
    near = sorted(hazards, key=lambda hazard: (hazard["line"] != line, hazard["severity"] != "error"))
    fixes = [f"line {hazard['line']}: {hazard['fix']}" for hazard in near if hazard["fix"]]
    return [text for text in [*fixes[:4], NEXT.get(e.status, "")] if text]


def _hazards(judged: JudgedProgram, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Hazards in the source, each with a line and a fix; none of a ModelNew file."""
    if judged.program.form != "program":
        return []
    from hipwright.program.hazards.report import hazards

    return [hazard.to_dict() for hazard in hazards(judged.program.text, targets)]


def _line(found_evidence: str, text: str) -> int:
    """The line of the program that the evidence names first; 0 for none."""
    numbers = [int(number) for number in re.findall(r"\bline (\d+)", found_evidence)]
    return next((number for number in numbers if 0 < number <= text.count("\n") + 1), 0)


def _source(text: str, line: int) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""


# ---------------------------------------------------------------- profiles


def build_report(judged: JudgedProgram) -> tuple[str, dict[str, Any]]:
    """A program's compiler report and estimate, with the one bottleneck."""
    from hipwright.agents.judge import bottleneck

    e = judged.evaluation
    found = bottleneck(e)
    lines = [line for name in sorted(e.targets) for line in _target_lines(name, e)]
    if found is not None:
        lines.append(f"bottleneck: {found.text}")
    if not e.passed:
        lines.append(f"not verified ({e.status}), so there is no estimate; explain_failure says why")
    targets = {
        name: {"build": _kernels(e, name), "estimate": result.estimate.to_dict() if result.estimate else None}
        for name, result in e.targets.items()
        if not TARGETS.is_host(name)
    }
    data = {
        "evaluation": judged.name,
        "status": e.status,
        "targets": targets,
        "bottleneck": found.to_dict() if found else None,
    }
    return "\n".join(lines) or "no target was built for", data


def _target_lines(name: str, e: Evaluation) -> Iterator[str]:
    from hipwright.agents.evidence import resources

    result = e.targets[name]
    if result.build is not None and result.build.ok and not TARGETS.is_host(name):
        yield from (f"{name}: {resources(kernel)}" for kernel in result.build.kernels)
    if (estimate := result.estimate) is not None:
        yield (
            f"{name}: {estimate.microseconds:.4g} us by static estimate, {estimate.bound}-bound, "
            f"{estimate.roofline_fraction:.1%} of the roofline"
        )


def _kernels(e: Evaluation, name: str) -> list[dict[str, Any]]:
    build = e.targets[name].build
    return [kernel.to_dict() for kernel in build.kernels] if build is not None else []


def counters_text(report: ProfileReport) -> str:
    """The counters, a line for each launch."""
    lines = [f"counters of {report.target}, by {report.tool}:"]
    for profile in report.profiles:
        time = f"{profile.duration_us:.1f} us" if profile.duration_us is not None else "no time"
        what = profile.bottleneck.text if profile.bottleneck else "no bottleneck could be named"
        lines.append(f"{profile.number} {profile.kernel[:80]}: {time}; {what}")
    return "\n".join([*lines, *(f"note: {note}" for note in report.notes)])


# ---------------------------------------------------------------- kernels of the archive


def by_speed(known: SimilarProgram) -> tuple[int, float, str]:
    """Measured before estimated, then the fastest; ties by key."""
    kind = {"measured": 0, "estimate": 1}.get(known.score_kind, 2)
    return kind, known.microseconds if known.microseconds is not None else float("inf"), known.program


def slower(found: Sequence[SimilarProgram], ratio: float) -> list[SimilarProgram]:
    """Those of another performance bucket: at least `ratio` times the first one's time, by the same kind of figure."""
    best = found[0]
    if best.microseconds is None:
        return []
    bound = ratio * best.microseconds
    return [one for one in found[1:] if one.score_kind == best.score_kind and (one.microseconds or 0.0) >= bound]


def kernel_object(archive: Archive, known: SimilarProgram) -> dict[str, Any]:
    """A kernel of the archive as JSON: its text, its knobs and its figures."""
    program = archive.program(known.program)
    return {
        "task_name": known.task_name,
        "program_key": known.program,
        "lane": program.form,
        "program": program.text,
        "knobs": program.knobs,
        "microseconds": known.microseconds,
        "score_kind": known.score_kind,
        "speedup_over_the_runs_first": known.score,
        "similarity": round(known.similarity, 4),
    }


def kernel_text(kernel: dict[str, Any]) -> str:
    """A kernel of the archive as text."""
    from hipwright.agents.base import fence

    figure = "no figure"
    if kernel["microseconds"] is not None:
        known = {"measured": "measured", "simulated": "in simulation"}
        how = known.get(kernel["score_kind"], "by static estimate")
        figure = f"{kernel['microseconds']:.4g} us {how}"
    knobs = ", ".join(f"{name} = {value}" for name, value in sorted(kernel["knobs"].items()))
    return f"{kernel['task_name']}: {figure}" + (f", knobs {knobs}" if knobs else "") + "\n" + fence(kernel["program"])


# ---------------------------------------------------------------- errors


def error_reply(error: HipwrightError) -> dict[str, Any]:
    """The object of a failed `--json` command, with a key for whose fault it is."""
    found = error_object(error)
    line = next((line for line in str(error.message).splitlines() if line.strip()), "")
    evidence = {key: value for key, value in found["evidence"].items() if key != "traceback"}
    fault = {"error": clean(line), "hint": clean(error.hint), "whose": error_owner(error)}
    return {**found, **fault, "evidence": evidence}
