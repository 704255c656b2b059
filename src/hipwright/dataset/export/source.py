"""The `source` format: correct, ref_arch_src, kernel_src, level, problem_id, problem_name.

kernel_src is a file with a class ModelNew that builds its HIP kernels with torch.utils.cpp_extension.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable, LeftOut
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.jsonl import JsonlSink
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import Pair
from hipwright.errors import BadInput, HipwrightError
from hipwright.program.modelnew import export as modelnew
from hipwright.program.parse import parse
from hipwright.records import Program, content_key

LEVELS = {"easy": 1, "medium": 2, "hard": 3}
"""{difficulty: level}; the level of an unknown difficulty is 0."""

COLUMNS: Columns = {
    "correct": "bool",
    "ref_arch_src": "string",
    "kernel_src": "string",
    "level": "int64",
    "problem_id": "int64",
    "problem_name": "string",
}


def kernel_source(program: Program, task_source: str) -> str:
    """The program as a ModelNew file that compiles as Python. Raises HipwrightError where it cannot be converted."""
    if program.form == "modelnew":
        text = program.text
    else:
        text = modelnew.export(program, parse(program.text), task_source)
    try:
        with warnings.catch_warnings(action="ignore"):  # on invalid escapes in strings
            compile(text, "model_new.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"its ModelNew file is not Python: {error}") from None
    return text


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    problems: dict[str, int] = {}
    seen: set[str] = set()

    def row(pair: Pair) -> dict[str, Any]:
        key = content_key(pair.task, pair.program.key)
        if key in seen:
            raise LeftOut("the same kernel for the same problem")
        seen.add(key)
        try:
            kernel = kernel_source(pair.program, pair.task_source)
        except HipwrightError as error:
            if pair.correct:
                raise
            raise LeftOut("a wrong program that has no ModelNew form") from error
        return {
            "correct": pair.correct,
            "ref_arch_src": pair.task_source,
            "kernel_src": kernel,
            "level": LEVELS.get(pair.difficulty, 0),
            "problem_id": problems.setdefault(pair.task, len(problems)),
            "problem_name": pair.task_name,
        }

    job.put_each(pairs, row)


FORM = ExportFormat(
    name="source",
    tables=(ExportTable(COLUMNS),),
    opener=JsonlSink,
    fill=_fill,
    about="The record of the published system. `kernel_src` is a file with a class `ModelNew`, checked as Python; "
    "its build by `torch.utils.cpp_extension` has not run on an AMD machine here. What was verified is the program "
    "that it was written from. "
    "`level` is 1, 2 or 3 for an easy, medium or hard task; `problem_id` counts the tasks of this export.",
)


def export_source(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Correct and wrong pairs as ModelNew records."""
    return write(FORM, pairs, out, options)
