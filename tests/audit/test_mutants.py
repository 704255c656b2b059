"""Mutants: their changes, their draw by a seed, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hipwright.audit import mutation
from hipwright.audit.cases import select
from hipwright.audit.mutants import Mutant, mutants, sample
from hipwright.audit.mutation import MutationReport, equivalent, examine_mutant, run_mutants
from hipwright.audit.verifiers import AuditSession, open_audit
from hipwright.errors import ProgramError
from hipwright.program import parse

HONEST = {case.name: case for case in select(form="program", kind="honest")}


def drawn(seed: int) -> list[Mutant]:
    return sample([mutants(name, parse(case.text)) for name, case in HONEST.items()], seed)


def test_every_kind_of_change_occurs_and_changes_one_place() -> None:
    found = drawn(0)
    assert len(found) > 1000 and len({m.text for m in found}) == len(found)
    assert {m.operator for m in found} >= {
        "dropped barrier",
        "changed bound",
        "swapped operator",
        "off by one",
        "changed constant",
        "negated condition",
        "shuffle distance",
        "lost atomic",
        "swapped function",
        "dropped statement",
        "wrong index",
        "removed cast",
    }
    for mutant in found[::29]:
        before, after = HONEST[mutant.program].text.splitlines(), mutant.text.splitlines()
        changed_line = next(a for a, b in zip(before, after, strict=False) if a != b)
        assert changed_line == before[mutant.line - 1] == mutant.before
        assert after[mutant.line - 1] == mutant.after != mutant.before


def test_a_seed_draws_the_same_and_programs_take_turns() -> None:
    first = drawn(3)
    assert first == drawn(3) and first != drawn(4)
    assert {m.program for m in first[: len(HONEST)]} == set(HONEST)


def test_the_plan_and_declarations_are_left_alone() -> None:
    for mutant in drawn(1):
        assert "__shared__" not in mutant.before or mutant.operator not in ("off by one", "changed constant")
        try:
            assert parse(mutant.text).functions.keys() == parse(HONEST[mutant.program].text).functions.keys()
        except ProgramError:
            continue  # a mutant need not be a program


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[AuditSession]:
    folder = Path(request.config.cache.mkdir("hipwright-builds"))  # type: ignore[union-attr]
    with open_audit(seed=20, cache_folder=folder) as opened:
        yield opened


def changed(program: str, before: str, after: str) -> Mutant:
    text = HONEST[program].text
    assert text.count(before) == 1
    return Mutant(program, "test", 1, before, after, text.replace(before, after))


@pytest.mark.parametrize(
    ("mutant", "fate", "why"),
    [
        (("row_sum_tree", "+ d];\n        __syncthreads();", "+ d];"), "killed", "race"),
        (("relu_signed", "if (i < n)", "if (i <= n)"), "killed", "out_of_bounds"),
        (("relu_signed", "x[i] < 0.0f ?", "x[i] < 0.0f; ?"), "stillborn", "expected"),
        (("relu_signed", "if (i < n)", "if (n > i)"), "equivalent", "code objects"),
        (("row_max_wave", "where > at", "where >= at"), "equivalent", "identical"),
    ],
)
@pytest.mark.slow
def test_fates(
    session: AuditSession, mutant: tuple[str, str, str], fate: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        mutation, "equivalent", partial(equivalent, trials=200)
    )  # the verifier's own cases and new ones
    examined = examine_mutant(session, HONEST[mutant[0]], changed(*mutant))
    assert (examined.fate, why in examined.why) == (fate, True), examined


@pytest.mark.slow
def test_rounding_is_no_equivalence(session: AuditSession) -> None:
    """A change that shows in one bit only: the verifier may accept it, but the program is not equivalent."""
    case = HONEST["relu_signed"]
    evaluator = session.evaluator(case.task_path)
    other = case.text.replace(": x[i];", ": x[i] * 1.0000002f;")
    assert equivalent(evaluator, case.text, other, trials=20) == ""


@pytest.mark.slow
def test_a_sample_is_killed(session: AuditSession) -> None:
    report = run_mutants(session, 24, seed=2)
    same = {  # these change the rounding only, so the rule calls them survivors
        "attention_online:14: changed constant: `float s = 0.0f;` -> `float s = 1.0f;`",  # each score of a row + 1
        "row_sum_kahan:12: dropped statement: `lost = (next - total) - term;` -> `;`",  # a plain sum
    }
    assert report.total == 24
    assert [m.description() for m in report.survivors() if m.description() not in same] == [], report.summary()


def test_a_report_counts() -> None:
    report = MutationReport(0)
    assert not report.passed and report.killed_share == 0.0
