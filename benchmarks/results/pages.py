"""The pages of docs/results: one for each file of records, and an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def pages(files: Sequence[RecordFile], manual: Mapping[str, str]) -> dict[str, str]:
    """Text by file name. manual: texts of pages that were written by hand, which the index names."""
    return {INDEX: index(files, manual), **{f"{file.name}.md": page(file) for file in files}}


def is_written(text: str) -> bool:
    """Whether a page comes from records; others were written by hand."""
    return WRITTEN in text


def page(file: RecordFile) -> str:
    """The page of a file of records."""
    about = file.about
    facts = [f"Records: `benchmarks/records/{file.path.name}`."]
    facts += [f"Command: `python -m benchmarks {about.command}`."] if about.command else []
    facts += [f"Machine: {about.machine}."] if about.machine else []
    facts += [f"Date: {about.date}."] if about.date else []
    parts = [f"# {about.title}", WRITTEN, "\n".join(facts), "\n".join(f"- {note}" for note in about.notes)]
    return "\n\n".join(part for part in [*parts, *SECTIONS[about.kind](file)] if part) + "\n"


def index(files: Sequence[RecordFile], manual: Mapping[str, str]) -> str:
    """The index of all pages."""
    lines = []
    for file in files:
        card, date, text = SUMMARIES[file.about.kind](file)
        lines.append([f"[{file.about.title}]({file.name}.md)", text, date, card])
    parts = ["# Results", WRITTEN, table(("page", "what", "date", "machine"), lines)]
    links = [f"[{text.partition(chr(10))[0].removeprefix('# ')}]({name})" for name, text in sorted(manual.items())]
    if links:
        parts.append(f"Written by hand, with their commands but without records here: {', '.join(links)}.")
    return "\n\n".join(parts) + "\n"
