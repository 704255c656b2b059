"""Writes an export: its rows, README.md, export.json, and skipped.jsonl where rows were skipped.

A bad row is skipped: counted, and named with its reason in `skipped.jsonl` and in `ExportSummary`. A row of no use
for the format, such as a wrong program among examples to imitate, is left out and counted under its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from hipwright.dataset.export.card import card
from hipwright.dataset.export.folder import MANIFEST, replacing
from hipwright.dataset.export.format import ExportOptions, ExportSummary, Skipped, printable
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.records import Pair
from hipwright.errors import BadInput


def write(form: ExportFormat, pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Export pairs to the folder `out`, atomically. Raises BadInput when they give no row."""
    with replacing(out) as folder:
        job = ExportJob(form, folder, options)
        try:
            form.fill(job.valid_pairs(pairs), job)
        except BaseException:
            job.abandon()
            raise
        parts = job.parts()
        unread = [Skipped(where=f"{one.file}:{one.line}", why=printable(one.why)) for one in options.bad]
        skipped = (*unread, *job.skipped)
        if not parts:
            raise BadInput(f"no row for {form.name} came of the pairs", hint=_reasons(skipped, job.left_out))
        rows: dict[str, dict[str, int]] = {}
        for part in parts:
            rows.setdefault(part.table, {})[part.split] = part.rows
        written = ExportSummary(
            format=form.name,
            files=tuple(name for part in parts for name in part.files),
            rows=rows,
            read=job.tally.rows,
            skipped=skipped,
            left_out=dict(job.left_out),
        )
        (folder / "README.md").write_text(card(form, parts, job.tally.figures(), written, options), encoding="utf-8")
        (folder / MANIFEST).write_text(_manifest(written, options))
        if skipped:
            (folder / "skipped.jsonl").write_text("".join(f"{one.to_json()}\n" for one in skipped), encoding="utf-8")
    return written


def _reasons(skipped: Sequence[Skipped], left_out: Mapping[str, int]) -> str:
    reasons = Counter(left_out) + Counter(one.why for one in skipped)
    return "; ".join(f"{count} x {why}" for why, count in reasons.most_common(4)) or "there are no pairs"


def _manifest(written: ExportSummary, options: ExportOptions) -> str:
    plain = {**written.to_dict(), "skipped": len(written.skipped), "command": options.command}
    return msgspec.json.format(msgspec.json.encode(plain, order="deterministic")).decode() + "\n"
