"""Pages of docs/results, written from benchmarks/records: every measured figure with its baseline, card and date.

    python -m benchmarks results            writes the pages
    python -m benchmarks results --check    exit code 1 where a committed page differs

Needs no GPU. New records are a file in benchmarks/records and an entry in its index.toml. Pages that were written by
hand are left as they are, and named in the index.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.common import ROOT
from benchmarks.results.pages import is_written, pages
from benchmarks.results.record_files import RECORDS, record_files


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--records", type=Path, default=RECORDS, metavar="DIR")
    options.add_argument("--out", type=Path, default=ROOT / "docs/results", metavar="DIR")
    options.add_argument("--check", action="store_true", help="write nothing, and name pages that differ")


def run(options: argparse.Namespace) -> int:
    """0 when the pages are written or equal, 1 when one differs."""
    there = {path.name: path.read_text(encoding="utf-8") for path in options.out.glob("*.md")}
    texts = pages(record_files(options.records), {name: text for name, text in there.items() if not is_written(text)})
    stale = [options.out / name for name, text in there.items() if is_written(text) and name not in texts]
    unlike = [options.out / name for name, text in texts.items() if there.get(name) != text]
    if options.check:
        for path in [*unlike, *stale]:
            print(f"{path} differs from what `python -m benchmarks results` writes")
        return 1 if unlike or stale else 0
    options.out.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.unlink()
    for path in unlike:
        path.write_text(texts[path.name], encoding="utf-8")
    print(f"{len(texts)} pages in {options.out}, {len(unlike)} of them changed")
    return 0
