"""Audits of the verifiers: candidates that are known to be honest, broken or hostile (docs/audit.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright import config
from hipwright.agents.auditors import (
    Auditor,
    Confusion,
    ScoredVariant,
    Variant,
    corpus_confusions,
    engine_variants,
    llm_variants,
    variant_confusions,
)
from hipwright.api.fleet.audit import open_fleet_audit
from hipwright.api.fleet.choice import FleetChoice
from hipwright.api.model_access import ModelAccess, open_client
from hipwright.archive import Archive
from hipwright.audit.cases import CorpusCase, select
from hipwright.audit.confusion import ConfusionMatrix, confusion_matrices, run_corpus
from hipwright.audit.verdicts import JudgedCase
from hipwright.audit.verifiers import AuditSession, TargetVerifier, open_audit
from hipwright.errors import BadInput, HipwrightError
from hipwright.events import Listener, silent
from hipwright.targets import CPU, Target
from hipwright.verify.sensitivity import DroppedElement, dropped_element
from hipwright.verify.verification import Gate

if TYPE_CHECKING:
    from hipwright.audit.mutation import MutationReport

DROPPED_SAMPLES = 8
"""Elements that are left out of the inputs of each shape, one at a time."""
WORKERS = 2
"""Candidates judged at a time on this machine."""
AUTHORS = ("engine", "llm")
PATTERNS = "--only takes shell patterns over form, kind and name"


@dataclass(frozen=True)
class CorpusAudit:
    """The judged corpus. matrices: by verifier; screener: its calibration in the archive, {author: figures}.

    dropped: by task, how probably one input element left out is noticed at each shape.
    """

    matrices: dict[str, ConfusionMatrix]
    confusions: Sequence[Confusion]
    screener: dict[str, Any]
    dropped: dict[str, list[DroppedElement]] = field(default_factory=dict)

    @property
    def fooled(self) -> bool:
        """Whether a verifier judged a candidate wrongly."""
        return any(one.failed for one in self.matrices.values())

    @property
    def void(self) -> bool:
        """Whether a fault of the machine left a candidate unjudged."""
        return any(one.void for one in self.matrices.values())

    def summary(self) -> dict[str, Any]:
        """The object that `audit --json` prints."""
        return {
            "verifiers": [one.to_dict() for one in self.matrices.values()],
            "confusion": [one.figures() for one in self.confusions],
            "screener": self.screener,
            "dropped_element": {task: [asdict(one) for one in rows] for task, rows in self.dropped.items()},
        }


def audit_corpus(
    target: Target = CPU,
    gates: Sequence[Gate] = ("full", "fast"),
    *,
    form: str | None = None,
    only: Sequence[str] = (),
    seed: int | None = None,
    workers: int | None = None,
    timed: bool = False,
    unsafe: bool = False,
    fleet: FleetChoice | None = None,
    listener: Listener = silent,
) -> CorpusAudit:
    """Judges the corpus by each gate. only: patterns over form, kind and name; timed: with the clock's checks.

    workers: candidates at a time, None for two; with a fleet, whose seats then judge, the most seats, None for all.
    Events for the listener: "note" {text} for each gate and for each candidate that is not judged as expected.
    """
    chosen = select(list(only), form=form)
    if not chosen:
        raise BadInput("no candidate matches", hint=PATTERNS)
    results: list[JudgedCase] = []
    dropped: dict[str, list[DroppedElement]] = {}
    for gate in gates:
        text = f"{len(chosen)} candidates through the {gate} gate on {target.name}"
        listener("note", {"text": text})
        with _session(fleet, target, seed=seed, workers=workers, unsafe=unsafe, listener=listener) as (session, count):
            results += run_corpus(
                TargetVerifier(session, gate, timed),
                chosen,
                workers=count,
                listener=_unexpected(listener),
                done=partial(_measure_and_close, session, dropped),
            )
    calibration = screener_calibration()
    return CorpusAudit(confusion_matrices(results), corpus_confusions(results), calibration, dropped)


@contextmanager
def _session(
    fleet: FleetChoice | None,
    target: Target,
    *,
    seed: int | None,
    workers: int | None,
    unsafe: bool,
    listener: Listener,
) -> Iterator[tuple[AuditSession, int]]:
    """The session that judges, and how many candidates it judges at a time: in a seat one is built beside another."""
    if not fleet:
        with open_audit(target, seed=seed, unsafe=unsafe) as here:
            yield here, workers or WORKERS
        return
    with open_fleet_audit(fleet, target, seed=seed, seats=workers, unsafe=unsafe, listener=listener) as far:
        yield far, 2 * far.machine.seats


def _measure_and_close(session: AuditSession, dropped: dict[str, list[DroppedElement]], case: CorpusCase) -> None:
    """Measures a task of which every candidate is judged, once, and closes it."""
    if case.form == "program" and case.task not in dropped:
        try:
            oracle = session.evaluator(case.task_path).oracle
            names = [planned.workload.name for planned in oracle.planned()]
            dropped[case.task] = [dropped_element(oracle, name, DROPPED_SAMPLES) for name in names]
        except HipwrightError:  # an unscorable task has no cases
            dropped[case.task] = []
    session.close(case.task_path)


def _unexpected(listener: Listener) -> Callable[[JudgedCase], None]:
    def judged(one: JudgedCase) -> None:
        if one.outcome not in ("right", "not run"):
            listener("note", {"text": f"{one.verifier}: {one.case.id} {one.outcome}: {one.why}"})

    return judged


def screener_calibration() -> dict[str, Any]:
    """The screener's calibration over the archive, {author: figures}; {} where it made no predictions."""
    from hipwright.agents.screening.calibration import calibrations

    try:
        with Archive(config.archive(), create=False) as archive:
            found = calibrations(archive, AUTHORS)
    except HipwrightError:  # where there is no archive there are no predictions
        return {}
    return {author: asdict(one) for author, one in found.items() if one.events}


def audit_mutants(
    count: int,
    *,
    seed: int = 0,
    only: Sequence[str] = (),
    workers: int = WORKERS,
    unsafe: bool = False,
    listener: Listener = silent,
) -> MutationReport:
    """Judges mutants of the corpus's honest programs on the cpu target."""
    from hipwright.audit.mutation import run_mutants

    def say(text: str) -> None:
        listener("note", {"text": text})

    with open_audit(seed=seed, unsafe=unsafe) as session:
        return run_mutants(session, count, seed, list(only), workers=workers, log=say)


@dataclass(frozen=True)
class VariantAudit:
    """Broken and deceptive variants, labelled and judged. truths: the number with each label."""

    scored: Sequence[ScoredVariant]
    confusions: Sequence[Confusion]
    truths: dict[str, int]

    @property
    def fooled(self) -> bool:
        """Whether a verifier judged a variant wrongly."""
        return any(one.fooled for one in self.confusions)

    def summary(self) -> dict[str, Any]:
        """The object that `audit --variants --json` prints."""
        return {
            "variants": [one.to_dict() for one in self.scored],
            "truths": self.truths,
            "confusion": [one.figures() for one in self.confusions],
        }


def audit_variants(
    count: int,
    gates: Sequence[Gate] = ("full", "fast"),
    *,
    seed: int = 0,
    only: Sequence[str] = (),
    workers: int = WORKERS,
    unsafe: bool = False,
    access: ModelAccess | None = None,
    folder: Path | None = None,
    listener: Listener = silent,
) -> VariantAudit:
    """Makes, labels and judges variants on the cpu target: mutants, or with `access` a model's.

    folder: for the log of the model's calls. Events for the listener: "note" {text} for each verifier that was wrong.
    """
    made = _variants(count, seed, only, access, folder, listener)
    if not made:
        raise BadInput("there are no variants", hint=PATTERNS)
    with open_audit(seed=seed, unsafe=unsafe) as session:
        scored = Auditor(session, tuple(gates)).score(made, workers=workers, listener=_wrong(listener))
    return VariantAudit(scored, variant_confusions(scored), dict(Counter(one.truth for one in scored)))


def _variants(
    count: int,
    seed: int,
    only: Sequence[str],
    access: ModelAccess | None,
    folder: Path | None,
    listener: Listener,
) -> list[Variant]:
    if access is None:
        return engine_variants(count, seed, only)
    with ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        logged = stack.enter_context(open_client(access, folder, silent))
        made, failed = llm_variants(count, seed, logged.client, access.lineup, only)
    if failed and not made:
        raise failed[0]
    for error in failed:
        listener("note", {"text": f"a call for variants failed: {error.message}"})
    return made


def _wrong(listener: Listener) -> Callable[[ScoredVariant], None]:
    def scored(one: ScoredVariant) -> None:
        wrong = {"wrong": "accepted", "equivalent": "refused"}.get(one.truth)
        for verifier, verdict in one.said.items():
            if verdict == wrong:
                of = f"a variant of {one.variant.of} that is {one.truth} ({one.why})"
                listener("note", {"text": f"{verifier} {verdict} {of}: {one.variant.claim}"})

    return scored
