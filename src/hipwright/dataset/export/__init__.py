"""Export of data sets in the formats that trainers read; FORMATS lists them. An export is written atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from hipwright.dataset.export.chat import export_sft
from hipwright.dataset.export.format import ExportOptions, ExportSummary, Skipped
from hipwright.dataset.export.jsonl import export_jsonl, read_export
from hipwright.dataset.export.parquet import export_parquet
from hipwright.dataset.export.preference import export_preference
from hipwright.dataset.export.reasons import export_reasons
from hipwright.dataset.export.rl import export_trl, export_verl
from hipwright.dataset.export.source import export_source
from hipwright.dataset.records import Pair
from hipwright.errors import BadInput

__all__ = ["FORMATS", "ExportOptions", "ExportSummary", "Skipped", "export", "read_export"]

FORMATS: dict[str, Callable[[Iterable[Pair], Path, ExportOptions], ExportSummary]] = {
    "jsonl": export_jsonl,
    "parquet": export_parquet,
    "sft": export_sft,
    "reasons": export_reasons,
    "trl": export_trl,
    "verl": export_verl,
    "source": export_source,
    "preference": export_preference,
}


def export(name: str, pairs: Iterable[Pair], out: Path, options: ExportOptions | None = None) -> ExportSummary:
    """Write the pairs to the folder `out` in the format `name`. BadInput for an unknown format or a folder in use."""
    if name not in FORMATS:
        raise BadInput(f"unknown format {name!r}", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[name](pairs, out, options or ExportOptions())
