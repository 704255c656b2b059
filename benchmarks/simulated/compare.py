"""Programs on a simulated AMD GPU beside the cpu target: verdicts, equal bits, kernel times. Needs no GPU.

    python -m benchmarks sim-compare [--target gfx942@sim] [--tasks benchmarks/kernels] [--draws 1] [--out DIR] [--json]

The engine's first answer of every task, and more draws of its choices, run on both targets at the derived shapes, in
the sandbox, without checks. Results of the simulated target are judged by the verifier; bits may differ from the cpu
target's where AMD's exponential or a contraction rounds otherwise. DIR keeps a line for each program, and the same
command goes on where the last one stopped. The exit code is 1 where a program is refused on the simulated target.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, positive
from hipwright import config
from hipwright.api.files import prepare_folder
from hipwright.targets import TARGETS


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--target", default="gfx942@sim", choices=[target.name for target in TARGETS.simulated])
    options.add_argument("--tasks", type=Path, default=ROOT / "benchmarks/kernels", help="a folder, or one task's file")
    options.add_argument("--draws", type=positive, default=1, help="programs a task; the first is the engine's answer")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, metavar="DIR", help="$HIPWRIGHT_HOME/sim-compare without it")
    options.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Runs what the record lacks, prints a line for each program, and the sums."""
    from benchmarks.simulated.beside import rows
    from hipwright.machine import machine

    folder = options.out or config.home() / "sim-compare"
    prepare_folder(folder)
    record = folder / f"{options.target}-{options.draws}-{options.seed}.jsonl"
    known = [json.loads(line) for line in record.read_text().splitlines()] if record.is_file() else []
    done = {row["task"] for row in known if row["draw"] == options.draws - 1}
    known = [row for row in known if row["task"] in done]
    files = [options.tasks] if options.tasks.is_file() else sorted(options.tasks.rglob("*.py"))
    with machine((options.target,), unsafe=False) as made:
        for path in files:
            name = str(path.relative_to(options.tasks)) if path != options.tasks else path.name
            if name in done:
                continue
            found = [asdict(row) for row in rows(made, path, name, options.target, options.draws, options.seed)]
            known += found
            record.write_text("".join(json.dumps(row) + "\n" for row in known), encoding="utf-8")
            for row in [] if options.json else found:
                print(_line(row), flush=True)
    return _report(known, as_json=options.json)


def _line(row: dict[str, Any]) -> str:
    ratio = row["sim_ms"] / row["cpu_ms"] if row["cpu_ms"] else 0.0
    head = f"{row['task']:44} {row['draw']:3} {row['status']:12} bits {row['equal']}/{row['cases']}"
    return f"{head}  cpu {row['cpu_ms']:8.2f} ms  sim {row['sim_ms']:8.2f} ms  x{ratio:.2f} {row['message'][:80]}"


def _report(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Prints the sums; the exit code."""
    good = [row for row in rows if row["status"] == "pass"]
    ratios = [row["sim_ms"] / row["cpu_ms"] for row in good if row["cpu_ms"]]
    sums = {
        "programs": len(rows),
        "pass": len(good),
        "cases": sum(row["cases"] for row in good),
        "equal": sum(row["equal"] for row in good),
        "median_ratio": round(median(ratios), 3) if ratios else None,
        "largest_ratio": round(max(ratios), 3) if ratios else None,
    }
    if as_json:
        print(json.dumps({**sums, "rows": rows}))
    else:
        print(
            f"{sums['pass']} of {sums['programs']} programs right; {sums['equal']} of {sums['cases']} cases with the "
            f"cpu target's bits; kernels take {sums['median_ratio']} of its time in the median, at most "
            f"{sums['largest_ratio']}"
        )
    return 0 if rows and len(good) == len(rows) else 1
