"""Starts or resumes a search in its own process, to be killed: `python victim.py HOME TALLY DELAY [WORKERS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from landscape import Judge, begin, go_on, source

from hipwright import config
from hipwright.archive import Archive


def main(home: str, tally: str, delay: str, workers: str = "1") -> None:
    judge = Judge(delay=float(delay), tally=Path(tally))

    def confirm(program):  # type: ignore[no-untyped-def]
        return Judge(delay=float(delay)).evaluate(program)

    print("ready", flush=True)
    with Archive(config.place_of(home)) as archive:
        options = {"workers": int(workers), "confirm": confirm, "source": source()}
        if archive.runs():
            go_on(archive, judge, **options)
        else:
            begin(archive, judge, budget=24, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
