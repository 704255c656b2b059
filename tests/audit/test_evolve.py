"""The evolving audit: fault kinds, the exact oracle, breeding, and a short search."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from hipwright.audit.cases import select
from hipwright.audit.evolve.breeding import NearMiss, bred, drawn
from hipwright.audit.evolve.evolution import Evolution, audit_tasks, corpus_text, keep, save
from hipwright.audit.evolve.honest_variants import other_knobs, rewritten
from hipwright.audit.evolve.judging import verdict_on
from hipwright.audit.evolve.registry import KINDS
from hipwright.audit.evolve.results import EvolutionReport, EvolvedProgram, HonestVariant
from hipwright.audit.evolve.subject import Edit, Subject, apply
from hipwright.audit.evolve.truth import ExactOracle
from hipwright.audit.evolve.visit import TaskVisit
from hipwright.audit.verifiers import AuditSession, open_audit
from hipwright.errors import BadInput
from hipwright.program import parse

HONEST = {case.name: case for case in select(form="program", kind="honest")}
SUBJECTS = {name: Subject.of(case.text, (24, 132, 40000)) for name, case in HONEST.items()}


def test_every_kind_applies_somewhere_and_changes_the_text() -> None:
    assert len(KINDS) >= 40
    for name, kind in KINDS.items():
        found = [(one, fault) for one in SUBJECTS.values() for fault in islice(kind.faults(one), 3)]
        assert found or name == "removed NaN test", name
        assert all(apply(one.text, fault.edits) != one.text for one, fault in found), name


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_changed_text_mostly_parses(name: str) -> None:
    """The parser reads HIP's signatures and the plan; a kind whose programs it refuses tests no verifier."""
    found = [apply(s.text, fault.edits) for s in SUBJECTS.values() for fault in islice(KINDS[name].faults(s), 2)][:10]
    if KINDS[name].certain:  # a static rule may refuse those
        return
    for text in found:
        parse(text)


def test_a_subject_knows_its_places() -> None:
    subject = SUBJECTS["softmax_online"]
    (function,) = subject.functions
    assert function.name == "softmax" and function.entry and function.pointers("float") == ["x", "y"]
    assert function.integers() == ["rows", "cols"] and [p.written for p in function.parameters][:2] == [False, True]
    assert [subject.text[s.start : s.end] for s in subject.stores] == ["expf(row[j] - top) / sum"]
    assert [launch["kernel"] for launch in subject.launches] == ["softmax"]
    assert subject.launches[0]["grid"] == "cdiv(rows, 64)" and subject.launches[0]["block"] == "64"
    assert [match["value"] for match in subject.returns] == ["y"]


def test_edits_of_one_fault_do_not_move_each_other() -> None:
    assert apply("abcdef", [Edit(0, 1, "xyz"), Edit(4, 6, "")]) == "xyzbcd"


def test_near_misses_are_bred_in_three_ways() -> None:
    subject = SUBJECTS["softmax_online"]
    kind = KINDS["relative error"]
    made = drawn(subject, kind, next(iter(kind.faults(subject))))
    seen = {one.how for seed in range(8) for one in bred(NearMiss(subject, made, 0.9), random.Random(seed))}
    assert seen == {"restricted", "weakened", "combined"}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditSession]:
    with open_audit(seed=20, cache_folder=tmp_path_factory.mktemp("builds")) as opened:
        yield opened


def test_another_index_of_a_tie_is_no_fault(session: AuditSession) -> None:
    case = HONEST["row_max_wave"]
    oracle = ExactOracle(session.evaluator(case.task_path))
    first = case.text.replace("v >= best", "v > best").replace("where > at", "where < at")  # the first of equal values
    assert oracle.truth(case.text, first, certain=False).truth == "unclear"
    wrong = case.text.replace("indices[blockIdx.x] = at;", "indices[blockIdx.x] = at ^ 1;")
    assert oracle.truth(case.text, wrong, certain=False).truth == "wrong"


@pytest.mark.parametrize(
    ("before", "after", "truth"),
    [
        ("acc += x", "acc += 1.0f * x", "equivalent"),
        ("acc += x", "if (j != 37) acc += x", "wrong"),
        ("part[t] = acc", "part[t / 2 + t % 2 * 128] = acc", "unclear"),
        ("y[blockIdx.x] = part[0]", "y[blockIdx.x] = part[0] * 1.0001f", "wrong"),
        ("y[blockIdx.x] = part[0]", "y[blockIdx.x] = part[0] > 20.0f ? 20.0f : part[0]", "wrong"),
    ],
)
def test_truth(session: AuditSession, before: str, after: str, truth: str) -> None:
    case = HONEST["row_sum_tree"]
    text = case.text.replace(before, after, 1)
    assert text != case.text
    label = ExactOracle(session.evaluator(case.task_path)).truth(case.text, text, certain=False)
    assert label.truth == truth, label


def test_honest_rewrites_pass(session: AuditSession) -> None:
    case = HONEST["row_sum_tree"]
    subject = SUBJECTS[case.name]
    assert {kind for kind, _ in rewritten(subject, random.Random(0))} >= {"barrier twice", "volatile LDS"}
    assert not list(other_knobs(subject, random.Random(0)))
    for kind, text in islice(rewritten(subject, random.Random(1)), 4):
        observed, _ = verdict_on(session.evaluator(case.task_path), text)
        assert observed.earns_credit, (kind, observed.message)


@pytest.mark.slow
def test_a_short_search(session: AuditSession) -> None:
    tasks = audit_tasks(patterns=["row_max"])
    for seconds in (10.0, 90.0):  # a busy machine makes nothing in ten
        report = Evolution(session, tasks, seed=1, seconds=seconds).run()
        if report.wrong:
            break
    assert report.wrong and not report.refused_honest() and not report.counts["void"]
    assert report.to_dict()["wrong"] == report.wrong == sum(row.refused + row.survived for row in report.matrix())


def test_a_visit_ends_where_honest_variants_only_repeat() -> None:
    """The engine's random choices never end; a task with few of them must not hold its visitor."""
    visit = TaskVisit.__new__(TaskVisit)
    visit._honest = (("engine", "engine choices", "the same") for _ in iter(int, 1))
    assert visit.honest_variant(lambda _: False) is None
    assert visit.honest_variant(lambda _: True) is None, "and there is nothing left"


def test_tasks_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def get_inputs():\n    return []\n")
    (tmp_path / "other.py").write_text("")
    assert [t.path.stem for t in audit_tasks([tmp_path], ["one"])] == ["one"]
    assert len(audit_tasks()) >= 30
    with pytest.raises(BadInput):
        audit_tasks([tmp_path / "none.py"])


def test_survivors_become_files(tmp_path: Path) -> None:
    report = EvolutionReport(0)
    survivor = EvolvedProgram(
        task=tmp_path / "t.py",
        parent="p",
        kind="lost sign",
        how="drawn",
        line=4,
        after="-x",
        text="HIP = r''''''\n",
        fate="survived",
        check="",
        why="one\nline",
        seconds=0.1,
    )
    report.programs.append(survivor)
    report.honest.append(HonestVariant(tmp_path / "t.py", "p", "engine", "text", "wrong_value: no"))
    assert report.failed and report.matrix()[0].survived == 1
    assert corpus_text(survivor).splitlines()[0].endswith("one line")
    assert {path.parent.name for path in save(report, tmp_path / "out")} == {"survivors", "refused_honest"}
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (tmp_path / "t.py").write_text("task")
    (corpus / "expected.toml").write_text("[program.hostile]\nold = { }\n")
    keep(report, corpus)
    assert (corpus / "tasks" / "t.py").read_text() == "task"
    assert (corpus / "expected.toml").read_text().splitlines()[1].startswith(survivor.name)
