"""Repair prompts for unusable answers: what is wrong, on which line, and the exact change.

A repair prompt quotes a few short lines of the answer, without control characters or backticks, so that no answer can
end the quotation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from hipwright.records import Record

CLOSING = "Answer with the whole corrected program in one ```python block and nothing else."
SHOWN = 4  # problems that one prompt names
_QUOTE = 140  # characters


class UnusableAnswer(Record, frozen=True, kw_only=True):
    """An answer without a usable program. kind: of docs/answers.md. message: one line. repair: the next prompt.

    salvaged: notes on the fixes made before the refusal.
    """

    kind: str
    message: str
    repair: str
    salvaged: tuple[str, ...] = ()


class AnswerProblem(Record, frozen=True, kw_only=True):
    """One problem with its change. line: of the program's text, from 1 (0: none). quote: that line."""

    message: str
    change: str
    line: int = 0
    quote: str = ""


class AnswerRefused(Exception):
    """Raised when an answer is refused; `read_answer` catches it."""

    def __init__(self, kind: str, *problems: AnswerProblem) -> None:
        super().__init__(kind)
        self.kind = kind
        self.problems = problems


def refuse(kind: str, message: str, change: str) -> AnswerRefused:
    """Returns a refusal with one problem without a line."""
    return AnswerRefused(kind, AnswerProblem(message=message, change=change))


def at_line(text: str, line: int, message: str, change: str) -> AnswerProblem:
    """Returns a problem on a line of a text."""
    lines = _lines(text)
    return AnswerProblem(
        message=message, change=change, line=line, quote=quoted(lines[line - 1]) if line <= len(lines) else ""
    )


@lru_cache(maxsize=2)
def _lines(text: str) -> tuple[str, ...]:
    """Cached, since a hostile text may have a problem on every line."""
    return tuple(text.split("\n"))


def quoted(line: str) -> str:
    """A line for quotation in a prompt: printable, no backticks, at most 140 characters."""
    plain = re.sub(r"[`\s]+", " ", "".join(c for c in line[: 4 * _QUOTE] if c.isprintable() or c == "\t")).strip()
    return plain if len(plain) <= _QUOTE else plain[: _QUOTE - 3] + "..."


def unusable(refused: AnswerRefused, salvaged: Sequence[str]) -> UnusableAnswer:
    """Returns the record of a refusal."""
    first = refused.problems[0]
    message = f"line {first.line}: {first.message}" if first.line else first.message
    return UnusableAnswer(kind=refused.kind, message=message, repair=prompt(refused.problems), salvaged=tuple(salvaged))


def prompt(problems: Sequence[AnswerProblem]) -> str:
    """Returns the repair prompt of some problems."""
    parts = ["Your last answer cannot be used."]
    for problem in problems[:SHOWN]:
        where = f"Line {problem.line} (`{problem.quote}`): " if problem.line and problem.quote else ""
        parts.append(f"- {where}{_sentence(problem.message)} Change: {_sentence(problem.change)}")
    if len(problems) > SHOWN:
        parts.append(f"- {len(problems) - SHOWN} more lines have the same kind of problem.")
    return "\n".join([*parts, CLOSING])


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
