"""Reads the two record files of a folder of synthesised tasks."""

from __future__ import annotations

from pathlib import Path

from hipwright.synth.records import DroppedDraft, SyntheticTask
from hipwright.synth.store import DROPPED, TASKS


def read_tasks(folder: Path) -> list[SyntheticTask]:
    return [SyntheticTask.from_json(line) for line in (folder / TASKS).read_bytes().splitlines()]


def read_dropped(folder: Path) -> list[DroppedDraft]:
    return [DroppedDraft.from_json(line) for line in (folder / DROPPED).read_bytes().splitlines()]
