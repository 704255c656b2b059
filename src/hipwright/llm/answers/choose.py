"""Selects the program among an answer's blocks: one whole text, or a HIP block and a plan joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hipwright.llm.answers.blocks import CodeBlock
from hipwright.llm.answers.repair import AnswerRefused, refuse

_FINAL = re.compile(r"\b(?:final|corrected|fixed|revised|improved|complete|full|whole|optimi[sz]ed)\b", re.IGNORECASE)
_DRAFT = re.compile(
    r"\b(?:draft|first (?:version|attempt|try)|initial|na[iï]ve|wrong|incorrect|buggy|broken"
    r"|original|sketch|"
    r"do not use|for reference|baseline|attempt 1)\b",
    re.IGNORECASE,
)
_KERNEL = re.compile(r"\b__global__\b[^(){};]{0,300}?\b(\w+)[ \t\n]*\(")
_BOUNDS = re.compile(r"__(?:launch_bounds|attribute)__[ \t]*\([^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200}){0,4}\)")
_FORM = "HIP = r'''...''' with the kernels, then def forward(self, ...) that launches them"


def kernel_names(text: str) -> list[str]:
    """The names that follow __global__, in order."""
    return _KERNEL.findall(_BOUNDS.sub(" ", text))


@dataclass(frozen=True)
class Chosen:
    """The selected text. closed: its fences were closed."""

    text: str
    closed: bool
    notes: tuple[str, ...] = ()


def choose(found: Sequence[CodeBlock]) -> Chosen:
    """Selects the program. Raises AnswerRefused if there is none, or more than one."""
    useful = [b for b in found if b.kind != "none"]
    programs = _distinct([b for b in useful if b.kind == "program"])
    if any(b.kind == "diff" for b in useful) and not programs:
        raise refuse(
            "patch",
            "the answer is a patch, and a patch is not applied",
            "write the whole program with the changes in it",
        )
    if programs:
        return _one_program(programs, useful)
    plans, hips = (_distinct([b for b in useful if b.kind == kind]) for kind in ("plan", "hip"))
    if plans and hips:
        return _joined(_only(plans, "plan"), hips)
    if plans:
        return Chosen(_only(plans, "plan").text, _only(plans, "plan").closed, _notes(plans[-1]))
    if hips:
        return Chosen(hips[-1].text, hips[-1].closed, _notes(hips[-1]))
    raise refuse("no_code", "there is no program in it", f"write one: {_FORM}")


def _notes(block: CodeBlock, *more: str) -> tuple[str, ...]:
    return (*block.notes, *more)


def _distinct(given: Sequence[CodeBlock]) -> list[CodeBlock]:
    """Removes repeats (ignoring whitespace); the later of two equal blocks stays, with the prose before it."""
    kept: dict[str, CodeBlock] = {}
    for block in given:
        text = "\n".join(line.rstrip() for line in block.text.strip().split("\n"))
        again = kept.pop(text, None)
        kept[text] = replace(block, notes=(*block.notes, "the same code twice")) if again else block
    return list(kept.values())


def _one_program(programs: list[CodeBlock], useful: Sequence[CodeBlock]) -> Chosen:
    chosen = _only(programs, "program")
    index = max(i for i, b in enumerate(useful) if b.text.strip() == chosen.text.strip())
    own = set(kernel_names(chosen.text))
    for block in useful[index + 1 :]:
        changed = own & set(kernel_names(block.text))
        if block.kind == "hip" and changed and block.text.strip() not in chosen.text:
            name = min(changed)
            raise refuse(
                "two_programs",
                f"after the program the kernel {name} is written again, differently",
                f"give one program that holds the version of {name} you mean",
            )
    ignored = [b for b in useful if b.kind in ("hip", "plan", "diff")]
    return Chosen(chosen.text, chosen.closed, _notes(chosen, *(["other blocks left out"] if ignored else [])))


def _only(given: Sequence[CodeBlock], what: str) -> CodeBlock:
    """The only block, or the one that is clearly final. Raises AnswerRefused("two_programs")."""
    if len(given) == 1:
        return given[0]
    final = [b for b in given if _marks(b, _FINAL) and not _marks(b, _DRAFT)]
    drafts = [b for b in given if _marks(b, _DRAFT)]
    if final == [given[-1]] or (given[-1] not in drafts and len(drafts) == len(given) - 1):
        last = given[-1]
        return replace(
            last, notes=(*last.notes, f"{len(given) - 1} earlier draft left out" + ("" if len(given) == 2 else "s"))
        )
    raise refuse(
        "two_programs",
        f"it holds {len(given)} different {what}s, and none is clearly the final one",
        "choose one and give only that",
    )


def _marks(block: CodeBlock, pattern: re.Pattern[str]) -> bool:
    """Whether the prose just before a block, or its first comment, matches."""
    said = "\n".join(line for line in block.before.split("\n")[-2:])
    first = block.text.lstrip().split("\n", 1)[0]
    return bool(pattern.search(said) or (first.startswith(("#", "//", '"""')) and pattern.search(first)))


# ---------------------------------------------------------------- a HIP block and a plan


def _joined(plan: CodeBlock, hips: list[CodeBlock]) -> Chosen:
    """Joins a plan with a HIP block, or with several if their kernels differ and all are launched."""
    if len(hips) > 1:
        names = [name for b in hips for name in kernel_names(b.text)]
        launched = all(re.search(rf"\b{re.escape(name)}[ \t]*\[", plan.text) for name in names[:200])
        if len(set(names)) != len(names) or not launched or any(b.is_python for b in hips):
            hips = [_only(hips, "HIP source")]
    source = "\n".join(b.text.strip("\n") for b in hips)
    text = source if hips[0].is_python else literal(source)
    notes = [*(n for b in hips for n in b.notes), *plan.notes, "the HIP block and the plan put into one program"]
    return Chosen(
        f"{text}\n\n\n{_without_placeholder(plan.text)}",
        plan.closed and all(b.closed for b in hips),
        tuple(dict.fromkeys(notes)),
    )


def literal(source: str) -> str:
    """HIP source as the statement HIP = r'''...'''."""
    if "'''" in source and '"""' in source:
        raise AnswerRefused(
            "not_python", *refuse("", "the HIP source holds both ''' and \"\"\"", "write it without").problems
        )
    quote = '"""' if "'''" in source else "'''"
    return f"HIP = r{quote}\n{source}\n{quote}"


def _without_placeholder(plan: str) -> str:
    """Removes a placeholder for the HIP source from a plan (`HIP = "..."  # see above`)."""
    return re.sub(
        r"^HIP[ \t]*=[ \t]*[rR]?(?:'''[^']{0,200}'''"
        r"|\"\"\"[^\"]{0,200}\"\"\"|\"[^\"\n]{0,200}\"|'[^'\n]{0,200}')[^\n]*\n",
        "",
        plan,
        count=1,
        flags=re.MULTILINE,
    )
