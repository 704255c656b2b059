"""Compiles programs with AMD's own HIP headers and hipRTC libraries, for every set, mode and architecture.

    python -m benchmarks header-sets [--all] [--set NAME...] [--mode MODE...] [--arch ARCH...] [--kind KIND...]

Sources are the first programs of the suite, the corpus's honest programs and the programs of the knowledge pages; a
sample of a tenth without --all. `scripts/header-sets.sh` fetches the sets. Exit code 1 where a source does not compile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import append_json
from benchmarks.headers import sets
from benchmarks.headers.compilers import COMPILERS, MODES
from benchmarks.headers.sources import KINDS, Source, sources
from hipwright.errors import BadInput, ToolchainError
from hipwright.targets import OFFLINE

SAMPLE = 10
ARCHS = ("gfx90a", "gfx942")


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--all", action="store_true", help="every source instead of a tenth")
    options.add_argument("--set", nargs="+", default=list(sets.NAMES), choices=sets.NAMES, dest="sets")
    options.add_argument("--mode", nargs="+", default=list(MODES), choices=MODES)
    options.add_argument("--arch", nargs="+", default=list(ARCHS), choices=list(OFFLINE))
    options.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    options.add_argument("--json", type=Path, help="appends a row for each set, mode and architecture")


def run(options: argparse.Namespace) -> int:
    """Prints a row for each combination, and the sources that fail with their first messages."""
    found = sets.find()
    if not any(isinstance(found[name], sets.HeaderSet) for name in options.sets):
        raise BadInput(f"no header set in {sets.root()}", hint=sets.FETCH)
    chosen = list(sources(options.kind, 1 if options.all else SAMPLE))
    print(f"{len(chosen)} sources: {_counts(Counter(one.kind for one in chosen))}", flush=True)
    failed = 0
    for name in options.sets:
        one = found[name]
        if not isinstance(one, sets.HeaderSet):
            print(f"{name:12} skipped: {one}")
            continue
        for mode in options.mode:
            for arch in options.arch:
                failed += _row(one, mode, arch, chosen, options.json)
    return 1 if failed else 0


def _row(one: sets.HeaderSet, mode: str, arch: str, chosen: Sequence[Source], out: Path | None) -> int:
    """One combination; returns how many sources failed."""
    label, started = f"{one.name:12} {one.rocm:4} {mode:12} {arch:8}", time.perf_counter()
    try:
        compiler = COMPILERS[mode](one, arch)
    except ToolchainError as error:
        print(f"{label} skipped: {error.message}", flush=True)
        append_json(out, {"set": one.name, "rocm": one.rocm, "mode": mode, "arch": arch, "skipped": error.message})
        return 0
    suited = [source for source in chosen if not source.archs or arch in source.archs]
    failures: dict[str, list[str]] = {}
    try:
        for number, source in enumerate(suited, 1):
            if errors := compiler.errors(source):
                failures[f"{source.kind} {source.name}"] = errors[:3]
            if sys.stderr.isatty():
                print(f"\r{label} {number} of {len(suited)}", end="\r", file=sys.stderr, flush=True)
    finally:
        compiler.close()
    passed = Counter(s.kind for s in suited if f"{s.kind} {s.name}" not in failures)
    of = Counter(s.kind for s in suited)
    seconds = time.perf_counter() - started
    shares = ", ".join(f"{kind} {passed[kind]} of {of[kind]}" for kind in of)
    print(f"{label} {shares} ({seconds:.0f} s)", flush=True)
    by_message: dict[str, list[str]] = {}
    for source, errors in failures.items():
        by_message.setdefault(errors[0], []).append(source)
    for message, names in by_message.items():
        print(f"    {len(names)} fail, as {names[0]}: {message}", flush=True)
    row = {"passed": dict(passed), "of": dict(of), "failures": failures, "seconds": round(seconds, 1)}
    append_json(out, {"set": one.name, "rocm": one.rocm, "mode": mode, "arch": arch, **row})
    return len(failures)


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in of.items())
