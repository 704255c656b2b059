"""The `sft` format: conversations with verified programs as answers; and the prompts of all formats.

An answer is one code block with the whole program, with its chosen knobs as defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable, LeftOut
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.jsonl import JsonlSink
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import Pair
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Program, content_key

MESSAGES: Columns = {"messages": [{"role": "string", "content": "string"}]}
TASK_COLUMNS: Columns = {
    "task": "string",
    "task_name": "string",
    "difficulty": "string",
    "dtype": "string",
    "operators": ["string"],
    "families": ["string"],
}
ROW_COLUMNS: Columns = {
    "key": "string",
    "kind": "string",
    "gain": "float64",
    "gain_by": "string",
    "coverage": "float64",
    "licence": "string",
}
"""gain: the share of the time that a step saves, 0 for other rows; gain_by: "estimate", or the measurement's name."""

INSTRUCTIONS = {
    "translate": "Translate this reference into a program: the same outputs for the same inputs and parameters, fast.",
    "repair": "A program for this reference failed in the verifier. Repair it with the smallest change that helps.",
    "step": "Make this verified program faster without making it wrong.",
}


def task_facts(pair: Pair) -> dict[str, Any]:
    """The values of TASK_COLUMNS for a pair."""
    return {name: list(v) if isinstance(v := getattr(pair, name), tuple) else v for name in TASK_COLUMNS}


def user_prompt(pair: Pair) -> str:
    """The user message: the reference, and for a repair or a step the program to start from."""
    kind = pair.kind if pair.kind in INSTRUCTIONS and pair.before is not None else "translate"
    parts = [INSTRUCTIONS[kind], f"## The reference\n{fence(pair.task_source, 'python')}"]
    if kind == "translate" or pair.before is None:
        return "\n\n".join([*parts, SHAPES_NOTE])
    title = "The program that failed" if kind == "repair" else "The program to improve"
    parts.append(f"## {title}\n{answer(pair.before)}")
    if pair.evidence.strip():
        parts.append(
            f"## What {'the verifier found' if kind == 'repair' else 'is known of it'}\n{pair.evidence.strip()}"
        )
    return "\n\n".join([*parts, SHAPES_NOTE])


SHAPES_NOTE = "Other shapes are tried as well: read sizes from the tensors. Give the whole program."


def answer(program: Program) -> str:
    """The program as a code block, with its chosen knobs as defaults."""
    return fence(settled_text(program), "python")


def settled_text(program: Program) -> str:
    """The program's text with its chosen knobs as defaults; a text that is not Python is returned unchanged."""
    try:
        return text_with_knobs(program) if program.form == "program" and program.knobs else program.text
    except (SyntaxError, ValueError):
        return program.text


def fence(text: str, language: str = "") -> str:
    """`text` as a Markdown code block, fenced with more backticks than the text has in a row."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}{language}\n{text.strip(chr(10))}\n{marks}"


def prompt(pair: Pair, options: ExportOptions) -> list[dict[str, str]]:
    """The messages before the answer."""
    user = {"role": "user", "content": (options.user or user_prompt)(pair)}
    return [{"role": "system", "content": options.system}, user] if options.system else [user]


def fresh_prompt(pair: Pair, options: ExportOptions) -> list[dict[str, str]]:
    """The messages that ask to translate a pair's task, also for repairs and steps."""
    bare = Pair(
        task=pair.task,
        task_name=pair.task_name,
        task_source=pair.task_source,
        program=pair.program,
        kind="engine",
        correct=pair.correct,
        status=pair.status,
    )
    return prompt(bare, options)


def reply(program: Program) -> list[dict[str, str]]:
    """The answer, as messages."""
    return [{"role": "assistant", "content": answer(program)}]


def step_gain(pair: Pair) -> dict[str, Any]:
    """The recorded gain of a step, as the columns `gain` and `gain_by`; 0 and "" for other rows."""
    made = pair.provenance.get("made")
    if pair.kind != "step" or not isinstance(made, dict):
        return {"gain": 0.0, "gain_by": ""}
    gain = made.get("gain")
    if not isinstance(gain, (int, float)) or not isfinite(gain):
        return {"gain": 0.0, "gain_by": ""}
    return {"gain": float(gain), "gain_by": str(made.get("gain_by", ""))}


class ChatRows:
    """Rows of supervised training: each verified program once for each prompt. Raises LeftOut for other pairs."""

    def __init__(self, options: ExportOptions) -> None:
        self.options = options
        self._seen: set[str] = set()

    def __call__(self, pair: Pair) -> dict[str, Any]:
        """The row of a pair: prompt, completion, and further columns."""
        if not pair.correct:
            raise LeftOut("a wrong program is not to be imitated")
        messages, completion = prompt(pair, self.options), reply(pair.program)
        key = content_key(messages[-1]["content"], completion[0]["content"])
        if key in self._seen:
            raise LeftOut("the same answer to the same prompt")
        self._seen.add(key)
        more = {
            "key": pair.key,
            "kind": pair.kind,
            **step_gain(pair),
            "coverage": pair.coverage,
            "licence": pair.licence,
        }
        return {"prompt": messages, "completion": completion, **more, **task_facts(pair)}


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    chat_rows = ChatRows(job.options)

    def row(pair: Pair) -> dict[str, Any]:
        made = chat_rows(pair)
        return {"messages": made.pop("prompt") + made.pop("completion"), **made}

    job.put_each(pairs, row)


FORM = ExportFormat(
    name="sft",
    tables=(ExportTable({**MESSAGES, **ROW_COLUMNS, **TASK_COLUMNS}),),
    opener=JsonlSink,
    fill=_fill,
    about="Conversations: `messages` ends with the assistant's answer, one code block that holds a verified program. "
    "`kind` says what was asked: to translate a reference (engine, variant), to repair a wrong program, or to take one "
    "step to a faster one.",
)

PROMPT_COMPLETION_COLUMNS: Columns = {
    "prompt": MESSAGES["messages"],
    "completion": MESSAGES["messages"],
    **ROW_COLUMNS,
    **TASK_COLUMNS,
}


def export_sft(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Verified pairs as conversations."""
    return write(FORM, pairs, out, options)
