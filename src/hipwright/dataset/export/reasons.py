"""The `reasons` format: conversations as in `sft`, whose answers say in a few sentences why, before the program.

The sentences are the engine's, from what is recorded of a row (dataset/reasons.py): bottleneck, plan, change, effect.
They are short by a rule: a limit of words by the task's difficulty, and none for easy translations, which are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hipwright.dataset.export.chat import MESSAGES, ROW_COLUMNS, TASK_COLUMNS, ChatRows, answer
from hipwright.dataset.export.format import ExportOptions, ExportSummary, ExportTable, LeftOut
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.jsonl import JsonlSink
from hipwright.dataset.export.writing import write
from hipwright.dataset.reasons import TooLittle, reasons_of
from hipwright.dataset.records import Pair

PARTS = ("bottleneck", "plan", "change", "effect")


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    chat_rows = ChatRows(job.options)

    def row(pair: Pair) -> dict[str, Any]:
        made = chat_rows(pair)
        try:
            found = reasons_of(pair)
        except TooLittle as error:
            raise LeftOut(str(error)) from None
        said = [{"role": "assistant", "content": f"{found.text}\n\n{answer(pair.program)}"}]
        del made["completion"]
        parts = {name: getattr(found, name) for name in PARTS}
        return {"messages": made.pop("prompt") + said, **parts, "words": found.words, **made}

    job.put_each(pairs, row)


FORM = ExportFormat(
    name="reasons",
    tables=(
        ExportTable(
            {
                **MESSAGES,
                **dict.fromkeys(PARTS, "string"),
                "words": "int64",
                **ROW_COLUMNS,
                **TASK_COLUMNS,
            }
        ),
    ),
    opener=JsonlSink,
    fill=_fill,
    about="Conversations whose answers begin with reasons: `bottleneck`, `plan`, `change` and `effect` in a few "
    "sentences, then one code block with a verified program. The reasons are the engine's, from recorded facts. `gain` "
    "is the share of the time that a step saves, by `gain_by` (an estimate, or a measurement).",
)


def export_reasons(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Verified pairs as conversations with reasons."""
    return write(FORM, pairs, out, options)
