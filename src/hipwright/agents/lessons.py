"""The lessons role: a run's failures grouped by kind, with counts and guidance.

Grouping and counts come from the log. The guidance of each kind is written here; a model may word it instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hipwright.agents.base import render
from hipwright.agents.evidence import clean, deciding_verdict, reason
from hipwright.records import Evaluation, Record
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.search.view import SearchView, Trial

NAME = "lessons"
MOST = 5

_KINDS: tuple[tuple[str, str, str], ...] = (
    # kind, pattern of "status: message", guidance
    ("form", r"^parse_error", "Stay within the program form: only what the form's rules name exists in a plan."),
    (
        "types",
        r"^compile_error.*(undeclared|unknown type|no matching|no member)",
        "Use plain HIP that exists on AMD: declare before use, and call no CUDA-only function.",
    ),
    ("compile", r"^compile_error", "Keep kernels simple enough to be sure that they compile."),
    (
        "race",
        r"data race|^nondeterministic",
        "Put a __syncthreads() between a write of shared memory and another "
        "thread's read of it, also between two rounds of a loop.",
    ),
    (
        "barrier",
        r"barrier divergence",
        "Every thread of a block must reach the same __syncthreads(): guard the work, "
        "never the barrier, and do not return early before one.",
    ),
    ("lds", r"LDS bytes", "Static and dynamic LDS together stay below the limit of the target."),
    ("bounds", r"^out_of_bounds", "Guard every load and store by the tensor's true size; shapes differ between calls."),
    (
        "unwritten",
        r"uninitialised",
        "Every element of an output must be written, the tail too: torch.empty holds garbage.",
    ),
    ("overflow", r"NaN and Inf must stand", "Take the maximum out before exp; accumulate in float."),
    ("layout", r"not contiguous|strided", "Inputs may be strided: call .contiguous() in the plan, or use strides."),
    ("spec", r"^bad_output_spec", "Give exactly the reference's output structure, dtype and shape."),
    ("guard", r"an assert refuses", "A guard must accept the task's own inputs."),
    ("hang", r"^timeout", "Every loop needs a step that is not 0 and a bound that is met."),
    ("launch", r"^launch_error", "Check the grid, the block (at most 1024 threads) and each argument's dtype."),
    ("inputs", r"^input_mutated", "Never write to inputs or parameters."),
    (
        "value",
        r"^wrong_value",
        "Re-derive the formula from the reference: axis, eps, bias, broadcasting, accumulation in float.",
    ),
    (
        "refused",
        r"^(hack|untrusted|impossible)",
        "Do the reference's work in kernels; results from elsewhere are refused.",
    ),
)


class Lesson(Record, frozen=True, kw_only=True):
    """Failures of one kind. count: trials; of: all judged trials; numbers: the proposals, oldest first."""

    kind: str
    guidance: str
    count: int
    of: int
    numbers: tuple[int, ...] = ()
    example: str = ""

    @property
    def text(self) -> str:
        """The lesson with its count, as one line for a prompt."""
        return f"{self.guidance} (seen in {self.count} of {self.of} programs; the last: {self.example})"


def kind_of(evaluation: Evaluation) -> str:
    """The kind of a failure; "other" where no pattern matches."""
    _, verdict = deciding_verdict(evaluation)
    return kind_of_message(f"{evaluation.status}: {verdict.message if verdict else evaluation.message}")


def kind_of_message(text: str) -> str:
    """The kind of a failure given as "status: message"."""
    return next((kind for kind, pattern, _ in _KINDS if re.search(pattern, text)), "other")


def guidance(kind: str) -> str:
    """The guidance for failures of a kind."""
    return next((text for name, _, text in _KINDS if name == kind), "Look at the last message of this kind.")


def lessons(view: SearchView) -> list[Lesson]:
    """The lessons of a run, the most frequent kind first; ties by name. Machine faults are left out."""
    judged = [t for t in view.trials if t.evaluation is not None and t.evaluation.fault not in INFRASTRUCTURE]
    groups: dict[str, list[Trial]] = {}
    for trial in judged:
        if trial.evaluation is not None and not trial.passed:
            groups.setdefault(kind_of(trial.evaluation), []).append(trial)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Lesson(
            kind=kind,
            guidance=guidance(kind),
            count=len(group),
            of=len(judged),
            numbers=tuple(trial.number for trial in group),
            example=reason(group[-1].evaluation) if group[-1].evaluation else "",
        )
        for kind, group in ordered[:MOST]
    ]


def recent_failures(view: SearchView, most: int) -> list[str]:
    """The last failures, oldest first: one line each with what was tried and why it failed."""
    lines = []
    for trial in view.trials:
        if trial.evaluation is None or trial.passed or trial.evaluation.fault in INFRASTRUCTURE:
            continue
        lines.append(f"#{trial.number}, {_tried(trial)}: {reason(trial.evaluation)}")
    return lines[-most:] if most else []


def _tried(trial: Trial) -> str:
    """The operator of a trial, with the planned strategy if any."""
    plan = trial.proposed.notes.get("plan")
    if isinstance(plan, Mapping) and plan.get("title"):
        return f"{trial.proposed.expansion.operator} ({clean(str(plan['title']), 80)})"
    return trial.proposed.expansion.operator


# ---------------------------------------------------------------- by a language model


def guidance_prompt(found: Sequence[Lesson]) -> str:
    """Returns the prompt that asks a model for one sentence of guidance per kind."""
    return render("lessons", groups=[(one.kind, one.count, one.of, one.example) for one in found])


def with_guidance(found: Sequence[Lesson], text: str) -> list[Lesson]:
    """Returns the lessons with the guidance that an answer gives, where it gives one; counts are unchanged."""
    match = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        answer = json.loads(match.group()) if match else {}
    except (ValueError, RecursionError):
        return list(found)
    answers = {k: v for k, v in answer.items() if isinstance(v, str) and v.strip()} if isinstance(answer, dict) else {}
    return [replace(one, guidance=clean(answers.get(one.kind, one.guidance), 240)) for one in found]
