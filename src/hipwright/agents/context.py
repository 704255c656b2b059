"""What a prompt holds, fitted to a token budget: the least important parts go first, and what went is said.

A part is one section of the prompt. `IMPORTANCE` orders the kinds of parts, the most important first; of a kind, later
parts go before earlier ones. Parts with no place in it (the task, the program at hand, the evidence) are never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.agents.base import fence
from hipwright.llm.knowledge_base import Page, retrieve
from hipwright.records import Task, TensorSpec, Workload

IMPORTANCE = ("bottleneck", "hazards", "exemplar", "failures", "lessons", "target", "kernel", "page")
"""Kinds of parts by importance: what is last here is dropped first."""

BYTES_A_TOKEN = 3
"""Of English and code: fewer than most tokenizers need, so that the estimate errs on the long side."""


@dataclass(frozen=True)
class PromptSection:
    """One section. kind: as in IMPORTANCE, or anything else for what must stay; name: what notes call it."""

    kind: str
    title: str
    text: str
    name: str = ""

    @property
    def section(self) -> str:
        """As it stands in the prompt."""
        return f"## {self.title}\n{self.text.strip()}\n"


@dataclass(frozen=True)
class PromptContext:
    """A prompt's parts. dropped: kinds and names of those that did not fit, in the order in which they went."""

    parts: tuple[PromptSection, ...]
    dropped: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The sections, one after the other."""
        return "\n".join(part.section for part in self.parts)

    def names(self, kind: str) -> list[str]:
        """The names of the parts of one kind that are in."""
        return [part.name for part in self.parts if part.kind == kind]


@dataclass
class ContextBuilder:
    """Collects parts and fits them into `budget` tokens."""

    budget: int
    parts: list[PromptSection] = field(default_factory=list)

    def add(self, kind: str, title: str, text: str, name: str = "") -> None:
        """Add a section; an empty text adds nothing."""
        if text.strip():
            self.parts.append(PromptSection(kind, title, text, name))

    def build(self) -> PromptContext:
        """The parts that fit, in the order in which they were added."""
        kept, dropped = list(self.parts), list[str]()
        while sum(tokens(part.section) for part in kept) > self.budget:
            loose = [place for place, part in enumerate(kept) if part.kind in IMPORTANCE]
            if not loose:
                break
            last = max(loose, key=lambda place: (IMPORTANCE.index(kept[place].kind), place))
            part = kept.pop(last)
            dropped.append(f"{part.kind} {part.name}".strip())
        return PromptContext(tuple(kept), tuple(dropped))


def tokens(text: str) -> int:
    """An estimate of the tokens of a text, rather too many than too few."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


# ---------------------------------------------------------------- parts that every writer shares


def task_text(task: Task, source: str) -> str:
    """The reference's source, the workloads' inputs, and how close is right."""
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
    """The facts of each target."""
    return retrieve(query, targets=targets, k=max(len(targets), 1), kinds=("arch",))


def technique_pages(query: str, targets: Sequence[str], k: int) -> list[Page]:
    """The pages of techniques and of the program form that are most like a task."""
    return retrieve(query, targets=targets, k=k, kinds=("technique", "api")) if k else []


def facts(page: Page) -> str:
    """A page without its example, which stands at its end: of a target the facts are wanted."""
    return re.split(r"^(?:The program\b|```python )", page.text, maxsplit=1, flags=re.MULTILINE)[0]


def demoted(text: str) -> str:
    """A page's own headings two levels down, so that they stay inside its section; code is left as it is."""
    lines, inside = [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        lines.append(f"##{line}" if line.startswith("#") and not inside else line)
    return "\n".join(lines)
