"""HIP sources that must compile with AMD's headers: the suite's first programs, honest candidates, knowledge pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import first_graph, task_host
from benchmarks.suite.tasks import find as find_tasks
from hipwright import audit
from hipwright.engine import write
from hipwright.llm.knowledge_base import pages
from hipwright.program import parse
from hipwright.targets import OFFLINE
from hipwright.toolchain.amd.rocm_source import rocm_source

FILE = "kernel.hip"
KINDS = ("suite", "corpus", "knowledge")


@dataclass(frozen=True)
class Source:
    """One source. text: as AMD's compilers get it, with hipwright's device headers in it. archs: empty for all."""

    kind: str
    name: str
    text: str
    defines: tuple[str, ...]
    archs: tuple[str, ...] = ()


def sources(kinds: Sequence[str] = KINDS, every: int = 1, offset: int = 0) -> Iterator[Source]:
    """The sources of the kinds, in a fixed order; each `every`-th of a kind from `offset` on."""
    makers = {"suite": _suite, "corpus": _corpus, "knowledge": _knowledge}
    for kind in kinds:
        yield from makers[kind](every, offset)


def _suite(every: int, offset: int) -> Iterator[Source]:
    tasks = find_tasks()[offset::every]
    with task_host() as host:
        for task in tasks:
            program = write(first_graph(task.path, host), {})
            yield from _made("suite", task.name, program.text)


def _corpus(every: int, offset: int) -> Iterator[Source]:
    folder = Path(str(audit.__file__)).parent / "corpus/program/honest"
    for path in sorted(folder.glob("*.py"))[offset::every]:
        yield from _made("corpus", path.stem, path.read_text(encoding="utf-8"))


def _knowledge(every: int, offset: int) -> Iterator[Source]:
    for page in sorted(pages(), key=lambda page: page.name)[offset::every]:
        archs = tuple(target for target in page.targets if target in OFFLINE)
        for text in page.programs:
            yield from _made("knowledge", page.name, text, archs)


def _made(kind: str, name: str, text: str, archs: tuple[str, ...] = ()) -> Iterator[Source]:
    """The source of a program; none for one without HIP text."""
    parsed = parse(text)
    if parsed.hip.strip():
        defines = tuple(f"-D{knob}={value}" for knob, value in sorted(parsed.defines().items()))
        yield Source(kind, name, rocm_source(parsed.hip, FILE), defines, archs)
