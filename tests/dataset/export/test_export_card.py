"""The card of an export: counts, front matter, and what was not verified or measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hipwright.dataset.export import FORMATS, ExportOptions, export
from hipwright.dataset.export.card import features
from hipwright.dataset.export.parquet import schema
from hipwright.dataset.export.rows import COLUMNS, flat
from tests.dataset.pair_sample import pair, sample, timing

Load = Callable[..., Any]


def test_the_card_has_counts_and_what_was_not_measured(tmp_path: Path) -> None:
    pairs = sample()
    export("parquet", pairs, tmp_path / "out", ExportOptions(title="A sample", command="hipwright dataset export d"))
    text = (tmp_path / "out" / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["license"] == "apache-2.0" and head["size_categories"] == ["n<1K"]
    assert head["task_categories"] == ["text-generation"]
    counts = {one["name"]: one["num_examples"] for one in head["dataset_info"][0]["splits"]}
    assert counts == {split: sum(p.split == split for p in pairs) for split in counts}
    assert "NOT run and NOT measured on an AMD GPU" in body
    assert f"gfx942: {len(pairs)} built, 0 failed" in body and "static estimates" in body
    assert f"{sum(p.correct for p in pairs)} programs passed" in body and "hipwright dataset export d" in body


def test_the_card_has_measurements(tmp_path: Path) -> None:
    amd = timing(1.0, 1.2, "AMD MI300X")
    amd = type(amd).from_dict({**amd.to_dict(), "architecture": "gfx942"})
    rows = [pair("softmax_block", "softmax", timing=timing(1, 2)), pair("softmax_online", "softmax", timing=amd)]
    export("jsonl", rows, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "1 row on AMD MI300X (gfx942)" in text and "1 row on NVIDIA H200 (sm_90)" in text
    assert "NOT measured" not in text
    export("jsonl", [pair("softmax_block", "softmax", builds={})], tmp_path / "none")
    export("jsonl", [pair("softmax_block", "softmax", licence="")], tmp_path / "bare")
    text_of_bare = (tmp_path / "bare" / "README.md").read_text()
    assert "license: unknown" in text_of_bare and "no licence named (1 pair)" in text_of_bare
    assert "NOT compiled for any AMD target" in (tmp_path / "none" / "README.md").read_text()


@pytest.mark.parametrize("form", FORMATS)
def test_the_cards_columns_are_those_that_the_loader_sees(tmp_path: Path, load: Load, form: str) -> None:
    export(form, sample(), tmp_path / "out")
    head = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    for info in head["dataset_info"]:
        for name, rows in load(tmp_path / "out", info["config_name"]).items():
            assert rows.features._to_yaml_list() == info["features"]
            assert len(rows) == next(s["num_examples"] for s in info["splits"] if s["name"] == name)


def test_features_are_those_of_the_datasets_library() -> None:
    datasets = pytest.importorskip("datasets")
    assert datasets.Features.from_arrow_schema(schema(COLUMNS))._to_yaml_list() == features(COLUMNS)
    assert set(flat(sample()[0])) == set(COLUMNS)
