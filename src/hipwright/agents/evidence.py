"""Formats verdicts and figures as short text for a prompt: why a program failed, or how fast a correct one is.

The text reveals at most one expected element and never a seed. It holds nothing that differs between machines: no path,
no address, no local time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hipwright.agents.base import fence
from hipwright.archive import Counted
from hipwright.measure.describe import describe_device, describe_interval
from hipwright.measure.fit import FITTED
from hipwright.records import Evaluation, KernelResources, Program, TargetResult, Verdict
from hipwright.targets import TARGETS

FAMILIES = {
    "given": "the task's own kind of inputs",
    "shifted": "values with a large mean: sums of squares cancel",
    "outliers": "a few values of 20 to 100 among normal ones",
    "tiny": "very small values",
    "large": "large values: exp and sums of squares overflow unless the maximum is taken out first",
    "scales": "every value of its own magnitude, up to 1000",
    "zeros90": "nine values of ten are zero",
    "constant_rows": "every row holds one value, or zeros: variances are zero, and norms in places",
    "sorted": "rows in order",
    "cancelling": "pairs that nearly cancel",
    "mantissa": "values whose last bits count: a shorter format on the way loses them",
    "ties": "many equal values",
    "denormals": "half of the values are denormal",
    "strided": "inputs that are not contiguous",
    "masks_on": "masks that are all true",
    "masks_off": "masks that are all false",
}
ADVICE = {
    "parse_error": "The file does not follow the program form; nothing was compiled.",
    "compile_error": "The HIP source does not compile.",
    "launch_error": "A launch or the plan failed.",
    "timeout": "A kernel did not end: look for a loop whose step is 0 or whose bound is never met.",
    "out_of_bounds": "A thread touches memory outside its buffer: compare the index with the tensor's size there.",
    "bad_output_spec": "The output's structure, dtype, shape or layout is not the reference's.",
    "nondeterministic": "The result depends on the order of threads, or on memory that nobody wrote.",
    "input_mutated": "An input or a parameter was written to; write to a tensor from torch.empty instead.",
    "hack": "The verifier refuses this way of getting a result.",
}
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_PATH = re.compile(r"(?<![\w.)])(?:/[\w.+@-]+){2,}")
_LOCATED = re.compile(r"kernel\.hip:(\d+):(\d+): (fatal error|error|warning|note): (.*)")
_MESSAGE, _ERRORS = 600, 4


def clean(text: str, limit: int = _MESSAGE) -> str:
    """Returns `text` as one line without addresses and paths, cut at `limit` characters."""
    line = " ".join(_PATH.sub(_last_part, _ADDRESS.sub("an address", text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def evidence(evaluation: Evaluation, program: Program) -> str:
    """A list of why a program failed; for a program that passed, its figures."""
    if evaluation.passed:
        return figures(evaluation)
    target, verdict = deciding_verdict(evaluation)
    if verdict is None:
        return f"- verdict: {evaluation.status}\n- {clean(evaluation.message)}"
    where = f" on {target}" if target and verdict.stage not in ("parse", "lint") else ""
    lines = [f"verdict: {verdict.status}, found at stage {verdict.stage}{where}"]
    if verdict.status in ADVICE:
        lines.append(ADVICE[verdict.status])
    lines += _compiler(verdict, program) if verdict.status == "compile_error" else [_message(verdict, program)]
    lines += _inputs(verdict)
    lines += _element(verdict)
    lines += _place(verdict, program)
    if worst := verdict.worst_error:
        lines.append(f"worst error: {worst:.3g} times the tolerance")
    if done := verdict.checks.get("families"):
        lines.append(f"input families that passed before: {', '.join(done)}")
    return "\n".join(f"- {line}" for line in lines)


def reason(evaluation: Evaluation) -> str:
    """A failure in one line: status and message, without the name of the inputs."""
    _, verdict = deciding_verdict(evaluation)
    message = verdict.message if verdict is not None else evaluation.message
    return f"{evaluation.status}: {clean(re.sub(r' [(]on [^()]*[)]$', '', message), 200)}"


def deciding_verdict(evaluation: Evaluation) -> tuple[str, Verdict | None]:
    """Returns the target and the verdict that decided a failure; ("", None) where no verdict failed."""
    failed = {name: r.verdict for name, r in evaluation.targets.items() if r.verdict and not r.verdict.passed}
    for name in sorted(failed):
        if failed[name].message == evaluation.message:
            return name, failed[name]
    first = min(failed, default="")
    return first, failed.get(first)


# ---------------------------------------------------------------- parts of a failure


def _compiler(verdict: Verdict, program: Program) -> list[str]:
    """The compiler's errors, each with its line of the program file; notes and other files are left out."""
    found = _LOCATED.findall(str(verdict.evidence.get("log", "")))
    errors = [(int(line), text) for line, _, kind, text in found if "error" in kind]
    if not errors:
        return [clean(verdict.message)]
    shift, lines = _hip_line(program.text) - 1, program.text.splitlines()
    described = []
    for line, text in errors[:_ERRORS]:
        number = line + shift
        source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        described.append(f"line {number}: {clean(text, 300)}" + (f": `{source}`" if source else ""))
    if len(errors) > _ERRORS:
        described.append(f"and {len(errors) - _ERRORS} more errors")
    return described


def _inputs(verdict: Verdict) -> list[str]:
    if not verdict.workload:
        return []
    shapes = ", ".join(str(item) for item in verdict.evidence.get("inputs", []))
    meaning = FAMILIES.get(verdict.family, "")
    family = f", values of kind {verdict.family!r}" + (f" ({meaning})" if meaning else "") if verdict.family else ""
    return [f"inputs: {shapes or verdict.workload}{family}"]


def _element(verdict: Verdict) -> list[str]:
    """Details beyond the message: number of wrong elements, tolerance of the first one, launches."""
    details, lines = verdict.evidence, []
    if details.get("wrong_elements") and "elements wrong" not in verdict.message:
        lines.append(f"{details['wrong_elements']} of {details.get('elements')} elements wrong")
    if details.get("tolerance") is not None:
        lines.append(f"tolerance of that element: {details['tolerance']:.3g}")
    if launched := details.get("launches"):
        shapes = [f"{one['kernel']}[{_size(one.get('grid'))}, {_size(one.get('block'))}]" for one in launched]
        lines.append(f"launched, with grid and block: {'; '.join(shapes[:6])}")
    return lines


def _place(verdict: Verdict, program: Program) -> list[str]:
    """The invalid access, and the program lines that the evidence names."""
    details, found = verdict.evidence, list[str]()
    if details.get("argument") and details.get("element") is not None:
        held = details.get("elements")
        size = f"; the tensor has shape {list(held)}" if isinstance(held, (list, tuple)) else ""
        found.append(
            f"element {details['element']} of argument {details['argument']} ({details.get('kind', 'access')}){size}"
        )
    other = details.get("other")
    named = [details.get("line"), other.get("line") if isinstance(other, Mapping) else None]
    shift = 0 if _has_file_lines(verdict) else _hip_line(program.text) - 1
    numbers = [number + shift for number in dict.fromkeys(named) if isinstance(number, int) and number > 0]
    lines = program.text.splitlines()
    return found + [
        f"line {n} is `{lines[n - 1].strip()}`" for n in numbers if n <= len(lines) and lines[n - 1].strip()
    ]


def _has_file_lines(verdict: Verdict) -> bool:
    """Whether line numbers count from the file's start (plan, parser) and not from the HIP source's (kernel)."""
    return verdict.message.startswith("line ") or "kernel" not in verdict.evidence


def _message(verdict: Verdict, program: Program) -> str:
    """The message with line numbers of the program file, without the inputs' name, which is a separate line."""
    text = re.sub(r" [(]on [^()]*[)]$", "", verdict.message)
    if _has_file_lines(verdict):
        return clean(text)
    shift = _hip_line(program.text) - 1
    return clean(re.sub(r"\bline (\d+)", lambda match: f"line {int(match[1]) + shift}", text))


def _size(value: Any) -> str:
    return "x".join(str(part) for part in value) if isinstance(value, (list, tuple)) else str(value)


def _hip_line(text: str) -> int:
    """The line of the program file where its HIP source starts."""
    start = re.search(r"^HIP\s*=\s*[rR](?:'''|\"\"\")", text, re.MULTILINE)
    return text.count("\n", 0, start.end()) + 1 if start else 1


def _last_part(match: re.Match[str]) -> str:
    return match.group().rsplit("/", 1)[-1]


# ---------------------------------------------------------------- figures of a verified program


def figures(evaluation: Evaluation) -> str:
    """The figures of a program that passed: estimate or timing, resources, instruction mix, library share."""
    lines = list(_score(evaluation))
    for name in sorted(evaluation.targets):
        lines += _target(name, evaluation.targets[name])
    if evaluation.library:
        parts = [f"{op} ({share:.0%})" for op, share in sorted(evaluation.library.items())]
        lines.append(f"left to the library, with the share of the reference's modelled cost: {', '.join(parts)}")
    worst = [r.verdict.worst_error for r in evaluation.targets.values() if r.verdict and r.verdict.worst_error]
    if worst:
        lines.append(f"verified; worst error {max(worst):.2g} of the tolerance")
    return "\n".join(f"- {line}" for line in lines)


def counter_lines(counted: Counted | None) -> list[str]:
    """A profile's finding and figures as lines; [] without a profile."""
    if counted is None or not counted.profiled or not counted.limit:
        return []
    shown = ", ".join(f"{name} {value:.4g}" for name, value in sorted(counted.figures.items()))
    return [f"by {counted.source}: limited by {counted.limit}: {counted.text}", f"of {counted.kernel}: {shown}"]


def describe_score(evaluation: Evaluation) -> str:
    """The score with its kind, such as "4.78 us by static estimate"."""
    if evaluation.score is None:
        return "no figure"
    how = {"measured": "measured", "simulated": "in simulation"}.get(evaluation.score_kind, "by static estimate")
    return f"{evaluation.score:.4g} us {how}"


def _score(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.score is not None:
        yield describe_score(evaluation)
    yield f"its own kernels do {evaluation.coverage:.0%} of the reference's modelled work"


def _target(name: str, result: TargetResult) -> Iterator[str]:
    if (found := result.estimate) is not None:
        share = f"{found.roofline_fraction:.1%} of the roofline"
        yield f"{name}, static estimate: {found.microseconds:.4g} us, {found.bound}-bound, {share}"
        parts = [row for row in found.detail if row["kind"] != FITTED]
        for row in sorted(parts, key=lambda row: (-row["seconds"], row["name"]))[:6]:
            yield f"{name}: {_row(row)}"
    if (timing := result.timing) is not None:
        yield f"{describe_device(name, timing)}: {timing.median_ms:.4g} ms" + "".join(
            f", {describe_interval(one.speedup, one.interval)} against {base}"
            for base, one in sorted(timing.versus.items())
        )
    if result.build is not None and not TARGETS.is_host(name):
        for kernel in result.build.kernels[:6]:
            yield f"{name}: {resources(kernel)}"


def _row(row: Mapping[str, Any]) -> str:
    if row["kind"] == "library":
        return f"library {row['name']}: {1e6 * row['seconds']:.4g} us, {row['bound']}-bound"
    again = f", {row['reread_bytes']:.4g} bytes read again" if row.get("reread_bytes") else ""
    return (
        f"launch of {row['name']}: {1e6 * row['seconds']:.4g} us, {row['bound']}-bound; memory "
        f"{1e6 * row['memory_seconds']:.4g} us at {row['bandwidth_efficiency']:.0%} of the bandwidth, issue "
        f"{1e6 * row['issue_seconds']:.4g} us; {row['bytes']:.4g} bytes{again}"
    )


def resources(kernel: KernelResources) -> str:
    """One kernel's registers, LDS, spills, occupancy and instruction mix as one line."""
    mix = ", ".join(f"{count} {kind}" for kind, count in sorted(kernel.instructions.items()) if count)
    return (
        f"kernel {kernel.name}: {kernel.vgpr} VGPRs, {kernel.sgpr} SGPRs, {kernel.lds_bytes} bytes of LDS, "
        f"{kernel.spills} spills, occupancy {kernel.occupancy} waves a SIMD, widest access {kernel.widest_vmem_bytes} "
        f"bytes a lane" + (f"; instructions: {mix}" if mix else "")
    )


def program_block(program: Program) -> str:
    """A program as a Markdown block that its text cannot close, with the knobs that it ran with."""
    block = fence(program.text, "python")
    knobs = ", ".join(f"{name} = {value}" for name, value in sorted(program.knobs.items()))
    return f"{block}\nrun with {knobs}" if knobs else block
