"""Fits the sections of a prompt into a token budget by dropping the least important ones.

`IMPORTANCE` orders the kinds of sections, the most important first; within a kind, later sections are dropped before
earlier ones. Sections of other kinds (the task, the current program, the evidence) are never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.agents.base import fence
from hipwright.llm.knowledge_base import Page, retrieve
from hipwright.records import Task, TensorSpec, Workload

IMPORTANCE = (
    "bottleneck",
    "counters",
    "hazards",
    "start",
    "exemplar",
    "failures",
    "policy",
    "lessons",
    "target",
    "kernel",
    "page",
)
"""Kinds of sections by importance: the last is dropped first."""

BYTES_A_TOKEN = 3
"""Bytes per token of English and code: fewer than with most tokenizers, so that estimates err on the high side."""


@dataclass(frozen=True)
class PromptSection:
    """One section. kind: of IMPORTANCE, or any other for a section that must stay; name: as in a proposal's notes."""

    kind: str
    title: str
    text: str
    name: str = ""

    @property
    def markdown(self) -> str:
        """The section as it stands in the prompt."""
        return f"## {self.title}\n{self.text.strip()}\n"


@dataclass(frozen=True)
class PromptContext:
    """The sections of a prompt. dropped: kinds and names of those that did not fit, in the order dropped."""

    sections: tuple[PromptSection, ...]
    dropped: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All sections as one text."""
        return "\n".join(section.markdown for section in self.sections)

    def names(self, kind: str) -> list[str]:
        """The names of the included sections of one kind."""
        return [section.name for section in self.sections if section.kind == kind]


@dataclass
class ContextBuilder:
    """Collects sections and fits them into `budget` tokens."""

    budget: int
    sections: list[PromptSection] = field(default_factory=list)

    def add(self, kind: str, title: str, text: str, name: str = "") -> None:
        """Adds a section; an empty text adds nothing."""
        if text.strip():
            self.sections.append(PromptSection(kind, title, text, name))

    def build(self) -> PromptContext:
        """Returns the sections that fit, in the order they were added."""
        kept, dropped = list(self.sections), list[str]()
        while sum(tokens(section.markdown) for section in kept) > self.budget:
            optional = [place for place, section in enumerate(kept) if section.kind in IMPORTANCE]
            if not optional:
                break
            last = max(optional, key=lambda place: (IMPORTANCE.index(kept[place].kind), place))
            section = kept.pop(last)
            dropped.append(f"{section.kind} {section.name}".strip())
        return PromptContext(tuple(kept), tuple(dropped))


def tokens(text: str) -> int:
    """Estimates the tokens of a text, on the high side."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


# ---------------------------------------------------------------- texts of common sections


def task_text(task: Task, source: str) -> str:
    """The reference's source and the inputs of its workloads."""
    lines = [fence(source, "python"), "Workloads:"]
    lines += [f"- {_workload(one)}" for one in task.workloads]
    lines.append("Other shapes are tried as well: read sizes from the tensors, never write them down as numbers.")
    return "\n".join(lines)


def _workload(workload: Workload) -> str:
    inputs = ", ".join(_spec(spec) for spec in workload.specs)
    return f"{workload.name}: {inputs}" if inputs else workload.name


def _spec(spec: TensorSpec) -> str:
    dense, step = [], 1
    for size in reversed(spec.shape):
        dense.append(step)
        step *= max(size, 1)
    strided = spec.stride and tuple(spec.stride) != tuple(reversed(dense))
    return f"{spec.dtype}{list(spec.shape)}" + (f" with strides {list(spec.stride)}" if strided else "")


def target_pages(targets: Sequence[str], query: str) -> list[Page]:
    """The knowledge page of each target."""
    return retrieve(query, targets=targets, k=max(len(targets), 1), kinds=("arch",))


def technique_pages(query: str, targets: Sequence[str], k: int) -> list[Page]:
    """The k pages on techniques and on the program form that are most similar to a task."""
    return retrieve(query, targets=targets, k=k, kinds=("technique", "api")) if k else []


def without_example(page: Page) -> str:
    """A page's text without the example at its end."""
    return re.split(r"^(?:The program\b|```python )", page.text, maxsplit=1, flags=re.MULTILINE)[0]


def demote_headings(text: str) -> str:
    """Moves headings two levels down, so that a page stays inside its section; code is unchanged."""
    lines, inside = [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        lines.append(f"##{line}" if line.startswith("#") and not inside else line)
    return "\n".join(lines)
