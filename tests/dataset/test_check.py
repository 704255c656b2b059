"""The check of rows: planted differences between records and programs are found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hipwright.dataset.check import CheckedRow, _work, sample_rows
from hipwright.dataset.records import BuildSummary, Pair
from hipwright.machine import Machine
from tests.dataset import tiny


def looked(machine: Machine, *pairs: Pair) -> list[CheckedRow]:
    return _work(machine, pairs)


def test_a_broken_program_called_right_is_found_among_honest_rows(machine: Machine, pairs: dict[str, Pair]) -> None:
    broken = replace(pairs["negative"], kind="variant", correct=True, status="pass")
    found = looked(machine, pairs["engine"], broken, pairs["negative"])
    assert [bool(one.wrong) for one in found] == [False, True, False]
    assert "the program is called right: " in found[1].wrong and found[1].key == broken.key


@pytest.mark.slow
def test_unchanged_rows_of_all_kinds_pass(machine: Machine, pairs: dict[str, Pair]) -> None:
    assert {"engine", "variant", "negative", "repair"} <= pairs.keys()
    assert [one.wrong or one.void for one in looked(machine, *pairs.values())] == [""] * len(pairs)


@pytest.mark.slow
def test_every_kind_of_wrong_record_is_found(machine: Machine, pairs: dict[str, Pair]) -> None:
    right = pairs["engine"]
    planted = {
        "called wrong and passes": replace(right, kind="negative", correct=False, status="wrong_value"),
        "its coverage is": replace(right, coverage=0.4),
        "its build for gfx942": replace(right, builds={**right.builds, "gfx942": BuildSummary(ok=True, vgpr=1)}),
        "the program before is called wrong": replace(pairs["repair"], before=pairs["variant"].program),
        "its kind is negative and it is called right": replace(right, kind="negative"),
    }
    for says, one in zip(planted, looked(machine, *planted.values()), strict=True):
        assert says in one.wrong, one


def test_a_row_whose_task_is_broken_is_wrong(machine: Machine, pairs: dict[str, Pair]) -> None:
    (found,) = looked(machine, replace(pairs["engine"], task_source=tiny.RANDOM))
    assert "generator" in found.wrong


@dataclass
class Rows:
    """Many rows that are never all in memory."""

    pair: Pair
    count: int

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (replace(self.pair, task=str(n)) for n in range(self.count))


def test_the_sample_is_uniform_and_drawn_by_the_seed(pairs: dict[str, Pair]) -> None:
    rows = Rows(pairs["engine"], 40)
    assert sample_rows(rows, 5, 3) == sample_rows(rows, 5, 3) != sample_rows(rows, 5, 4)
    assert sample_rows(rows, 0, None)[1] == list(rows)
    hits = [0] * 40
    for seed in range(400):
        for pair in sample_rows(rows, 10, seed)[1]:
            hits[int(pair.task)] += 1
    assert min(hits) > 60 and max(hits) < 140  # 100 on average, standard deviation 8.7
    several = {tuple(p.task for p in sample_rows(rows, 5, None)[1]) for _ in range(5)}
    assert len(several) > 1  # secret without a seed


@pytest.mark.slow
def test_nothing_compiled_before_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' machine has a build cache of its own, empty at first and gone at the end."""
    from hipwright.api.data.hooks import fresh_machine

    monkeypatch.setenv("HIPWRIGHT_CACHE", str(tmp_path / "user"))
    opener = partial(fresh_machine, ("cpu",), False)
    with opener() as made:
        folder = made.cache.folder
        assert folder != tmp_path / "user" and not list(folder.rglob("*.json"))
    assert not folder.exists() and not (tmp_path / "user").exists()
