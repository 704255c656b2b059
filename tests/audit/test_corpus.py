"""The table: every file has a row, every row is possible, and the taxonomy is covered."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from hipwright.audit.cases import CHECKS, CORPUS, ROWS, CorpusCase, all_cases, select
from hipwright.errors import CandidateError, ProgramError
from hipwright.program import parse
from hipwright.program.modelnew.check import check, form_of

CASES = all_cases()


def test_files_and_rows_are_the_same() -> None:
    files = {
        f"{form}/{kind}/{path.stem}"
        for form in ("program", "modelnew")
        for kind in ("honest", "broken", "hostile")
        for path in (CORPUS / form / kind).glob("*.py")
    }
    assert {case.id for case in CASES} == files
    assert all(case.task_path.is_file() for case in CASES)
    used = {case.task for case in CASES}
    assert used == {path.stem for path in (CORPUS / "tasks").glob("*.py")}, "a task without a candidate"


def test_it_is_large_and_covers_the_taxonomy() -> None:
    kinds = Counter((case.form, case.kind) for case in CASES)
    bad = [case for case in CASES if not case.honest]
    assert len(bad) >= 80 and len(CASES) - len(bad) >= 40
    assert all(kinds[form, kind] for form in ("program", "modelnew") for kind in ("honest", "broken", "hostile"))
    assert {case.row for case in bad} == {*ROWS, "mistake"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_row_says_what_must_happen(case: CorpusCase) -> None:
    assert set(case.targets) <= {"cpu", "cuda", "rocm"} and case.targets
    if case.honest:
        assert case.statuses == ("pass",) and not case.checks and not case.row
        return
    assert case.row and case.checks and set(case.checks) <= set(CHECKS)
    assert "pass" not in case.statuses or "coverage" in case.checks, "a pass must be worth nothing"
    assert case.text.startswith("# "), "the first line says what it does"
    assert bool(case.rule) <= ("static rules" in case.checks)


@pytest.mark.parametrize("case", select(form="program"), ids=lambda case: case.id)
def test_the_parser_stops_its_cases(case: CorpusCase) -> None:
    try:
        parse(case.text)
    except ProgramError as error:
        assert "parser" in case.checks and case.message_matches(error.message)
    else:
        assert case.checks != ("parser",)


@pytest.mark.parametrize("case", select(form="modelnew"), ids=lambda case: case.id)
def test_static_rules_stop_their_cases(case: CorpusCase) -> None:
    try:
        refused = {finding.rule for finding in check(case.text) if finding.refused}
    except (ProgramError, CandidateError):
        assert case.checks == ("parser",)
        return
    if case.rule:
        assert case.rule in refused
    if case.checks == ("static rules",):
        assert refused
    if "static rules" not in case.checks:
        assert not refused, "a rule that nobody expects: is it too wide?"


def test_forms_are_detected_by_content() -> None:
    told = {case.id: form_of(case.text) for case in CASES}
    # a file that calls its class by another name, or gives a program a class, has the form of its text
    odd = {i for i, form in told.items() if not i.startswith(form)}
    assert odd <= {"program/hostile/subclasses_the_reference", "modelnew/broken/no_model"}


def test_honest_candidates_cover_kinds_of_kernels() -> None:
    tasks = "".join(case.task_path.read_text() for case in CASES if case.honest)
    for word in ("float64", "half()", "bfloat16()", "int32", "uint8", "randint", "> 0", "BatchNorm", "register_buffer"):
        assert word in tasks, word
    plans = "".join(case.text for case in select(form="program", kind="honest"))
    for word in ("atomicAdd", "def prepare", "stride(0)", "conv2d", "F.linear", "return y, s", "torch.bool", "float4"):
        assert word.replace("F.", "functional.") in plans or word in plans, word


def test_tasks_are_tasks() -> None:
    for path in (CORPUS / "tasks").glob("*.py"):
        names = {
            node.name for node in ast.parse(path.read_text()).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        }
        assert {"Model", "get_inputs", "get_init_inputs"} <= names


def test_patterns_choose() -> None:
    assert {case.name for case in select(["decoy*"], form="program")} >= {"decoy", "decoy_one_element"}
    assert all(case.kind == "honest" for case in select(["honest"]))
    assert select(["program/broken/tail_read"])[0].task == "row_sum"
    assert not select(["no such thing"])
