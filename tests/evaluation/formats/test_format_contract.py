"""The contract of the loaders: each format's example, damaged copies of it, and the one list."""

from __future__ import annotations

import shutil
from pathlib import Path

import format_contract as contract
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import TaskFormat
from hipwright.evaluation.formats.registry import FORMATS, format_named, format_of
from hipwright.evaluation.suite import find_tasks

EACH = pytest.mark.parametrize("form", FORMATS, ids=[one.name for one in FORMATS])


@EACH
def test_it_finds_its_own_layout(form: TaskFormat, tmp_path: Path) -> None:
    contract.finds_its_own(form)
    contract.finds_nothing_in(form, tmp_path)


@EACH
def test_its_example_becomes_task_files(form: TaskFormat, tmp_path: Path) -> None:
    contract.makes_task_files(form)
    contract.is_repeatable(form, tmp_path)


@EACH
def test_its_answers_are_candidates(form: TaskFormat) -> None:
    contract.answers_are_candidates(form)


@EACH
def test_it_runs_nothing_of_the_folder(form: TaskFormat, tmp_path: Path) -> None:
    contract.runs_nothing(form, tmp_path)


@EACH
@settings(max_examples=25)
@given(data=st.data())
def test_damaged_files_are_problems_of_one_line(form: TaskFormat, data: st.DataObject, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("damaged") / form.name
    shutil.copytree(contract.example(form), folder)
    path = data.draw(st.sampled_from(list(contract.data_files(folder))))
    before = path.read_bytes()
    at = data.draw(st.integers(0, len(before)))
    path.write_bytes(
        before[:at] + data.draw(st.binary(max_size=12)) + before[data.draw(st.integers(at, len(before))) :]
    )
    contract.survives(form, folder)


def test_the_list_has_names_of_its_own() -> None:
    names = [one.name for one in FORMATS]
    assert len(set(names)) == len(names) and names[-1] == "kernelbench"
    assert {path.name for path in contract.EXAMPLES.iterdir() if path.is_dir()} == set(names)
    assert all(one.rule.source.startswith("https://") and one.rule.tolerance and one.rule.timing for one in FORMATS)
    with pytest.raises(BadInput, match="no such format: triton") as caught:
        format_named("triton")
    assert "flashinfer-trace" in caught.value.hint


def test_two_layouts_in_one_folder_need_a_choice(tmp_path: Path) -> None:
    shutil.copytree(contract.EXAMPLES / "multikernelbench", tmp_path, dirs_exist_ok=True)
    shutil.copytree(contract.EXAMPLES / "flashinfer-trace", tmp_path, dirs_exist_ok=True)
    with pytest.raises(BadInput, match="the layouts of flashinfer-trace and multikernelbench") as caught:
        format_of(tmp_path)
    assert "--format" in caught.value.hint
    assert len(find_tasks(tmp_path, None, "multikernelbench")) == 2


def test_a_forced_format_without_tasks_names_its_layout(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tasks in") as caught:
        find_tasks(tmp_path, None, "sol-execbench")
    assert "definition.json" in caught.value.hint
    with pytest.raises(BadInput, match="which has no levels"):
        find_tasks(contract.EXAMPLES / "multikernelbench", 1)
