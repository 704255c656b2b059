"""The files of records in benchmarks/records, as index.toml describes them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.common import ROOT
from benchmarks.suite.records import Measured, read
from hipwright.errors import BadInput

RECORDS = ROOT / "benchmarks/records"
Kind = Literal["suite", "first", "knobs", "mix", "single"]
"""suite, first: rows of `benchmarks suite`, timed or with the time to the first verified program alone; knobs: of
`benchmarks knobs`; mix: of `benchmarks mix`; single: measurements without raw records, copied from what a command
printed."""


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of index.toml. command: what measured the records, after `python -m benchmarks`.

    machine: the card and processors; empty where each record names its own. date: empty where each record has its own.
    suite: whose tasks they are. notes: what a reader of the figures must know.
    """

    title: str
    kind: Kind
    command: str = ""
    machine: str = ""
    date: str = ""
    suite: str = "kernels"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordFile:
    """A file of records. name: its stem, and that of its page."""

    name: str
    path: Path
    about: Description

    def measured(self) -> list[Measured]:
        """Its rows, where it is of the kind "suite" or "first"."""
        return read([self.path])

    def rows(self) -> list[dict[str, Any]]:
        """Its rows as plain objects."""
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


def record_files(folder: Path = RECORDS) -> list[RecordFile]:
    """Every file of records, in the order of index.toml. BadInput where a file and its entry do not both exist."""
    entries = tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))
    found = {path.stem: path for path in sorted(folder.glob("*.jsonl"))}
    if unlike := sorted(set(entries) ^ set(found)):
        raise BadInput(f"records and {folder / 'index.toml'} differ: {', '.join(unlike)}")
    return [RecordFile(name, found[name], msgspec.convert(entry, Description)) for name, entry in entries.items()]
