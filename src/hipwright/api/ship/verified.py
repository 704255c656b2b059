"""Whether a program that is exported from a file was verified: it is verified now, where nobody has said so."""

from __future__ import annotations

from hipwright.api.evaluate import judge_program
from hipwright.api.inputs import TaskSource
from hipwright.errors import CandidateError, InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.targets import CPU


def verified_on(task: TaskSource, program: Program) -> tuple[str, ...]:
    """Verifies the program on the cpu target; returns the targets on which it passed.

    Raises CandidateError where it fails, InfrastructureError where it could not be judged.
    """
    evaluation = judge_program(task, program, (CPU.name,)).evaluation
    if evaluation.passed:
        return passed_on(evaluation)
    said = f"the program is not verified for {task.name}: {evaluation.status}"
    said += f": {evaluation.message}" if evaluation.message else ""
    hint = "--unverified writes it all the same, and says so in its files"
    if evaluation.fault == "candidate":
        raise CandidateError(said, status=evaluation.status, hint=hint)
    raise InfrastructureError(said, hint=hint)


def passed_on(evaluation: Evaluation | None) -> tuple[str, ...]:
    """The targets with a verdict "pass", sorted."""
    results = evaluation.targets.items() if evaluation is not None else ()
    return tuple(sorted(name for name, one in results if one.verdict is not None and one.verdict.passed))
