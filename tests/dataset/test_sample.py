"""Samples of data sets: their distribution, and the sample in data/sample, which is verified again."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hipwright.api.data.hooks import fresh_machine
from hipwright.dataset.check import check
from hipwright.dataset.export import read_export
from hipwright.dataset.records import KINDS, Pair
from hipwright.dataset.sample import varied_sample
from hipwright.dataset.store import BadRow
from tests.dataset.made_up import many

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "sample"


def test_a_sample_has_every_kind_and_family() -> None:
    rows = many(700)
    chosen = varied_sample(rows, 50, seed=1)
    assert len({row.key for row in chosen}) == 50 and {row.kind for row in chosen} == set(KINDS)
    assert max(Counter(row.kind for row in chosen).values()) == 10
    assert {name for row in chosen for name in row.families} == {name for row in rows for name in row.families}
    assert len({row.task for row in chosen}) > 40
    places = [rows.index(row) for row in chosen]
    assert places == sorted(places)
    assert chosen == varied_sample(iter(rows), 50, seed=1) != varied_sample(rows, 50, seed=2)


def test_a_sample_of_few_rows_is_all_of_them() -> None:
    rows = many(5)
    assert varied_sample(rows, 9, seed=0) == rows and varied_sample([], 3, seed=0) == []


# ---------------------------------------------------------------- the one in the repository


@pytest.fixture(scope="module")
def shipped() -> list[Pair]:
    bad: list[BadRow] = []
    rows = list(read_export(SHIPPED, bad))
    assert not bad
    return rows


def test_the_shipped_sample_is_small_and_varied(shipped: list[Pair]) -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2 << 20
    assert len(shipped) == 100 and min(Counter(row.kind for row in shipped).values()) >= 15
    assert set(KINDS) == {row.kind for row in shipped} and {row.correct for row in shipped} == {True, False}
    assert len({name for row in shipped for name in row.families}) >= 12
    assert {row.dtype for row in shipped} == {"float32", "float16", "bfloat16"}


def test_every_shipped_row_has_provenance_and_licence(shipped: list[Pair]) -> None:
    for row in shipped:
        assert row.licence and row.split and row.operators
        made = row.provenance
        assert made["made"]["by"] and made["task"]["mode"] == "composition" and made["task"]["mind"] == "engine"
        assert made["hipwright"] and made["compiler"]
        if row.correct:
            assert made["verified"]["cpu"]["workloads"] and set(row.builds) == {"gfx942", "gfx950"}
        else:
            assert row.evidence.startswith("- verdict: ")


def test_the_shipped_sample_loads_with_datasets(
    shipped: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    loaded: Any = datasets.load_dataset(str(SHIPPED), cache_dir=str(tmp_path))
    assert Counter({split: len(rows) for split, rows in loaded.items()}) == Counter(row.split for row in shipped)
    assert {row["key"] for rows in loaded.values() for row in rows} == {row.key for row in shipped}
    card = (SHIPPED / "README.md").read_text()
    assert "license: apache-2.0" in card and "hipwright dataset export" in card
    assert json.loads((SHIPPED / "export.json").read_text())["read"] == 100


@pytest.mark.slow
def test_a_shipped_row_of_each_kind_is_verified_again(shipped: list[Pair]) -> None:
    one_of_each = [next(row for row in shipped if row.kind == kind) for kind in KINDS]
    opener = partial(fresh_machine, ("gfx942", "gfx950", "cpu"), False)
    report = check(one_of_each, opener, sample=0, seed=None, workers=1)
    assert not report.wrong and not report.void and len(report.checked) == len(KINDS)
