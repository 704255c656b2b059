"""What `dataset stats` and `dataset export` tell and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.cli.dataset_work import name_some
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.dataset.store import BadRow

CHAT = ("sft", "trl", "verl", "preference")
"""Formats with a system prompt: the one that hipwright's own writers are given."""


def stats(output: CommandOutput, data: Path, out: Path | None) -> int:
    """Count; exit 1 when a line could not be read."""
    from hipwright.api.files import prepare_folder, write_file
    from hipwright.dataset.stats import tally
    from hipwright.dataset.store import read_pairs

    bad: list[BadRow] = []
    figures = tally(read_pairs(data, bad))
    if out is not None:
        from hipwright.report.dataset_page import DatasetPage, render_dataset

        prepare_folder(out.parent)
        page = DatasetPage(data.resolve().name, figures, str(data), f"hipwright dataset stats {data}", len(bad))
        write_file(out, render_dataset(page))
    _name_bad(output, bad)
    if output.json_mode:
        output.result({**figures, "bad_rows": [one.to_dict() for one in bad], "page": str(out) if out else None})
    else:
        _say(output, figures, out)
    return 1 if bad else 0


def export(
    output: CommandOutput, data: Path, out: Path, form: str, title: str, *, sample: int | None, seed: int
) -> int:
    """Write all rows, or a sample of them; exit 1 when a row had to be left out because it is bad."""
    from hipwright.agents import prompt_session
    from hipwright.dataset.export import FORMATS, ExportOptions
    from hipwright.dataset.export import export as write
    from hipwright.dataset.sample import across
    from hipwright.dataset.store import read_pairs

    if form not in FORMATS:
        raise BadInput(f"unknown format {form!r}", hint=f"formats: {', '.join(FORMATS)}")
    bad: list[BadRow] = []
    drawn = "" if sample is None else f" --sample {sample} --seed {seed}"
    options = ExportOptions(
        system=prompt_session.system(TARGETS.default_offline) if form in CHAT else "",
        title=title,
        command=f"hipwright dataset export {data} --format {form} --out {out}{drawn}",
        bad=bad,
    )
    pairs = read_pairs(data, bad)
    written = write(form, pairs if sample is None else across(pairs, sample, seed), out, options)
    skipped = [f"{one.where} {one.task}: {one.why}" for one in written.skipped]
    name_some(output, "bad rows are left out (skipped.jsonl)", skipped)
    if output.json_mode:
        output.result({**written.to_dict(), "total": written.total, "out": str(out)})
        return 1 if skipped else 0
    table = output.console()
    table.print(f"{written.total} rows of {written.read} pairs as {form} in {out}")
    for name, splits in written.rows.items():
        table.print(f"  {name}: " + ", ".join(f"{rows} {split}" for split, rows in splits.items()))
    for why, count in written.left_out.items():
        table.print(f"  {count} not of use to this format: {why}")
    return 1 if skipped else 0


def _name_bad(output: CommandOutput, bad: list[BadRow]) -> None:
    name_some(output, "unreadable lines", [f"{one.file} line {one.line}: {one.why}" for one in bad])


def _say(output: CommandOutput, figures: dict[str, Any], out: Path | None) -> None:
    """The figures as lines; distributions are for the page and for --json."""
    table = output.console()
    for name, value in figures.items():
        if isinstance(value, (int, float, str)):
            table.print(f"{name}: {value}")
        elif isinstance(value, dict) and value and all(isinstance(item, (int, float)) for item in value.values()):
            most = sorted(value.items(), key=lambda item: -item[1])
            more = f", and {len(most) - 12} more" if len(most) > 12 else ""
            table.print(f"{name}: " + ", ".join(f"{key} {count}" for key, count in most[:12]) + more)
    if out is not None:
        table.print(f"page: {out}")
