"""A data set counted, and written in formats that trainers read (docs/dataset-formats.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.files import prepare_folder, write_file
from hipwright.dataset.store import BadRow, read_pairs
from hipwright.errors import BadInput
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.dataset.export.format import ExportSummary

CHAT = ("sft", "reasons", "trl", "verl", "preference")
"""Formats with a system prompt: that of hipwright's own model authors."""
TITLE = "HIP kernels with proof"


@dataclass(frozen=True)
class DatasetStats:
    """Figures of a data set, the lines that could not be read, and the page that was written, if any."""

    figures: dict[str, Any]
    bad: Sequence[BadRow]
    page: Path | None

    def summary(self) -> dict[str, Any]:
        """The object that `dataset stats --json` prints."""
        bad = [one.to_dict() for one in self.bad]
        return {**self.figures, "bad_rows": bad, "page": str(self.page) if self.page else None}


def dataset_stats(data: Path, out: Path | None = None) -> DatasetStats:
    """Counts the pairs of a data set. out: a page with plots."""
    from hipwright.dataset.stats import dataset_figures

    bad: list[BadRow] = []
    figures = dataset_figures(read_pairs(data, bad))
    if out is not None:
        from hipwright.report.dataset_page import DatasetPage, render_dataset

        prepare_folder(out.parent)
        page = DatasetPage(data.resolve().name, figures, str(data), f"hipwright dataset stats {data}", len(bad))
        write_file(out, render_dataset(page))
    return DatasetStats(figures, bad, out)


def export_dataset(
    data: Path, out: Path, form: str = "jsonl", *, title: str = TITLE, sample: int | None = None, seed: int = 0
) -> ExportSummary:
    """Writes all rows, or a sample across kinds and families, atomically. Raises BadInput for an unknown format."""
    from hipwright.agents import prompt_session
    from hipwright.dataset.export import FORMATS, ExportOptions, export
    from hipwright.dataset.sample import varied_sample

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
    return export(form, pairs if sample is None else varied_sample(pairs, sample, seed), out, options)
