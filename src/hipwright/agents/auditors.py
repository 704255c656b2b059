"""The offline auditors: a generator of broken and deceptive variants of verified programs, and a scorer of verifiers.

Variants are mutants by the engine (hipwright.audit) or written by a model, which also claims how each cheats. A claim
is recorded, never trusted: a differential check labels every variant (hipwright.audit.differential). The confusion
matrices count only variants with a certain label, besides the corpus, whose labels are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import msgspec

from hipwright.agents.base import Asker, Author, Chooser, fence, render
from hipwright.audit.cases import CorpusCase, select
from hipwright.audit.differential import Label, label
from hipwright.audit.mutants import mutants, sample
from hipwright.audit.verdicts import JudgedCase, ObservedVerdict
from hipwright.audit.verifiers import AuditSession, TargetVerifier
from hipwright.errors import HipwrightError
from hipwright.evaluation.figures import wilson
from hipwright.llm.records import Message, Request
from hipwright.program import parse
from hipwright.records import Record, content_key
from hipwright.verify.verification import Gate

ROLE = "auditor"
ANSWER_TOKENS = 16_384
VARIANTS_PER_CALL = 4
"""Variants per call."""
MAX_TEXT = 64_000

VerifierAnswer = Literal["accepted", "refused", "no verdict"]


class Variant(Record, frozen=True, kw_only=True):
    """A changed program. of: the corpus case that it was made from. claim: what its author says is wrong with it."""

    of: str
    author: Author
    claim: str
    text: str


class ScoredVariant(Record, frozen=True, kw_only=True):
    """A variant with its label (truth, why) and each verifier's answer: {verifier: accepted, refused or no verdict}."""

    variant: Variant
    truth: str
    why: str
    said: dict[str, VerifierAnswer] = msgspec.field(default_factory=dict)
    messages: dict[str, str] = msgspec.field(default_factory=dict)


class Confusion(Record, frozen=True, kw_only=True):
    """The confusion matrix of one verifier on candidates of one form.

    right_*: programs that must pass; wrong_*: programs that must not. unseen: programs with an unknown label, or that
    the target cannot judge.
    """

    verifier: str
    form: str = msgspec.field(name="lane")
    right_accepted: int = 0
    right_refused: int = 0
    wrong_accepted: int = 0
    wrong_refused: int = 0
    no_verdict: int = 0
    unseen: int = 0

    @property
    def fooled(self) -> bool:
        """Whether the verifier made any error."""
        return bool(self.right_refused or self.wrong_accepted)

    @property
    def false_accepts(self) -> tuple[float, float]:
        """The 95 % interval (Wilson) of the share of wrong programs that are accepted."""
        return wilson(self.wrong_accepted, self.wrong_accepted + self.wrong_refused)

    @property
    def false_rejects(self) -> tuple[float, float]:
        """The 95 % interval (Wilson) of the share of correct programs that are refused."""
        return wilson(self.right_refused, self.right_refused + self.right_accepted)

    def figures(self) -> dict[str, Any]:
        """The matrix and both intervals in plain JSON types."""
        return {**self.to_dict(), "false_accepts": list(self.false_accepts), "false_rejects": list(self.false_rejects)}


# ---------------------------------------------------------------- the generator


def engine_variants(count: int, seed: int, patterns: Sequence[str] = ()) -> list[Variant]:
    """Draws mutants of the honest corpus programs, alternating programs and kinds of change."""
    cases = {case.name: case for case in _verified(patterns)}
    drawn = sample([mutants(name, parse(case.text)) for name, case in cases.items()], seed)[:count]
    return [Variant(of=cases[one.program].id, author="engine", claim=one.description(), text=one.text) for one in drawn]


def llm_variants(
    count: int, seed: int, client: Asker, lineup: Chooser, patterns: Sequence[str] = ()
) -> tuple[list[Variant], list[HipwrightError]]:
    """Asks models for variants of honest corpus programs; returns at most `count` of them, and the failed calls."""
    rng = Random(content_key("auditor", str(seed)))
    cases = rng.sample(_verified(patterns), k=len(_verified(patterns)))
    requests, asked = [], []
    for number in range(-(-count // VARIANTS_PER_CALL)):
        case = cases[number % len(cases)]
        prompt = render(
            "auditor",
            count=VARIANTS_PER_CALL,
            task=fence(case.task_path.read_text(encoding="utf-8"), "python"),
            program=fence(case.text, "python"),
        )
        requests.append(
            Request(
                role=ROLE,
                number=number,
                model=lineup.choose(ROLE, rng),
                max_tokens=ANSWER_TOKENS,
                messages=(Message(role="user", text=prompt),),
            )
        )
        asked.append(case)
    found: list[Variant] = []
    failed: list[HipwrightError] = []
    for case, answer in zip(asked, client.ask_all(requests), strict=True):
        if isinstance(answer, HipwrightError):
            failed.append(answer)
        else:
            found += read_variants(case.id, answer.text)
    return found[:count], failed


_CLAIM = re.compile(r"^[ \t>*#\-]*CLAIM\W{1,4}(?P<claim>[^\n]{1,500})", re.MULTILINE | re.IGNORECASE)
_BLOCK = re.compile(r"^(`{3,})(?:python|py)?[ \t]*\n(?P<text>.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def read_variants(of: str, text: str) -> list[Variant]:
    """Reads the variants of an answer: each code block with the claim before it. Executes nothing."""
    found, end = [], 0
    for block in _BLOCK.finditer(text):
        claims = _CLAIM.findall(text, end, block.start())
        end = block.end()
        if claims and len(block["text"]) <= MAX_TEXT:
            found.append(Variant(of=of, author="llm", claim=claims[-1].strip(" *`"), text=block["text"]))
    return found


def _verified(patterns: Sequence[str]) -> list[CorpusCase]:
    return list(select(patterns, form="program", kind="honest"))


# ---------------------------------------------------------------- the auditor


@dataclass
class Auditor:
    """Scores the verifiers in an audit session. name: of the role."""

    session: AuditSession
    gates: Sequence[Gate] = ("full", "fast")
    name: str = ROLE
    _cases: dict[str, CorpusCase] = field(default_factory=lambda: {case.id: case for case in select()})

    def score(
        self,
        variants: Iterable[Variant],
        *,
        workers: int = 2,
        listener: Callable[[ScoredVariant], None] = lambda _: None,
    ) -> list[ScoredVariant]:
        """Labels every variant and asks each verifier for its verdict; results are in the order of `variants`."""
        done = []
        with ThreadPoolExecutor(max_workers=workers) as pool:
            for scored in pool.map(self._score, variants):
                listener(scored)
                done.append(scored)
        return done

    def _score(self, variant: Variant) -> ScoredVariant:
        case = self._cases[variant.of]
        try:
            known = label(self.session.evaluator(case.task_path), case.text, variant.text)
        except HipwrightError as error:
            known = Label("unclear", f"the task could not be opened: {error.message}")
        if known.truth == "stillborn":
            return ScoredVariant(variant=variant, truth=known.truth, why=known.why)
        said: dict[str, VerifierAnswer] = {}
        messages: dict[str, str] = {}
        for verifier in (TargetVerifier(self.session, gate) for gate in self.gates):
            found = verifier.judge_text(case, variant.text)
            said[verifier.name] = _verifier_answer(found)
            messages[verifier.name] = f"{found.status}: {found.message}"[:300]
        return ScoredVariant(variant=variant, truth=known.truth, why=known.why, said=said, messages=messages)


def _verifier_answer(found: ObservedVerdict) -> VerifierAnswer:
    if found.not_run or found.fault not in (None, "candidate") or found.status == "unscorable":
        return "no verdict"
    return "accepted" if found.earns_credit else "refused"


def corpus_confusions(judged: Iterable[JudgedCase]) -> list[Confusion]:
    """A matrix for each verifier and candidate form, from the corpus and its labels."""
    cells = []
    for one in judged:
        said: VerifierAnswer | None = None if one.observed.not_run else _verifier_answer(one.observed)
        if one.case.honest and said == "refused" and one.observed.status == "pass":
            said = "accepted"  # an honest program that calls the library passes, and earns nothing
        cells.append((one.verifier, one.case.form, "equivalent" if one.case.honest else "wrong", said))
    return _counted(cells)


def variant_confusions(scored: Iterable[ScoredVariant]) -> list[Confusion]:
    """A matrix for each verifier, from variants; those without a certain label count as unseen."""
    known = [(one, verifier, said) for one in scored for verifier, said in one.said.items()]
    return _counted((verifier, "program", one.truth, said) for one, verifier, said in known)


def _counted(cells: Iterable[tuple[str, str, str, VerifierAnswer | None]]) -> list[Confusion]:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for verifier, form, truth, said in cells:
        row = counts.setdefault((verifier, form), {})
        if said is None or truth not in ("equivalent", "wrong"):
            name = "unseen"
        elif said == "no verdict":
            name = "no_verdict"
        else:
            name = f"{'right' if truth == 'equivalent' else 'wrong'}_{said}"
        row[name] = row.get(name, 0) + 1
    return [Confusion(verifier=verifier, form=form, **row) for (verifier, form), row in counts.items()]
