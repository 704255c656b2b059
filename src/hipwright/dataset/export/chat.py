"""Chat for supervised training: system, user and assistant messages; and the words in which every format asks.

Only verified programs are taught. The answer is one code block with the whole program, its chosen knobs as defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hipwright.dataset.export.jsonl import JsonlSink
from hipwright.dataset.export.writing import (
    Columns,
    ExportFormat,
    ExportJob,
    ExportOptions,
    ExportSummary,
    ExportTable,
    LeftOut,
    write,
)
from hipwright.dataset.records import Pair
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Program, content_key

MESSAGES: Columns = {"messages": [{"role": "string", "content": "string"}]}
FACTS: Columns = {
    "task": "string",
    "task_name": "string",
    "difficulty": "string",
    "dtype": "string",
    "operators": ["string"],
    "families": ["string"],
}
_MORE: Columns = {"key": "string", "kind": "string", "coverage": "float64", "licence": "string"}

ASKS = {
    "translate": "Translate this reference into a program: the same outputs for the same inputs and parameters, fast.",
    "repair": "A program for this reference failed in the verifier. Repair it with the smallest change that helps.",
    "step": "Make this verified program faster without making it wrong.",
}


def facts(pair: Pair) -> dict[str, Any]:
    """What a row tells of its task, as in FACTS."""
    return {name: list(v) if isinstance(v := getattr(pair, name), tuple) else v for name in FACTS}


def user_prompt(pair: Pair) -> str:
    """What the user says: the reference, and for a repair or a step the program that it begins with."""
    kind = pair.kind if pair.kind in ASKS and pair.before is not None else "translate"
    parts = [ASKS[kind], f"## The reference\n{fence(pair.task_source, 'python')}"]
    if kind == "translate" or pair.before is None:
        return "\n\n".join([*parts, SHAPES])
    title = "The program that failed" if kind == "repair" else "The program to improve"
    parts.append(f"## {title}\n{answer(pair.before)}")
    if pair.evidence.strip():
        parts.append(
            f"## What {'the verifier found' if kind == 'repair' else 'is known of it'}\n{pair.evidence.strip()}"
        )
    return "\n\n".join([*parts, SHAPES])


SHAPES = "Other shapes are tried as well: read sizes from the tensors. Give the whole program."


def answer(program: Program) -> str:
    """The program as a code block, its chosen knobs written in."""
    return fence(settled_text(program), "python")


def settled_text(program: Program) -> str:
    """The program's text with its chosen knobs; one that is not Python stays as it is."""
    try:
        return text_with_knobs(program) if program.form == "program" and program.knobs else program.text
    except (SyntaxError, ValueError):
        return program.text


def fence(text: str, language: str = "") -> str:
    """`text` as a Markdown code block that it cannot close."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}{language}\n{text.strip(chr(10))}\n{marks}"


def prompt(pair: Pair, options: ExportOptions) -> list[dict[str, str]]:
    """The messages before the answer."""
    user = {"role": "user", "content": (options.user or user_prompt)(pair)}
    return [{"role": "system", "content": options.system}, user] if options.system else [user]


def fresh_prompt(pair: Pair, options: ExportOptions) -> list[dict[str, str]]:
    """The messages that ask for a pair's task from nothing, whatever the pair itself begins with."""
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


class ChatRows:
    """Rows to imitate: each verified program once for each prompt. Raises LeftOut for the others."""

    def __init__(self, options: ExportOptions) -> None:
        self.options = options
        self._taught: set[str] = set()

    def __call__(self, pair: Pair) -> dict[str, Any]:
        """prompt and completion, and what is known of the row."""
        if not pair.correct:
            raise LeftOut("a wrong program is not to be imitated")
        asked, said = prompt(pair, self.options), reply(pair.program)
        key = content_key(asked[-1]["content"], said[0]["content"])
        if key in self._taught:
            raise LeftOut("the same answer to the same prompt")
        self._taught.add(key)
        more = {"key": pair.key, "kind": pair.kind, "coverage": pair.coverage, "licence": pair.licence}
        return {"prompt": asked, "completion": said, **more, **facts(pair)}


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    lessons = ChatRows(job.options)

    def row(pair: Pair) -> dict[str, Any]:
        made = lessons(pair)
        return {"messages": made.pop("prompt") + made.pop("completion"), **made}

    job.each(pairs, row)


FORM = ExportFormat(
    name="sft",
    tables=(ExportTable({**MESSAGES, **_MORE, **FACTS}),),
    opener=JsonlSink,
    fill=_fill,
    about="Conversations: `messages` ends with the assistant's answer, one code block that holds a verified program. "
    "`kind` says what was asked: to translate a reference (engine, variant), to repair a wrong program, or to take one "
    "step to a faster one.",
)

LESSON_COLUMNS: Columns = {
    "prompt": MESSAGES["messages"],
    "completion": MESSAGES["messages"],
    **_MORE,
    **FACTS,
}


def export_sft(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Verified pairs as conversations."""
    return write(FORM, pairs, out, options)
