"""A visit to one task: its verified programs, wrong ones made from them, and honest variants."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from pathlib import Path

from hipwright.audit.cases import CorpusCase
from hipwright.audit.evolve.breeding import NearMiss, Offspring, bred, drawn
from hipwright.audit.evolve.faults import Fault, FaultKind
from hipwright.audit.evolve.honest_variants import engine_programs, other_knobs, rewritten
from hipwright.audit.evolve.judging import nearness, verdict_on
from hipwright.audit.evolve.registry import KINDS
from hipwright.audit.evolve.results import EvolvedProgram, Fate, HonestVariant
from hipwright.audit.evolve.subject import Edit, Subject
from hipwright.audit.evolve.truth import ExactOracle
from hipwright.audit.verdicts import ObservedVerdict, observed_verdict
from hipwright.capture.graph import Graph
from hipwright.engine import author
from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.records import Program
from hipwright.targets import CPU

BRED_SHARE = 0.3
"""The share of wrong programs that are bred from near misses, once there are any."""
KEPT_NEAR_MISSES = 12
TRIES = 40
"""Draws until a text is one that was not judged before."""

MODEL_KIND = "written by a model"

Fresh = Callable[[str], bool]
Parent = tuple[str, Subject]


class TaskVisit:
    """The programs of one task. rarity: how many programs of a kind were judged; rare kinds are drawn first."""

    def __init__(
        self,
        evaluator: Evaluator,
        task: Path,
        cases: Sequence[CorpusCase],
        rng: random.Random,
        rarity: Callable[[str], int],
    ) -> None:
        self.evaluator, self.task, self.cases, self.rng, self.rarity = evaluator, task, cases, rng, rarity
        self.subjects: list[Parent] = []
        self._truth = ExactOracle(evaluator)
        self._near: list[tuple[str, NearMiss]] = []
        self._faults: dict[tuple[str, str], list[Fault]] = {}
        self._honest: Iterator[tuple[str, str, str]] = iter(())
        self._queue: list[tuple[str, Subject, Offspring]] = []

    # ---------------------------------------------------------------- verified programs

    def parents(self) -> Iterator[HonestVariant]:
        """Verifies the corpus's programs and the engine's first one; those with credit become subjects."""
        sizes = self._sizes()
        sources: list[Iterator[tuple[str, str, str]]] = []
        for case in self.cases:
            yield self._parent(case.name, case.text, "corpus", sizes)
        try:
            graph = Graph.from_dict(self.evaluator.handle.capture(self.evaluator.handle.task.workloads[0].name))
            authored = author(graph)
        except HipwrightError:
            pass  # the engine does not write this task
        else:
            made = engine_programs(graph, authored, self.rng)
            yield self._parent("engine", next(made)[1], "engine", sizes)
            sources.append(("engine", kind, text) for kind, text in made)
        for name, subject in self.subjects:
            sources.append((name, kind, text) for kind, text in _both(subject, self.rng))
        self._honest = _in_turn(sources)

    def _parent(self, name: str, text: str, kind: str, sizes: Sequence[int]) -> HonestVariant:
        variant, observed = self._judge_honest(name, kind, text)
        if observed is not None and observed.earns_credit and (kind == "corpus" or self._own_work(text)):
            self.subjects.append((name, Subject.of(text, sizes)))
        return variant

    def _own_work(self, text: str) -> bool:
        """Whether a verified program earns credit by its coverage."""
        return observed_verdict(self.evaluator.evaluate(Program(text=text)), CPU.name).earns_credit

    def _sizes(self) -> list[int]:
        shapes = [spec.shape for w in self.evaluator.handle.task.workloads[:1] for spec in w.specs]
        return sorted({n for shape in shapes for n in shape if n > 1} | {prod(shape) for shape in shapes})

    def honest_variant(self, fresh: Fresh) -> HonestVariant | None:
        """Judges the next honest variant; None where there are no more: random choices soon repeat themselves."""
        for name, kind, text in islice(self._honest, TRIES):
            if text and fresh(text):
                return self._judge_honest(name, kind, text)[0]
        self._honest = iter(())
        return None

    def _judge_honest(self, name: str, kind: str, text: str) -> tuple[HonestVariant, ObservedVerdict | None]:
        try:
            observed, _ = verdict_on(self.evaluator, text)
        except HipwrightError as error:
            return HonestVariant(self.task, name, kind, text, error.message, void=True), None
        why = "" if observed.status == "pass" else f"{observed.status}: {observed.message}"
        void = bool(why) and (observed.fault not in (None, "candidate") or observed.status == "compile_error")
        return HonestVariant(self.task, name, kind, text, why, void=void), observed

    # ---------------------------------------------------------------- wrong programs

    def wrong_program(self, fresh: Fresh) -> EvolvedProgram | None:
        """Makes and judges a program with a fault that was not judged before; None where none was found."""
        for _ in range(TRIES):
            parent, subject, made = self._made()
            if made.text != subject.text and fresh(made.text):
                return self._judged(parent, subject, made)
        return None

    def _made(self) -> tuple[str, Subject, Offspring]:
        if self._queue:
            return self._queue.pop()
        if self._near and self.rng.random() < BRED_SHARE:
            name, near = self.rng.choice(self._near)
            self._queue = [(name, near.subject, one) for one in islice(bred(near, self.rng), 3)]
            if self._queue:
                return self._queue.pop()
        name, subject = self.rng.choice(self.subjects)
        kinds = [kind for kind in KINDS if self._of(name, subject, kind)]
        kind = min(kinds, key=lambda k: self.rarity(k) + self.rng.random())
        return name, subject, drawn(subject, KINDS[kind], self.rng.choice(self._of(name, subject, kind)))

    def model_program(self, parent: str, claim: str, text: str) -> EvolvedProgram | None:
        """Judges a model's program; None where its parent did not pass. The claim is recorded, never trusted."""
        subject = next((one for name, one in self.subjects if name == parent), None)
        if subject is None:
            return None
        made = Offspring(FaultKind(MODEL_KIND, lambda _: iter(())), "written", text, Fault((Edit(0, 0, claim),)), False)
        return self._judged(parent, subject, made)

    def _of(self, name: str, subject: Subject, kind: str) -> list[Fault]:
        key = name, kind
        if key not in self._faults:
            self._faults[key] = list(KINDS[kind].faults(subject))
        return self._faults[key]

    def _judged(self, parent: str, subject: Subject, made: Offspring) -> EvolvedProgram:
        fate: Fate
        check, near, seconds = "", 0.0, 0.0
        try:
            observed, verdict = verdict_on(self.evaluator, made.text)
        except HipwrightError as error:
            fate, why = "void", error.message
        else:
            check, seconds = observed.check or observed.status, observed.seconds
            fate, why = self._fate(subject, made, observed)
            near = {"survived": 1.0, "refused": nearness(verdict, check)}.get(fate, 0.0)
            if near >= 0.3 and made.how in ("drawn", "weakened"):
                self._note_near(parent, NearMiss(subject, made, near))
        edit = made.fault.edits[0]
        return EvolvedProgram(
            task=self.task,
            parent=parent,
            kind=made.kind.name,
            how=made.how,
            line=subject.line(min(edit.start, len(subject.text))),
            after=edit.text.strip(),
            text=made.text,
            fate=fate,
            check=check,
            why=why,
            seconds=seconds,
            nearness=near,
        )

    def _fate(self, subject: Subject, made: Offspring, observed: ObservedVerdict) -> tuple[Fate, str]:
        """The fate of a judged program, with the verdict's message or the reason of its label."""
        if observed.status == "pass" and observed.earns_credit:
            label = self._truth.truth(subject.text, made.text, certain=made.certain)
            fates: dict[str, Fate] = {"wrong": "survived", "equivalent": "equivalent"}
            return fates.get(label.truth, "unclear"), label.why
        if observed.status in ("parse_error", "compile_error") and not made.certain:
            return "stillborn", observed.message
        return "refused" if observed.fault in (None, "candidate") else "void", observed.message

    def _note_near(self, parent: str, near: NearMiss) -> None:
        self._near = sorted([*self._near, (parent, near)], key=lambda one: -one[1].nearness)[:KEPT_NEAR_MISSES]


def _both(subject: Subject, rng: random.Random) -> Iterator[tuple[str, str]]:
    return chain(other_knobs(subject, rng), rewritten(subject, rng))


def _in_turn(sources: Sequence[Iterator[tuple[str, str, str]]]) -> Iterator[tuple[str, str, str]]:
    """The items of all iterators, one of each in turn."""
    left = list(sources)
    while left:
        for source in list(left):
            item = next(source, None)
            if item is None:
                left.remove(source)
            else:
                yield item
