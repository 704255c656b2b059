"""The data set on disk: recovery from truncated and edited files, other settings, locking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hipwright.dataset.records import Pair
from hipwright.dataset.store import BAD, MANIFEST, OUTCOMES, PAIRS, BadRow, DatasetStore, TaskOutcome, read_pairs
from hipwright.errors import BadInput
from hipwright.records import Program

SETTINGS = {"variants": 2, "seed": 0}


def pair(task: str, number: int) -> Pair:
    return Pair(
        task=task,
        task_name=f"task_{task}",
        task_source="é\n",
        program=Program(text=f"{task}{number}\n'''"),
        kind="variant",
        correct=True,
        status="pass",
    )


PAIRS_OF = {task: tuple(pair(task, n) for n in range(count)) for task, count in [("a", 2), ("b", 0), ("c", 3)]}
ORDER = list(PAIRS_OF)


def outcome(task: str) -> TaskOutcome:
    return TaskOutcome(entry=task, name=f"task_{task}", status="verified", pairs=tuple(p.key for p in PAIRS_OF[task]))


def fill(store: DatasetStore, tasks: list[str]) -> None:
    for task in tasks:
        if not store.done(task):
            store.add(outcome(task), PAIRS_OF[task])


def built(folder: Path, order: list[str], *, resume: bool = False) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    with DatasetStore(folder, SETTINGS, resume=resume) as store:
        fill(store, order)
        store.finish(ORDER, {})
    return {name: (folder / name).read_bytes() for name in (PAIRS, OUTCOMES, MANIFEST)}


@settings(max_examples=40)
@given(rows=st.floats(0, 1), ends=st.floats(0, 1), order=st.permutations(ORDER))
def test_files_truncated_anywhere_are_completed_to_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, rows: float, ends: float, order: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("data")
    whole = built(folder / "whole", ORDER)
    torn = folder / "torn"
    torn.mkdir()
    with DatasetStore(torn, SETTINGS, resume=False) as store:
        fill(store, order)
    for name, share in ((PAIRS, rows), (OUTCOMES, ends)):
        data = (torn / name).read_bytes()
        (torn / name).write_bytes(data[: int(share * len(data))])
    assert built(torn, order, resume=True) == whole


def test_the_files_do_not_depend_on_the_order_in_which_tasks_end(tmp_path: Path) -> None:
    assert built(tmp_path / "one", ["c", "a", "b"]) == built(tmp_path / "two", ["a", "b", "c"])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"{]\n", "malformed"),
        (b"\xff\xfe\n", ""),
        (b'{"key":"0"}\n', "missing required field"),
        (b"row\n", "does not belong"),
    ],
)
def test_a_broken_row_is_reported_and_its_task_made_again(tmp_path: Path, broken: bytes, why: str) -> None:
    whole = built(tmp_path, ORDER)
    lines = (tmp_path / PAIRS).read_bytes().splitlines(keepends=True)
    if broken == b"row\n":  # a row whose program was edited
        plain = json.loads(lines[1])
        broken = json.dumps({**plain, "program": {"text": "other"}}).encode() + b"\n"
    (tmp_path / PAIRS).write_bytes(b"".join([lines[0], broken, *lines[2:]]))
    bad: list[BadRow] = []
    assert len(list(read_pairs(tmp_path, bad))) == 4
    assert [(one.file, one.line) for one in bad] == [(PAIRS, 2)] and why in bad[0].why
    with DatasetStore(tmp_path, SETTINGS, resume=True) as store:
        assert not store.done("a") and store.done("c") and len(store.bad) == 1
        fill(store, ORDER)
        store.finish(ORDER, {})
    assert (tmp_path / PAIRS).read_bytes() == whole[PAIRS]
    assert BadRow.from_json((tmp_path / BAD).read_bytes()) == bad[0]


def test_an_incomplete_last_row_is_reported_by_readers(tmp_path: Path) -> None:
    built(tmp_path, ORDER)
    with (tmp_path / PAIRS).open("ab") as stream:
        stream.write(b'{"key":')
    bad: list[BadRow] = []
    assert len(list(read_pairs(tmp_path, bad))) == 5 and "torn" in bad[0].why


def test_an_infrastructure_error_is_tried_again(tmp_path: Path) -> None:
    with DatasetStore(tmp_path, SETTINGS, resume=False) as store:
        store.add(TaskOutcome(entry="a", name="a", status="fault", why="no memory"), ())
        store.add(TaskOutcome(entry="b", name="b", status="failed", why="it raises"), ())
    with DatasetStore(tmp_path, SETTINGS, resume=True) as store:
        assert not store.done("a") and store.done("b")


def test_final_fields_are_set_at_the_end(tmp_path: Path) -> None:
    built(tmp_path, ORDER)
    first = PAIRS_OF["a"][0]
    with DatasetStore(tmp_path, SETTINGS, resume=True) as store:
        store.finish(ORDER, {first.key: {"split": "deeper"}})
    assert list(read_pairs(tmp_path))[:2] == [replace(first, split="deeper"), PAIRS_OF["a"][1]]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"resume": False}, "already holds"), ({"settings": {**SETTINGS, "variants": 3}}, "begun with variants 2")],
)
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    built(tmp_path, ORDER)
    asked: dict[str, Any] = {"settings": SETTINGS, "resume": True, **change}
    with pytest.raises(BadInput, match=says), DatasetStore(tmp_path, **asked):
        pass


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with (
        DatasetStore(tmp_path, SETTINGS, resume=False),
        pytest.raises(BadInput, match="another process"),
        DatasetStore(tmp_path, SETTINGS, resume=True),
    ):
        pass


def test_a_missing_data_set_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no data set"):
        list(read_pairs(tmp_path))
