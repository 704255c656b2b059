"""The pages of docs/results are what `python -m benchmarks results` writes from the committed records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.common import ROOT
from benchmarks.results.record_files import RECORDS, record_files
from hipwright.errors import BadInput


def test_the_committed_pages_are_those_of_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "--check"]) == 0, capsys.readouterr().out


def test_pages_that_differ_are_named_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    records.mkdir()
    entry = '[one]\ntitle = "One"\nkind = "single"\n'
    (records / "index.toml").write_text(entry)
    with pytest.raises(BadInput, match="differ: one"):
        record_files(records)
    row = {key: key for key in ("subject", "what", "result", "machine", "command")} | {"date": "2026-11-25"}
    (records / "one.jsonl").write_text(json.dumps(row) + "\n")
    asked = ["results", "--records", str(records), "--out", str(out)]
    assert main([*asked, "--check"]) == 1 and "one.md differs" in capsys.readouterr().out
    assert main(asked) == 0 and main([*asked, "--check"]) == 0
    assert "| what | result | 2026-11-25 | machine | `command` |" in (out / "one.md").read_text()
    (out / "old.md").write_text((out / "one.md").read_text())
    (out / "manual.md").write_text("# By hand\n")
    assert main([*asked, "--check"]) == 1 and main(asked) == 0 and not (out / "old.md").exists()
    assert "[By hand](manual.md)" in (out / "README.md").read_text() and main([*asked, "--check"]) == 0


def test_every_file_of_records_has_a_title_and_its_facts() -> None:
    for file in record_files(RECORDS):
        assert file.about.title
        assert file.about.kind == "single" or (file.about.command and (file.about.machine or file.about.kind == "mix"))


def test_speedups_in_the_readme_are_those_of_the_results() -> None:
    shown = set(re.findall(r"(\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]) times", (ROOT / "README.md").read_text()))
    pages = "".join((ROOT / "docs/results" / name).read_text() for name in ("README.md", "measurements.md"))
    assert shown and shown <= set(re.findall(r"\d+\.\d\d \[[^]]*\]", pages))
