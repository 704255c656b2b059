"""The pages of docs/results: one for each file of records, and an index."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.other_pages import (
    knobs_page,
    knobs_summary,
    mix_page,
    mix_summary,
    single_page,
    single_summary,
)
from benchmarks.results.record_files import RecordFile
from benchmarks.results.suite_page import first_page, first_summary, suite_page, suite_summary
from benchmarks.results.tables import table

SECTIONS = {"suite": suite_page, "first": first_page, "knobs": knobs_page, "mix": mix_page, "single": single_page}
SUMMARIES = {
    "suite": suite_summary,
    "first": first_summary,
    "knobs": knobs_summary,
    "mix": mix_summary,
    "single": single_summary,
}
INDEX = "README.md"
WRITTEN = "Written by `python -m benchmarks results` from `benchmarks/records`; not edited by hand."


def pages(files: Sequence[RecordFile]) -> dict[str, str]:
    """Text by file name."""
    return {INDEX: index(files), **{f"{file.name}.md": page(file) for file in files}}


def page(file: RecordFile) -> str:
    """The page of a file of records."""
    about = file.about
    facts = [f"Records: `benchmarks/records/{file.path.name}`."]
    facts += [f"Command: `python -m benchmarks {about.command}`."] if about.command else []
    facts += [f"Machine: {about.machine}."] if about.machine else []
    facts += [f"Date: {about.date}."] if about.date else []
    parts = [f"# {about.title}", WRITTEN, "\n".join(facts), "\n".join(f"- {note}" for note in about.notes)]
    return "\n\n".join(part for part in [*parts, *SECTIONS[about.kind](file)] if part) + "\n"


def index(files: Sequence[RecordFile]) -> str:
    """The index of all pages."""
    lines = []
    for file in files:
        card, date, text = SUMMARIES[file.about.kind](file)
        lines.append([f"[{file.about.title}]({file.name}.md)", text, date, card])
    return "\n\n".join(["# Results", WRITTEN, table(("page", "what", "date", "machine"), lines)]) + "\n"
