"""Overlap with a folder: planted copies are found by the strongest kind of comparison, unrelated tasks are not."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hipwright.dataset.overlap import (
    Fingerprint,
    FingerprintIndex,
    OverlapReport,
    duplicates,
    operator_steps,
    overlap,
    overlap_check,
)
from hipwright.errors import BadInput
from hipwright.synth.compose import compose
from hipwright.synth.records import SyntheticTask
from tests.dataset.planted import planted, renamed
from tests.synth.captured import task

ROWS = task("a = torch.softmax(x, dim=-1)\nb = (a - a.mean(dim=-1, keepdim=True)).exp()\nreturn a + b * self.w", "w")
OTHER = task("s = x.cumsum(dim=1)\nreturn s.tanh().amax(dim=0)")
VALUES = task("y = x.sigmoid()\nif float(y.sum()) > 0:\n    y = y.cos()\nreturn torch.logsumexp(y, dim=0).sqrt()")
BROKEN = task("y = torch.relu(x)\nz = torch.log_softmax(y, dim=1)\nreturn torch.logsumexp(z, dim=0)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("held")
    (made / "level1").mkdir()
    (made / "level1" / "1_rows.py").write_text(planted(ROWS)["everything"])
    (made / "level1" / "2_values.py").write_text(renamed(VALUES) or "")
    (made / "level1" / "3_broken.py").write_text(BROKEN.replace("forward(self, x):", "forward(self, x:"))
    (made / "level1" / "4_bytes.py").write_bytes("# größer\n".encode("latin-1"))
    (made / "level1" / "5_last.py").write_text(task("return x.flip(0).sort(dim=1).values"))
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> OverlapReport:
    tasks = {
        "rows": ROWS,
        "other": OTHER,
        "values": VALUES,
        "broken": "# mine\n" + BROKEN.replace("(self, x)", "(self, x,,)"),
    }
    return overlap(tasks, [folder], workers=2)


def test_planted_copies_are_found_by_the_strongest_kind(found: OverlapReport) -> None:
    hits = {(hit.task, hit.other): (hit.how, hit.likeness) for hit in found.hits}
    assert hits == {
        ("rows", "level1/1_rows"): ("shapeless graph", 1.0),
        ("values", "level1/2_values"): ("operators", 1.0),
        ("broken", "level1/3_broken"): ("text", 1.0),
    }
    assert found.found == ("rows", "values", "broken")
    assert (found.tasks, found.others) == (4, 5)


def test_tasks_without_a_graph_are_named_with_the_reason(found: OverlapReport) -> None:
    assert set(found.weaker) == {"level1/2_values", "level1/3_broken", "level1/4_bytes", "values", "broken"}
    assert "by its operators: " in found.weaker["level1/2_values"]
    assert "by its text alone: " in found.weaker["level1/3_broken"]
    assert "cannot be read" in found.weaker["level1/4_bytes"]


def test_the_report_is_plain_json(found: OverlapReport) -> None:
    assert OverlapReport.from_json(found.to_json()) == found


def test_a_folder_without_tasks_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tasks"):
        overlap({"rows": ROWS}, [tmp_path])


# ---------------------------------------------------------------- comparing, without a process


def fingerprint_with(name: str, **what: object) -> Fingerprint:
    return Fingerprint(name=name, **what)  # type: ignore[arg-type]


def test_only_the_strongest_kind_is_reported() -> None:
    known = FingerprintIndex([fingerprint_with("held", graph="g", shapeless="s", steps=("a", "b"), text=("t",))])
    same = fingerprint_with("mine", graph="g", shapeless="s", steps=("a", "b"), text=("t",))
    assert [(hit.how, hit.other) for hit in known.hits(same)] == [("graph", "held")]
    assert [hit.how for hit in known.hits(fingerprint_with("mine", graph="h", shapeless="s"))] == ["shapeless graph"]
    assert [hit.how for hit in known.hits(fingerprint_with("mine", graph="h", steps=("b", "a")))] == ["steps"]
    assert [hit.how for hit in known.hits(fingerprint_with("mine", text=("t",)))] == ["text"]
    assert known.hits(fingerprint_with("mine", graph="h", shapeless="z", steps=("c",), text=("u",))) == []


def test_operators_are_compared_only_where_a_graph_is_missing() -> None:
    operators = tuple(operator_steps(["aten.relu.default", "aten.view.default", "aten.sum.dim_IntList"]))
    assert set(operators) == {"relu#1", "sum#1", "sum after relu#1"}
    known = FingerprintIndex([fingerprint_with("held", graph="g", steps=("a",), operators=operators)])
    assert known.hits(fingerprint_with("mine", graph="h", steps=("b",), operators=operators)) == []
    assert [hit.how for hit in known.hits(fingerprint_with("mine", operators=operators))] == ["operators"]


def test_empty_fingerprints_do_not_match() -> None:
    assert FingerprintIndex([fingerprint_with("held")]).hits(fingerprint_with("mine")) == []


def test_within_one_set_the_first_is_kept() -> None:
    fingerprints = [
        fingerprint_with("one", graph="g"),
        fingerprint_with("two", graph="g"),
        fingerprint_with("three", graph="h"),
        fingerprint_with("four", graph="g"),
    ]
    assert [(hit.task, hit.other) for hit in duplicates(fingerprints)] == [("two", "one"), ("four", "one")]


def made(source: str, shapeless: str | None = None) -> SyntheticTask:
    from hipwright.synth.records import Draft

    draft = Draft(name="mine", source=source, mode="composition")
    return SyntheticTask(
        draft=draft, task="", operators=(), provenance={} if shapeless is None else {"shapeless": shapeless}
    )


def test_synthetic_tasks_are_compared_with_each_other_by_their_records() -> None:
    tasks = {"rows": made(ROWS), "other": made(OTHER), "copy": made(planted(ROWS)["everything"])}
    found = overlap(tasks, ())
    assert [(hit.task, hit.other, hit.how) for hit in found.hits] == [("copy", "rows", "text")]
    assert (found.tasks, found.others, found.weaker) == (3, 0, {})


def test_the_overlap_check_returns_why_a_task_is_too_close(tmp_path: Path) -> None:
    # the texts differ: only the graphs are equal
    (tmp_path / "held.py").write_text(task("return x * x * torch.sigmoid(x * x)"))
    with overlap_check([tmp_path]) as objection:
        assert objection(made(task("return F.silu(x.square())"))) == (
            "held of the folder to keep away from: alike by graph, 1.00"
        )
        assert objection(made(OTHER, shapeless="another")) == ""


# ---------------------------------------------------------------- at length


BASES, UNRELATED = (3, 200) if os.environ.get("HIPWRIGHT_TEST_OVERLAP") == "whole" else (1, 8)
"""HIPWRIGHT_TEST_OVERLAP=whole captures 240 tasks, which takes minutes."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_planted_copies_are_found_and_no_unrelated_task(tmp_path: Path) -> None:
    rng = random.Random(31)
    drafts = {}
    while len(drafts) < BASES + UNRELATED:
        draft = compose(rng)
        drafts.setdefault(tuple(sorted(draft.operators)), draft)
    bases, others = list(drafts.values())[:BASES], list(drafts.values())[BASES:]
    for base in bases:
        for way, text in planted(base.source).items():
            (tmp_path / f"{base.name}__{way}.py").write_text(text)
    tasks = {draft.name: draft.source for draft in (*bases, *others)}
    report = overlap(tasks, [tmp_path], workers=2)
    found = {(hit.task, hit.other) for hit in report.hits}
    wanted = {(path.stem.split("__")[0], path.stem) for path in tmp_path.glob("*.py")}
    assert found == wanted
    assert len(wanted) > 8 * BASES
