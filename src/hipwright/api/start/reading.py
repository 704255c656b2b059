"""Reads a kernel file in any form: program, CUDA or HIP source, ModelNew, Triton. Nothing of a file is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hipwright import syntax
from hipwright.api.files import read_text
from hipwright.errors import BadInput, CandidateError, HipwrightError, ProgramError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew.check import form_of, vet
from hipwright.program.standalone import dialect_of, read_source
from hipwright.program.standalone.reading import source_line
from hipwright.records import Program
from hipwright.targets import TARGETS

PROMPT_LIMIT = 24_000
"""The characters of a start that a model's prompt shows at most."""
FORMS = {
    "program": "a program",
    "cuda": "CUDA source",
    "hip": "HIP source",
    "modelnew": "a ModelNew file",
    "triton": "a Triton kernel",
}
_HAS_PYTHON = re.compile(r"^(?:def|class|import|from)\s+\w", re.MULTILINE)
"""What a program with an error in its Python still has, and a C++ source has not."""


@dataclass(frozen=True)
class KernelFile:
    """A kernel file. form: a key of FORMS. program: None for a text that only a model's prompt can use; why: the
    reason. notes: what its conversion assumes, a sentence each.
    """

    name: str
    form: str
    text: str
    program: Program | None = None
    notes: tuple[str, ...] = ()
    why: str = ""

    def judged(self) -> Program:
        """The program. Raises BadInput for a text that cannot be judged."""
        if self.program is None:
            raise BadInput(f"{self.name}: {self.why}", hint="docs/start.md says which forms are judged, and how")
        return self.program

    def line(self, line: int, hazard: str) -> int:
        """The line of the file for a line of the program; 0 where the file has none, or the kind of hazard is settled.

        The converter gives CUDA's warps and names a meaning on every target, so warnings of those are none.
        """
        if self.form not in ("cuda", "hip") or self.program is None:
            return line
        settled = ("portability", "wave_size") if self.form == "cuda" else ()
        return 0 if hazard in settled else source_line(line, self.program.text, self.text)

    def setting(self) -> dict[str, Any]:
        """The run setting "start"; the text where no program holds it."""
        kept = {"text": self.text[:PROMPT_LIMIT], "why": self.why} if self.program is None else {}
        key = self.program.key if self.program else ""
        return {"name": self.name, "form": self.form, "program": key, "notes": list(self.notes), **kept}


def read_candidate(path: Path, task: str | None) -> KernelFile:
    """Reads a file. task: the text of its task, for which a CUDA or HIP source is converted.

    Raises BadInput for a file that cannot be read, or a source without a task; ProgramError, with the file's name, line
    and reason, for a source that cannot be converted.
    """
    text = read_text(path, "program")
    if dialect := dialect_of(path.name, text):
        return _converted(path.name, text, dialect, task)
    if "__global__" in text and not _HAS_PYTHON.search(text) and not _is_python(text):
        raise BadInput(
            f"{path.name} is no Python, and has __global__ functions: is it a CUDA or HIP source?",
            hint="its name must end with .cu or .hip then (docs/start.md)",
        )
    return _python(path.name, text)


def read_start(path: Path, task: str, targets: Sequence[str], *, model: bool) -> KernelFile:
    """Reads a start for a search. targets: where the program is judged; model: whether a model's prompt can use a text.

    Without a model, what cannot be judged raises as in `read_candidate`: nothing would use it.
    """
    try:
        found = read_candidate(path, task)
        if found.form == "program":
            parse(found.text)
    except ProgramError as error:
        if not model:
            raise _named(error, path.name) from None
        text = read_text(path, "program")
        form = dialect_of(path.name, text) or "program"
        return KernelFile(path.name, form, text, why=error.message)
    if found.form == "modelnew":
        _vet(found)
        try:
            converted = from_modelnew(found.text, task)
            return replace(found, program=converted, notes=("its kernels and host code as a program",))
        except ProgramError as error:
            why = error.message
        if any(TARGETS.is_gpu(name) for name in targets):
            return replace(found, notes=(f"judged as the ModelNew file that it is: {why}",))
        found = replace(found, program=None, why=f"without a GPU target a ModelNew file is judged as a program: {why}")
    if found.program is None and not model:
        raise BadInput(f"{path.name}: {found.why}", hint="docs/start.md says which forms are judged, and how")
    return found


def _converted(name: str, text: str, dialect: str, task: str | None) -> KernelFile:
    if task is None:
        raise BadInput(f"{name} is {FORMS[dialect]}, and is read for a task", hint="`hipwright eval TASK FILE` does")
    try:
        source = read_source(name, text, task)
    except ProgramError as error:
        raise _named(error, name) from None
    return KernelFile(name, dialect, text, source.program, tuple(source.notes))


def _named(error: ProgramError, name: str) -> ProgramError:
    """The error with the file's name before its line."""
    if error.message.startswith(f"{name}: "):
        return error
    named = ProgramError(f"{name}: {error.message}", hint=error.hint, evidence={"line": error.line})
    named.line = error.line
    return named


def _python(name: str, text: str) -> KernelFile:
    program = Program(form="modelnew" if form_of(text) == "modelnew" else "program", text=text)
    if program.form == "program" and _has_triton(text):
        why = "a Triton kernel without a class ModelNew has no host code, so it cannot be judged"
        return KernelFile(name, "triton", text, why=f"{why}: with --llm it is text for the model's prompt")
    return KernelFile(name, program.form, text, program)


def _vet(found: KernelFile) -> None:
    """Raises CandidateError with the file's name where the static rules of ModelNew files refuse it."""
    try:
        vet(found.text)
    except HipwrightError as error:
        raise CandidateError(f"{found.name}: {error.message}", hint=error.hint, status=error.status) from None


def _is_python(text: str) -> bool:
    try:
        syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _has_triton(text: str) -> bool:
    """Whether a Python text has a function with a decorator `triton.jit`, or `jit` and an import of triton."""
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    decorators = {ast.unparse(one).split("(")[0] for node in functions for one in node.decorator_list}
    return "triton.jit" in decorators or ("jit" in decorators and "triton" in text)
