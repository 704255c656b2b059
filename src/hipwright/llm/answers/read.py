"""Reads a model's answer into a program, or a repair prompt (docs/answers.md).

An answer is untrusted text: it is fixed mechanically where possible, checked by the real parser, and never executed.
`read_answer` raises for no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hipwright.errors import ProgramError
from hipwright.llm.answers.blocks import CodeBlock, blocks, until_prose
from hipwright.llm.answers.checks import check, hip_findings, python_findings
from hipwright.llm.answers.choose import Chosen, choose
from hipwright.llm.answers.python_fixes import fix_python, hip_of, parsed_of, tree_of
from hipwright.llm.answers.repair import AnswerProblem, AnswerRefused, UnusableAnswer, at_line, refuse, unusable
from hipwright.llm.answers.text import clean, without_reasoning
from hipwright.program.blanking import blank
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.records import Program, Record

MAX_ANSWER = 4_000_000  # characters of an answer
MAX_PROGRAM = 64_000  # characters of a program; typical ones have fewer than 20,000


class UsableAnswer(Record, frozen=True, kw_only=True):
    """A program that the parser accepts. mended: notes on the changes to the answer's text."""

    program: Program
    mended: tuple[str, ...] = ()


def read_answer(text: str, finish: str = "stop", *, task_source: str = "") -> UsableAnswer | UnusableAnswer:
    """Reads the program in a model's answer. Executes nothing and never raises.

    finish: as in llm.records.ModelAnswer. task_source: the reference; with it a ModelNew file that builds an extension
    is converted if possible (program/convert/modelnew.py), without it such a file is refused.
    """
    notes: list[str] = []
    try:
        return _read(text, finish, task_source, notes)
    except AnswerRefused as refused:
        return unusable(refused, tuple(dict.fromkeys(notes)))
    except RecursionError:
        return unusable(refuse("not_python", "the code is nested too deeply", "use more, simpler statements"), notes)


def _read(text: str, finish: str, task_source: str, notes: list[str]) -> UsableAnswer:
    if len(text) > MAX_ANSWER:
        raise _too_long(len(text))
    plain, done = clean(text)
    notes += done
    plain, thought, endless = without_reasoning(plain)
    notes += ["reasoning left out"] if thought else []
    if endless and not plain.strip():
        raise (
            _truncated()
            if finish == "length"
            else refuse("no_code", "it ends inside its own reasoning", "close the reasoning and write the program")
        )
    chosen = _chosen(blocks(plain), plain, finish)
    notes += chosen.notes
    if len(chosen.text) > MAX_PROGRAM:
        raise _too_long(len(chosen.text))
    program = _converted(chosen.text, task_source)
    if program is None:
        program = _program(chosen, finish, notes)
    else:
        notes.append("a ModelNew file with an extension converted to a program")
    return UsableAnswer(program=program, mended=tuple(dict.fromkeys(notes)))


def _chosen(found: list[CodeBlock], plain: str, finish: str) -> Chosen:
    try:
        return choose(found)
    except AnswerRefused as refused:
        if finish == "length" and refused.kind == "no_code":
            raise _truncated() from None
        if finish == "filtered" and refused.kind == "no_code":
            raise refuse(
                "filtered", "the provider held the answer back", "write the program only, without other text"
            ) from None
        if refused.kind == "no_code" and re.search(r"@triton\.jit|\btl\.load\b", plain):
            raise refuse(
                "unknown_api", "Triton is not there", "write the kernel in HIP C++ in HIP = r'''...'''"
            ) from None
        raise


def _converted(text: str, task_source: str) -> Program | None:
    """Converts a ModelNew file that builds an extension, if the task is known and the conversion works."""
    if not task_source or "load_inline" not in text or "class ModelNew" not in text:
        return None
    try:
        return from_modelnew(text, task_source)
    except Exception:  # the converter is not written for arbitrary text
        return None


# ---------------------------------------------------------------- one text


def _program(chosen: Chosen, finish: str, notes: list[str]) -> Program:
    if finish == "length" and not chosen.closed:
        raise _truncated()
    text = chosen.text
    if "__global__" in text and not re.search(r"\bdef[ \t]+(?:forward|prepare|backward)\b", text):
        _only_hip(text)
    text = _python(text, notes)
    text, done = fix_python(text)
    notes += done
    check(_findings(text))
    _elided(text)
    return _parsed(text.strip("\n") + "\n")


def _python(text: str, notes: list[str]) -> str:
    """Returns the text, without trailing prose if that makes it Python. Raises AnswerRefused."""
    fixed, _ = fix_python(text)
    try:
        tree_of(fixed)
        return text
    except SyntaxError as error:
        shorter = until_prose(text)
        if shorter.strip() != text.strip():
            try:
                tree_of(fix_python(shorter)[0])
            except SyntaxError:
                pass
            else:
                notes.append("prose after the code")
                return shorter
        raise _not_python(fixed, error) from None


def _not_python(text: str, error: SyntaxError) -> AnswerRefused:
    if launch := re.search(r"\b\w+[ \t]*<<<", _outside_literals(text)):
        line = text.count("\n", 0, launch.start()) + 1
        return AnswerRefused(
            "host_code",
            at_line(text, line, "a launch with <<< >>> is host code", "write name[grid, block](arguments) in forward"),
        )
    last = len(text.rstrip().split("\n"))
    said = error.msg or ""
    endless = "unterminated triple-quoted" in said or "was never closed" in said or "unexpected EOF" in said
    if (
        endless
        or ("expected an indented block" in said and (error.lineno or 0) >= last)
        or ((error.lineno or 0) >= last and _hangs(text))
    ):
        return _truncated()
    line = min(error.lineno or 1, last)
    return AnswerRefused("not_python", at_line(text, line, f"the text is not Python: {said}", "correct this line"))


def _hangs(text: str) -> bool:
    """Whether the last line stops in the middle of something."""
    return re.search(r"(?:[=,+\-*/(\[{.]|\b(?:def|if|for|in|return|assert|and|or|not|else))\s*\Z", text) is not None


def _outside_literals(text: str) -> str:
    """Python text with its triple-quoted strings blanked."""
    return re.sub(
        r"'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL
    )


def _only_hip(text: str) -> None:
    """Refuses HIP without a plan, with the most useful reason."""
    check(iter(sorted(hip_findings(text, text, 1), key=lambda f: f[1].line)))
    code = blank(text)
    if code.count("{") > code.count("}"):
        raise _truncated()
    raise refuse(
        "hip_only",
        "it has kernels and no plan",
        "keep the kernels in HIP = r'''...''' and add def forward(self, ...) that makes the outputs "
        "with torch.empty and launches "
        "them: name[grid, block](arguments)",
    )


def _findings(text: str) -> Iterator[tuple[str, AnswerProblem]]:
    tree = tree_of(text)
    yield from python_findings(tree, text)
    place = hip_of(tree)
    if place is not None:
        yield from hip_findings(place[1], text, place[0].lineno)


_ELIDED = re.compile(
    r"^[^\n]*(?:#|//|/\*)[^\n]{0,40}?(?:\.\.\.|…)[ \t]*\(?(?:rest|existing|same|unchanged|remaining|as before"
    r"|previous|your|the rest|omitted)\b[^\n]*"
    r"|^[ \t]*(?:#|//|/\*)[ \t]*(?:(?:the )?rest of (?:the )?(?:code|kernel|program|function|implementation)"
    r"|same as (?:before|above))(?: is)?(?: unchanged| here| omitted)?[ .…]*(?:\*/)?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


def _elided(text: str) -> None:
    """Refuses a program with an omitted part ("rest unchanged")."""
    if match := _ELIDED.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise AnswerRefused(
            "elided", at_line(text, line, "a part of the program is left out here", "write every line in full")
        )


def _parsed(text: str) -> Program:
    """Parses the program. Raises AnswerRefused with the parser's message."""
    if "__global__" not in text:
        raise refuse(
            "no_kernel",
            "it has a plan and no kernel",
            "add HIP = r'''...''' with kernels written extern \"C\" __global__ void name(...), and "
            "launch them in forward",
        )
    try:
        parsed = parsed_of(text)
    except ProgramError as error:
        message = error.message.removeprefix(f"line {error.line}: ")
        raise _parser_says(text, error.line, message) from None
    code = blank(parsed.hip)
    if code.count("{") > code.count("}"):
        raise _truncated()
    if not parsed.launched:
        raise refuse(
            "no_kernel",
            "the plan launches none of its kernels",
            "launch a kernel in forward: name[grid, block](arguments)",
        )
    return Program(text=text)


def _parser_says(text: str, line: int, message: str) -> AnswerRefused:
    said = message.split("; ", 1)
    change = (
        said[1]
        if len(said) == 2
        else "correct this line as docs/program.md says"
        if line
        else "write it in the program form"
    )
    return AnswerRefused(
        "not_a_program", at_line(text, line, message, change) if line else AnswerProblem(message=message, change=change)
    )


def _truncated() -> AnswerRefused:
    return refuse(
        "truncated",
        "it ends in the middle",
        "write a shorter whole program: fewer kernels, no variants, no comments and no text around it",
    )


def _too_long(characters: int) -> AnswerRefused:
    return refuse(
        "too_long",
        f"it has {characters} characters; a program has at most {MAX_PROGRAM}",
        "write a shorter whole program",
    )


__all__ = ["MAX_ANSWER", "MAX_PROGRAM", "UnusableAnswer", "UsableAnswer", "read_answer"]
