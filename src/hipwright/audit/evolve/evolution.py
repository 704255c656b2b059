"""The search for wrong programs that pass: tasks are visited in turn, faults drawn, and near misses bred."""

from __future__ import annotations

import fnmatch
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hipwright.audit.cases import CORPUS, CorpusCase, select, task_path
from hipwright.audit.evolve.results import EvolutionReport, EvolvedProgram, HonestVariant
from hipwright.audit.evolve.visit import TaskVisit
from hipwright.audit.verifiers import AuditSession
from hipwright.errors import BadInput, HipwrightError
from hipwright.targets import CPU

MIN_VISIT_S = 20.0
"""Seconds of a visit to a task after its programs are verified, which takes a few more."""
Log = Callable[[str], None]
WrittenVariants = Mapping[str, Sequence[tuple[str, str]]]
"""Programs of a model, by the case they were made from: what the model claims is wrong, and the text."""


@dataclass(frozen=True)
class AuditTask:
    """A task and the verified programs of the corpus for it."""

    path: Path
    cases: tuple[CorpusCase, ...] = ()


def audit_tasks(paths: Sequence[Path] = (), patterns: Sequence[str] = ()) -> list[AuditTask]:
    """The corpus's tasks that have honest programs, then the tasks of files and folders.

    patterns: over the tasks' names. Raises BadInput for a path without a task.
    """
    honest = [case for case in select((), form="program", kind="honest") if CPU.name in case.targets]
    names = sorted({case.task for case in honest})
    tasks = [AuditTask(task_path(name), tuple(c for c in honest if c.task == name)) for name in names]
    for path in paths:
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not all(file.is_file() for file in files) or not files:
            raise BadInput(f"no task file at {path}")
        tasks += [AuditTask(file) for file in files if "def get_inputs" in file.read_text(encoding="utf-8")]
    return [t for t in tasks if not patterns or any(fnmatch.fnmatch(t.path.stem, p) for p in patterns)]


@dataclass
class Evolution:
    """One search. honest_share: of the programs judged, those that are honest variants. written: by a model."""

    session: AuditSession
    tasks: Sequence[AuditTask]
    seed: int
    seconds: float
    workers: int = 2
    honest_share: float = 0.17
    written: WrittenVariants = field(default_factory=dict)
    log: Log = lambda _: None
    report: EvolutionReport = field(init=False)

    def __post_init__(self) -> None:
        self.report = EvolutionReport(self.seed)
        self._lock = threading.Lock()
        self._by_kind: Counter[str] = Counter()
        self._texts: set[str] = set()
        self._start = time.perf_counter()
        self._said = 0.0

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - (time.perf_counter() - self._start)

    def run(self) -> EvolutionReport:
        """Visits tasks until the time is over."""
        visits = self._visits()
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            for future in [pool.submit(self._work, visits) for _ in range(self.workers)]:
                future.result()
        self.report.seconds = time.perf_counter() - self._start
        return self.report

    def _visits(self) -> Iterator[tuple[AuditTask, random.Random]]:
        number = 0
        while True:
            rng = random.Random(self.seed * 1000 + number)
            for task in rng.sample(list(self.tasks), len(self.tasks)):
                yield task, random.Random(rng.random())
            number += 1

    def _work(self, visits: Iterator[tuple[AuditTask, random.Random]]) -> None:
        share = self.seconds * self.workers / max(len(self.tasks), 1)
        while self.left > 0:
            with self._lock:
                task, rng = next(visits)
            try:
                self._visit(task, rng, max(MIN_VISIT_S, share))
            except HipwrightError as error:
                self.report.unusable[str(task.path)] = error.message[:300]
            finally:
                self.session.close(task.path)

    def _visit(self, task: AuditTask, rng: random.Random, seconds: float) -> None:
        visit = TaskVisit(self.session.evaluator(task.path), task.path, task.cases, rng, self.rarity)
        for parent in visit.parents():
            self._keep_honest(parent)
            if self.left <= 0:
                return
        end = time.perf_counter() + min(seconds, self.left)
        if not visit.subjects:
            self.report.unusable[str(task.path)] = "no program passes with credit"
            return
        self.report.tasks.add(task.path)
        for case in task.cases:
            for claim, text in self.written.get(case.id, ()):
                if self._fresh(text) and (one := visit.model_program(case.name, claim, text)) is not None:
                    self._keep(one)
        while time.perf_counter() < end:
            if rng.random() < self.honest_share:
                if (variant := visit.honest_variant(self._fresh)) is not None:
                    self._keep_honest(variant)
            elif (program := visit.wrong_program(self._fresh)) is not None:
                self._keep(program)
            else:
                return  # everything was judged

    def rarity(self, kind: str) -> int:
        """How many programs of a kind were judged so far."""
        return self._by_kind[kind]

    def _fresh(self, text: str) -> bool:
        """Whether a text was not judged before; it counts as judged from now on."""
        with self._lock:
            fresh = text not in self._texts
            self._texts.add(text)
            return fresh

    def _keep(self, one: EvolvedProgram) -> None:
        with self._lock:
            self.report.programs.append(one)
            self._by_kind[one.kind] += one.fate != "stillborn" or random.random() < 0.2
        if one.fate in ("survived", "void"):
            self.log(
                f"{one.fate}: {one.kind} ({one.how}) in {one.parent} of {one.task.stem}, line {one.line}: {one.why}"
            )
        self._progress()

    def _keep_honest(self, one: HonestVariant) -> None:
        with self._lock:
            self.report.honest.append(one)
        if one.why:
            self.log(f"honest {one.kind} of {one.parent} of {one.task.stem} did not pass: {one.why}")

    def _progress(self) -> None:
        spent = time.perf_counter() - self._start
        if spent - self._said > 30.0:
            self._said = spent
            counts = self.report.counts
            self.log(
                f"{spent:.0f} s: {self.report.wrong} wrong programs from {len(self.report.tasks)} tasks, "
                f"{counts['survived']} survived; {counts['equivalent']} equivalent, {counts['unclear']} unclear; "
                f"{len(self.report.honest)} honest variants, {len(self.report.refused_honest())} refused"
            )


def save(report: EvolutionReport, folder: Path) -> list[Path]:
    """Writes survivors and refused honest variants into a folder, as files in the corpus's form."""
    saved = [_written(folder / "survivors" / f"{one.name}.py", corpus_text(one)) for one in report.survivors()]
    for number, variant in enumerate(report.refused_honest()):
        name = f"{variant.task.stem}_{number}.py"
        saved.append(_written(folder / "refused_honest" / name, f"# {variant.kind}: {variant.why}\n{variant.text}"))
    return saved


def corpus_text(one: EvolvedProgram) -> str:
    """A survivor's file: the first line says what is wrong."""
    note = f"{one.kind} ({one.how}) in line {one.line + 1} of {one.parent}: {one.why}".replace("\n", " ")
    return f"# {note[:240]}\n{one.text}"


def keep(report: EvolutionReport, corpus: Path = CORPUS) -> list[Path]:
    """Adds survivors to the corpus as hostile programs, each with its row and, where it is new, its task."""
    rows, saved = [], []
    table = corpus / "expected.toml"
    for one in report.survivors():
        task = corpus / "tasks" / one.task.name
        if not task.exists():
            saved.append(_written(task, one.task.read_text(encoding="utf-8")))
        saved.append(_written(corpus / "program" / "hostile" / f"{one.name}.py", corpus_text(one)))
        rows.append(
            f'{one.name} = {{ task = "{one.task.stem}", row = "mistake", check = "values", status = "wrong_value" }}'
        )
    if rows:
        text = table.read_text(encoding="utf-8")
        head = "[program.hostile]\n"
        table.write_text(text.replace(head, head + "\n".join(rows) + "\n", 1), encoding="utf-8")
    return saved


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
