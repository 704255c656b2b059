"""Exports of pairs as rows: every format with all columns is read back equal, and bad rows are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipwright.dataset.export import ExportOptions, export, read_export
from hipwright.dataset.export.rows import unflat
from hipwright.dataset.records import Pair
from hipwright.dataset.store import BadRow
from hipwright.records import Program
from tests.dataset.pair_sample import pair, program, sample, timing, variant

SPLITS = {"train", "unseen_shapes", "test_family"}
Load = Callable[..., Any]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_every_pair_comes_back_equal(tmp_path: Path, load: Load, form: str) -> None:
    pairs = [*sample(), pair("softmax_block", "softmax", kind="variant", timing=timing(1.4, 1.6), us=9.0)]
    written = export(form, pairs, tmp_path / "out")
    assert written.total == written.read == len(pairs) and not written.skipped and not written.left_out
    loaded = load(tmp_path / "out")
    assert set(loaded) == SPLITS
    for split, rows in loaded.items():
        assert [unflat(row) for row in rows] == [p for p in pairs if p.split == split]
        assert [row["key"] for row in rows] == [p.key for p in pairs if p.split == split]


def test_json_lines_are_read_back_by_read_export(tmp_path: Path) -> None:
    pairs = sample()
    export("jsonl", pairs, tmp_path / "out")
    bad: list[BadRow] = []
    assert sorted(read_export(tmp_path / "out", bad), key=lambda p: p.key) == sorted(pairs, key=lambda p: p.key)
    assert not bad


def test_broken_lines_are_reported_and_the_others_read(tmp_path: Path) -> None:
    pairs = sample()
    export("jsonl", pairs, tmp_path / "out")
    path = tmp_path / "out" / "train.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    no_map = json.dumps({**json.loads(lines[2]), "knobs": "nothing"}).encode() + b"\n"
    torn = lines[-1][:200]
    path.write_bytes(b"".join([lines[0], b"{not json\n", no_map, b"\xff\xfe\n", b"[]\n", *lines[5:-1], torn]))
    bad: list[BadRow] = []
    found = list(read_export(tmp_path / "out", bad))
    assert len(found) == len(pairs) - 5
    assert [one.line for one in bad] == [2, 3, 4, 5, len(lines)]
    assert "cut off" in bad[-1].why
    again = export("sft", found, tmp_path / "again", ExportOptions(bad=bad))
    assert [one.where for one in again.skipped] == [f"train.jsonl:{one.line}" for one in bad]
    assert len((tmp_path / "again" / "skipped.jsonl").read_text().splitlines()) == 5


def test_bad_rows_are_counted_and_named_with_their_reason(tmp_path: Path) -> None:
    good = sample()
    bad = [
        pair("softmax_online", "softmax", task_source=" \n"),
        pair("softmax_online", "softmax", kind="variant", status="wrong_value"),
        pair("softmax_online", "softmax", kind="variant", program=Program(text="x\udc80")),
        pair("softmax_online", "softmax", kind="variant", us=float("inf"), program=Program(text="# inf")),
        good[0],
    ]
    written = export("parquet", [*good[:4], *bad, *good[4:]], tmp_path / "out")
    assert written.total == len(good) and len(written.skipped) == 5
    reasons = [one.why for one in written.skipped]
    for reason, words in zip(reasons, ("no reference", "correct with", "JSON", "not finite", "twice"), strict=True):
        assert words in reason
    named = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert [one["where"] for one in named] == [one.where for one in written.skipped]
    assert "5 bad rows" in (tmp_path / "out" / "README.md").read_text()


def test_unusual_text_is_read_back_equal(tmp_path: Path, load: Load) -> None:
    odd = "# \u202e ünïcode ``` \x00 \r\n" + program("softmax_block").text
    one = variant("softmax_block", "softmax", 3.0, evidence="line\nline \U0001f600")
    one = Pair.from_dict({**one.to_dict(), "program": Program(text=odd).to_dict()})
    for form in ("jsonl", "parquet"):
        export(form, [one], tmp_path / form)
        assert unflat(load(tmp_path / form)["test_family"][0]) == one


def test_many_rows_make_numbered_shards(tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.dataset.export.parquet.SHARD_ROWS", 20)
    monkeypatch.setattr("hipwright.dataset.export.parquet.GROUP_ROWS", 10)
    pairs = [variant("softmax_block", "softmax", float(us), split="") for us in range(1, 46)]
    written = export("parquet", pairs, tmp_path / "out")
    assert written.files == tuple(f"data/unsplit-0000{n}-of-00003.parquet" for n in range(3))
    rows = load(tmp_path / "out")["unsplit"]
    assert [unflat(row) for row in rows] == pairs
    assert "no split" in (tmp_path / "out" / "README.md").read_text()
