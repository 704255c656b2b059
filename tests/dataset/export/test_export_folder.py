"""The folder of an export: atomic replacement, errors, and recovery after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.dataset.export import FORMATS, export, read_export
from hipwright.dataset.records import Pair
from hipwright.errors import BadInput
from tests.dataset.pair_sample import sample

Load = Callable[..., Any]


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_an_export_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    export("jsonl", sample(), tmp_path / "out")
    export("parquet", sample()[:2], tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.jsonl")) and leftovers(tmp_path) == []
    assert json.loads((tmp_path / "out" / "export.json").read_text())["format"] == "parquet"


def test_folders_with_other_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="other files"):
        export("jsonl", sample(), tmp_path / "out")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        export("jsonl", sample(), tmp_path / "file")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work" and leftovers(tmp_path) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_fails_leaves_the_earlier_export(tmp_path: Path, form: str) -> None:
    export("jsonl", sample(), tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def broken() -> Iterator[Pair]:
        yield from sample()
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        export(form, broken(), tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert leftovers(tmp_path) == []


def test_no_rows_and_unknown_formats_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no row") as error:
        export("sft", [p for p in sample() if not p.correct], tmp_path / "out")
    assert "2 x a wrong program" in error.value.hint and not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="unknown format"):
        export("csv", sample(), tmp_path / "out")


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from tests.dataset.pair_sample import sample, variant
from hipwright.dataset.export import export
def endless():
    for n in range(1, 10**9):
        if n == 600:  # past the first row group
            print("half way", flush=True)
        yield variant("softmax_block", "softmax", float(n))
export({form!r}, endless(), Path({out!r}))
"""


@pytest.mark.parametrize("form", ["parquet", "preference"])
def test_a_killed_export_loses_nothing(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    export("jsonl", sample(), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    script = KILLED.format(folder=str(Path(__file__).parents[3]), form=form, out=str(out))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "half way\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert len(leftovers(tmp_path)) == 1, "what it had written so far"
    export(form, sample(), out)
    assert json.loads((out / "export.json").read_text())["format"] == form
    assert leftovers(tmp_path) == []


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export("jsonl", sample(), out)
    out.rename(tmp_path / ".out.old")  # as a kill between the renames leaves it
    with pytest.raises(BadInput, match="no row"):
        export("sft", [], out)
    assert len(list(read_export(out, []))) == len(sample())


def test_a_failed_replacement_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "out", Path.rename
    export("jsonl", sample(), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fails(self: Path, target: Path) -> Path:
        if Path(target) == out and self.name != ".out.old":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no"):
        export("sft", sample(), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before and leftovers(tmp_path) == []


def test_the_folder_of_a_running_export_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / f".out.{os.getppid()}.abc"
    mine.mkdir()
    export("jsonl", sample(), tmp_path / "out")
    assert mine.exists()
